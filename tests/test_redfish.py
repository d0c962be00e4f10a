"""Redfish against a real HTTPS server with a certificate made for the test."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import sim_node
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcadmin import bmcs
from hpcadmin.errors import RemoteError, UsageError
from hpcadmin.facts import read_capture
from hpcadmin.model import Inventory
from hpcadmin.remote import redfish
from hpcadmin.remote.redfish import Credentials, Redfish, credentials, read
from hpcadmin.site import BmcSite

pytestmark = pytest.mark.deep

LOGIN = Credentials("monitor", "se cret")


def link(path: str) -> dict[str, str]:
    return {"@odata.id": path}


def resources() -> dict[str, Any]:
    one = "/redfish/v1"
    return {
        f"{one}/": {"Systems": link(f"{one}/Systems"), "Chassis": link(f"{one}/Chassis"),
                    "Managers": link(f"{one}/Managers")},
        f"{one}/Systems": {"Members": [link(f"{one}/Systems/1")]},
        f"{one}/Systems/1": {"SerialNumber": "S1", "UUID": "ABCD", "Model": "X1", "BiosVersion": "2.1",
                             "Manufacturer": "Example", "Status": {"Health": "Warning"}, "PowerState": "On",
                             "Bios": link(f"{one}/Systems/1/Bios"),
                             "LogServices": link(f"{one}/Systems/1/LogServices")},
        f"{one}/Systems/1/Bios": {"Attributes": {
            "SMTControl": "Disabled", "NumaNodesPerSocket": "NPS4", "AcsEnable": "Disabled", "IOMMU": "Enabled",
            "BootMode": "Uefi", "SubNumaCluster": None}},
        f"{one}/Systems/1/LogServices": {"Members": [link(f"{one}/Systems/1/LogServices/Sel")]},
        f"{one}/Systems/1/LogServices/Sel": {"Id": "Sel", "Entries": link(f"{one}/Systems/1/LogServices/Sel/Entries")},
        f"{one}/Systems/1/LogServices/Sel/Entries": {"Members": [
            {"Id": str(n), "Created": f"2026-11-{n:02d}T00:00:00Z", "Severity": "Critical", "Message": f"event {n}"}
            for n in range(1, 29)]},
        f"{one}/Chassis": {"Members": [link(f"{one}/Chassis/1"), link(f"{one}/Chassis/2")]},
        f"{one}/Chassis/1": {"Power": link(f"{one}/Chassis/1/Power"), "Thermal": link(f"{one}/Chassis/1/Thermal")},
        f"{one}/Chassis/1/Power": {"PowerSupplies": [
            {"Name": "PSU1", "Status": {"State": "Enabled", "Health": "OK"}},
            {"Name": "PSU2", "Status": {"State": "Enabled", "Health": "Critical"}},
            {"Name": "PSU3", "Status": {"State": "Absent"}}]},
        f"{one}/Chassis/1/Thermal": {"Fans": [{"FanName": "FAN1", "Reading": 8000, "Status": {"Health": "OK"}}]},
        f"{one}/Chassis/2": {"PowerSubsystem": link(f"{one}/Chassis/2/PowerSubsystem")},
        f"{one}/Chassis/2/PowerSubsystem": {"PowerSupplies": link(f"{one}/Chassis/2/PowerSubsystem/PowerSupplies")},
        f"{one}/Chassis/2/PowerSubsystem/PowerSupplies": {"Members": [link(f"{one}/Chassis/2/p/0")]},
        f"{one}/Chassis/2/p/0": {"Name": "PSU-A", "Status": {"State": "Enabled", "Health": "OK"}},
        f"{one}/Managers": {"Members": [link(f"{one}/Managers/1")]},
        f"{one}/Managers/1": {"FirmwareVersion": "1.05", "EthernetInterfaces": link(f"{one}/Managers/1/e")},
        f"{one}/Managers/1/e": {"Members": [link(f"{one}/Managers/1/e/1")]},
        f"{one}/Managers/1/e/1": {"IPv4Addresses": [{"Address": "192.0.2.17"}]},
    }


@dataclass
class Server:
    port: int
    ca: Path
    folder: Path
    resources: dict[str, Any] = field(default_factory=resources)
    special: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)

    def client(self, **options: Any) -> Redfish:
        return Redfish(f"localhost:{self.port}", LOGIN, **{"ca_file": self.ca, "timeout_s": 3.0, **options})


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("redfish")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost", "-keyout", folder / "key", "-out", folder / "cert"],
                   check=True, capture_output=True)
    server = Server(0, folder / "cert", folder)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.asked.append((self.path, self.headers.get("Authorization", "")))
            answer = server.special.get(self.path)
            if callable(answer):
                answer(self)
                return
            word = base64.b64encode(b"monitor:se cret").decode()
            found = server.resources.get(self.path)
            status = 401 if self.headers.get("Authorization") != f"Basic {word}" else 200 if found else 404
            data = json.dumps(found if status == 200 else {}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, *args: Any) -> None:
            pass

    web = Quiet(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "cert", folder / "key")
    web.socket = context.wrap_socket(web.socket, server_side=True)
    server.port = web.server_port
    thread = threading.Thread(target=web.serve_forever, daemon=True)
    thread.start()
    yield server
    web.shutdown()
    web.server_close()
    thread.join(timeout=5)


@pytest.fixture
def server(running: Server) -> Server:
    running.resources, running.special = resources(), {}
    running.asked.clear()
    return running


def test_a_whole_bmc(server: Server) -> None:
    found = read(server.client().get)
    assert found.bmc.psus == ("PSU1: OK", "PSU2: Critical", "PSU-A: OK")
    assert found.bmc.fans == ("FAN1: OK",)
    assert found.bmc.firmware == "1.05"
    assert found.bmc.address == "192.0.2.17"
    assert found.bmc.settings == {"SMT": "Disabled", "NPS": "NPS4", "ACS": "Disabled", "IOMMU": "Enabled"}
    assert len(found.bmc.events) == 20
    assert found.bmc.events[-1] == "2026-11-28T00:00:00Z | Critical | event 28"
    assert found.faults == ("BMC: PSU2: Critical",)
    assert found.system["serial"] == "S1"
    assert found.system["uuid"] == "abcd"
    assert found.missing == ()


def test_what_does_not_answer_is_named_and_the_rest_is_there(server: Server) -> None:
    del server.resources["/redfish/v1/Systems/1/Bios"], server.resources["/redfish/v1/Chassis/1/Power"]
    found = read(server.client().get)
    assert found.bmc.settings == {}
    assert found.bmc.psus == ("PSU-A: OK",)
    assert "BIOS settings: /redfish/v1/Systems/1/Bios: there is no such resource" in found.missing
    assert any(missing.startswith("power supplies: ") for missing in found.missing)


def test_a_certificate_that_nobody_vouches_for_is_refused(server: Server) -> None:
    with pytest.raises(RemoteError, match="certificate verify failed"):
        read(server.client(ca_file=None).get)
    assert server.asked == []
    assert read(server.client(ca_file=None, verify=False).get).bmc.firmware == "1.05"


def test_a_certificate_for_another_name_is_refused(server: Server) -> None:
    client = Redfish(f"127.0.0.1:{server.port}", LOGIN, ca_file=server.ca)
    with pytest.raises(RemoteError, match=r"mismatch|doesn't match"):
        client.get("/redfish/v1/")
    assert server.asked == []


def test_a_wrong_password(server: Server) -> None:
    client = Redfish(f"localhost:{server.port}", Credentials("monitor", "x"), ca_file=server.ca)
    with pytest.raises(RemoteError, match="does not accept the user"):
        read(client.get)
    assert "se cret" not in repr(LOGIN)


def test_links_lead_nowhere_else(server: Server) -> None:
    """Neither a redirect nor an absolute link carries the password to another machine or another kind of place."""
    def redirect(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(302)
        handler.send_header("Location", f"https://localhost:{server.port}/redfish/v1/Systems/1")
        handler.send_header("Content-Length", "0")
        handler.end_headers()
    server.special["/redfish/v1/Managers"] = redirect
    for path in ("https://example.com/redfish/v1/Chassis", "//example.com/redfish", "/etc/passwd", "/redfish/../x",
                 "/redfish/v1/../../x", "file:///etc/passwd"):
        server.resources["/redfish/v1/"]["Chassis"] = link(path)
        found = read(server.client().get)
        assert any(missing.startswith("chassis: ") for missing in found.missing), path
        assert "managers: /redfish/v1/Managers: HTTP status 302" in found.missing
    assert all(path.startswith("/redfish/v1") and ".." not in path for path, _ in server.asked)


def test_endless_slow_and_garbage_answers_are_cut_off(server: Server) -> None:
    def endless(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        while True:
            handler.wfile.write(b" " * 65536)

    def dripping(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        for _ in range(100):
            handler.wfile.write(b" ")
            time.sleep(0.2)

    def garbage(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"SSH-2.0-\r\n\r\n")

    server.special = {"/redfish/v1/Chassis": endless, "/redfish/v1/Managers": garbage}
    found = read(server.client().get)
    assert any(f"larger than {redfish.MAX_ANSWER}" in missing for missing in found.missing)
    assert any(missing.startswith("managers: ") for missing in found.missing)
    assert found.system["serial"] == "S1"
    server.special = {"/redfish/v1/": dripping}
    start = time.monotonic()
    with pytest.raises(RemoteError):
        read(server.client(overall_s=1.0).get)
    assert time.monotonic() - start < 5


def test_a_tree_without_end_is_cut_off() -> None:
    asked = 0

    def get(path: str) -> dict[str, Any]:
        nonlocal asked
        asked += 1
        if asked > redfish.MAX_REQUESTS:
            raise RemoteError("more than enough resources")
        many = [link(f"{path}/{n}") for n in range(100)]
        return {"Members": many, **{key: link("/redfish/v1/x") for key in (
            "Systems", "Chassis", "Managers", "Bios", "PowerSubsystem", "PowerSupplies", "LogServices", "Entries",
            "EthernetInterfaces")}}
    assert any("more than enough" in missing for missing in read(get).missing)


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([
                        "@odata.id", "Members", "Systems", "Chassis", "Managers", "Bios", "Attributes", "Status",
                        "Health", "PowerSupplies", "Fans", "Name", "Power"]), inner, max_size=4), max_leaves=12)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(max_size=3), JSON), st.lists(JSON, min_size=1, max_size=8))
def test_any_json(root: dict[str, Any], answers: list[Any]) -> None:
    count = 0

    def get(path: str) -> dict[str, Any]:
        nonlocal count
        count += 1
        answer = answers[count % len(answers)]
        if count > 60 or not isinstance(answer, dict):
            raise RemoteError("no")
        return answer
    with contextlib.suppress(RemoteError):
        read(get)


def test_credentials(tmp_path: Path) -> None:
    path = tmp_path / "bmc"
    path.write_text("user=monitor\npassword=a=b c\n")
    path.chmod(0o600)
    assert credentials(path) == Credentials("monitor", "a=b c")
    path.chmod(0o640)
    with pytest.raises(UsageError, match="others may read"):
        credentials(path)
    path.chmod(0o600)
    path.write_text("monitor:x\n")
    with pytest.raises(UsageError, match="has no lines"):
        credentials(path)


@pytest.mark.parametrize("address", ["", "host/path", "user@host", "host?x", "a b", "host#x", "http://host"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(UsageError):
        Redfish(address, LOGIN)


def site(server: Server, **words: Any) -> BmcSite:
    login = server.folder / "login"
    login.write_text("user=monitor\npassword=se cret\n")
    login.chmod(0o600)
    return BmcSite(**{"address": f"localhost:{server.port}", "login_file": str(login), "ca_file": str(server.ca),
                      **words})


def test_the_bmcs_of_all_nodes(server: Server) -> None:
    node = read_capture(sim_node.capture("4xA100-pcie"), "n1")
    found = Inventory(tuple(replace(node, name=f"n{number}", serial="S1", bios="", uuid="") for number in range(5)))
    told = bmcs.ask(found, site(server), parallel=2)
    assert [each.name for each in told.nodes] == [f"n{number}" for number in range(5)]
    assert all(each.bmc and each.bmc.firmware == "1.05" and "bmc" not in each.unknown for each in told.nodes)
    # What breaks with one BMC's answers is that node's.
    server.special["/redfish/v1/"] = lambda handler: handler.wfile.write(b"nonsense")
    told = bmcs.ask(found, site(server))
    assert all(any(part.startswith("bmc (localhost:") for part in each.unknown) for each in told.nodes)
    assert all(each.gpus == node.gpus for each in told.nodes)


@pytest.mark.parametrize(("words", "said"), [
    ({"login_file": ""}, "no login"), ({"ca_file": "/nowhere"}, "ca_file /nowhere: cannot be used: No such file"),
    ({"ca_file": __file__}, "has no certificates")])
def test_what_the_site_must_say(server: Server, words: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        bmcs.ask(Inventory(()), site(server, **words))
    assert said in str(caught.value)


def test_silence_is_said_so(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(RemoteError) as caught:
        Redfish(f"localhost:{silent.getsockname()[1]}", LOGIN, verify=False, timeout_s=1.0).get("/redfish/v1/")
    assert str(caught.value).endswith("does not answer within 1 s")
