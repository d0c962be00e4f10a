"""ethernet: what iperf of every version and ping print, and what a run with both ends tells of MTU, loss and speed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from looped import looped

from hpcadmin.check import Context, Measurement, NodeView, Output, ParseError, Reading, Role, Status, Subject
from hpcadmin.checklib import ping
from hpcadmin.judge import judge
from hpcadmin.registry import load_checks
from hpcadmin.rundata import PlannedTest, TestResult

SAMPLES = Path(__file__).parent / "samples" / "ethernet"
SERVER = (SAMPLES / "whole_lab.server.txt").read_text()
CLIENT = (SAMPLES / "whole_lab.out").read_text()
NODES = tuple(NodeView(f"node0{n}", address=f"10.232.0.1{n}", hostname=f"node0{n}") for n in (1, 2))
PARAMS = {"mtu": 1500, "streams": 2, "seconds": 3, "udp_seconds": 2}
TOOLS = {"iperf3": "/usr/bin/iperf3", "ping": "/usr/bin/ping"}


def read(text: str) -> Reading:
    check = load_checks()["ethernet"]
    assert check.read is not None
    return check.read(text, Context())


def values(text: str) -> dict[str, object]:
    reading = read(text)
    assert reading.sound, reading.problems
    return {f"{m.name} {m.mode}".strip(): m.value for m in reading.measurements}


# --- texts of iperf ---------------------------------------------------------------------------------------------


def test_iperf3_of_old_tells_one_row_of_udp() -> None:
    text = """Connecting to host 192.0.2.1, port 5201
[  4] local 192.0.2.2 port 43210 connected to 192.0.2.1 port 5201
[ ID] Interval           Transfer     Bandwidth       Total Datagrams
[  4]   0.00-1.00   sec   116 KBytes   950 Kbits/sec  82
[  4]   1.00-2.00   sec   129 KBytes  1.06 Mbits/sec  91
- - - - - - - - - - - - - - - - - - - - - - - - -
[ ID] Interval           Transfer     Bandwidth       Jitter    Lost/Total Datagrams
[  4]   0.00-2.00   sec   245 KBytes  1.00 Mbits/sec  0.053 ms  2/173 (1.2%)
[  4] Sent 173 datagrams
[SUM]  0.0- 2.0 sec  3 datagrams received out-of-order

iperf Done.
"""
    assert values(text) == {"sent_rate UDP, sender": 1.0, "jitter": 0.053, "lost_datagrams": 2, "total_datagrams": 173,
                            "loss UDP": 1.1561, "duration": 2.0}
    assert "2/173 (1.2%) are not" not in str(read(text).problems)
    assert not read(text.replace("2/173 (1.2%)", "20/173 (1.2%)")).usable


def test_iperf2_with_intervals_and_a_servers_report() -> None:
    text = """------------------------------------------------------------
Client connecting to 192.0.2.1, UDP port 5001
Sending 1470 byte datagrams, IPG target: 560.76 us (kalman adjust)
UDP buffer size:  208 KByte (default)
------------------------------------------------------------
[  3] local 192.0.2.2 port 36102 connected with 192.0.2.1 port 5001
[ ID] Interval       Transfer     Bandwidth
[  3]  0.0- 2.0 sec  5.00 MBytes  21.0 Mbits/sec
[  3]  2.0- 4.0 sec  5.00 MBytes  21.0 Mbits/sec
[  3]  0.0- 4.0 sec  10.0 MBytes  21.0 Mbits/sec
[  3] Sent 7135 datagrams
[  3] Server Report:
[  3]  0.0- 4.0 sec  9.98 MBytes  20.9 Mbits/sec   0.014 ms   15/ 7135 (0.21%)
[  3]  0.0- 4.0 sec  4 datagrams received out-of-order
"""
    assert values(text)["received_rate UDP, server report"] == 20.9
    assert values(text)["loss UDP"] == 0.2102
    lines = text.splitlines(keepends=True)
    assert not read("".join(lines[:-4])).usable and "never reported" in str(read("".join(lines[:-4])).problems)
    lost = text.replace("[  3] Server Report", "[  3] WARNING: did not receive ack of last datagram after 10 tries.\n"
                        "[  3] Server Report")
    assert not read(lost).usable


@pytest.mark.parametrize(("text", "said"), [
    ("iperf3: error - unable to connect to server: Connection timed out\n", "Connection timed out"),
    ("iperf3: error - the server is busy running a test. try again later\n", "the server is busy"),
    ("iperf3: interrupt - the client has terminated\n", "the client has terminated"),
    ("bash: iperf3: command not found\n", "command not found"),
    ('{\n\t"start":\t{\n\t\t"connected":\t[],\n\t\t"version":\t"iperf 3.9"\n\t},\n\t"intervals":\t[],\n'
     '\t"end":\t{\n\t},\n\t"error":\t"error - the server is busy running a test. try again later"\n}\n',
     "the server is busy"),
    ("[  5]   0.00-10.00  sec  11,0 GBytes  9,41 Gbits/sec                  receiver\n", "is not a number"),
    ("connect failed: Connection refused\n", "Connection refused"), ("", "empty"), ("hello\n", "no output of iperf"),
])
def test_what_is_no_result_says_why(text: str, said: str) -> None:
    reading = read(text)
    assert not reading.usable and not reading.measurements and said in " ".join(reading.problems)


def sample_json(name: str = "whole_iperf3_json") -> dict:
    return json.loads((SAMPLES / f"{name}.out").read_text())


def test_json_among_other_lines_and_as_a_stream_of_events() -> None:
    data = sample_json()
    plain = json.dumps(data, indent="\t")
    assert values("$ iperf3 -c n1 -J\n" + plain + "\n$ \n") == values(plain)
    events = [{"event": "start", "data": data["start"]},
              *({"event": "interval", "data": i} for i in data["intervals"]), {"event": "end", "data": data["end"]}]
    stream = "".join(json.dumps(e) + "\n" for e in events)
    assert values(stream) == values(plain)
    assert not read(stream.rsplit("\n", 2)[0]).usable
    broken = stream + json.dumps({"event": "error", "data": "unable to receive control message"}) + "\n"
    assert "unable to receive control message" in str(read(broken).problems) and not read(broken).usable


@pytest.mark.deep
def test_json_that_contradicts_itself_is_refused() -> None:
    for change in (lambda e: e["sum_received"].update(bytes=1), lambda e: e["sum_received"].update(bits_per_second=0),
                   lambda e: e["sum_sent"].update(seconds=0.1), lambda e: e["streams"].append(e["streams"][0]),
                   lambda e: e["sum_received"].pop("seconds"), lambda e: e.pop("sum_received"),
                   lambda e: e["sum_received"].update(bytes=None), lambda e: e["sum_sent"].update(bytes="12")):
        data = sample_json()
        change(data["end"])
        assert not read(json.dumps(data, indent=1)).usable, data["end"]
    data = sample_json()
    data["start"]["test_start"]["duration"] = 10
    assert "10 s were asked for" in str(read(json.dumps(data, indent=1)).problems)
    assert not read("[" * 100_000 + "{").usable and not read('{"start": ' * 50_000).usable


def test_a_server_tells_what_it_saw_itself() -> None:
    """The sender's side of UDP knows no loss; the receiver's side of TCP does not know what was sent."""
    flow = {"start": 0, "end": 1.0, "seconds": 1.0, "bytes": 1003200, "bits_per_second": 8025600.0}
    nothing = {**flow, "bytes": 0, "bits_per_second": 0}
    counts = {"jitter_ms": 0.01, "lost_packets": 0, "packets": 836, "lost_percent": 0}
    none = {"jitter_ms": 0, "lost_packets": 0, "packets": 0, "lost_percent": 0}
    start = {"connected": [{"local_host": "192.0.2.1", "remote_host": "192.0.2.2"}], "version": "iperf 3.21",
             "accepted_connection": {"host": "192.0.2.2", "port": 1}}
    asked = {"num_streams": 1, "duration": 1, "omit": 0, "bytes": 0, "blocks": 0, "bidir": 0}

    def text(protocol: str, reverse: int, end: dict) -> str:
        return json.dumps({"start": {**start, "test_start": {**asked, "protocol": protocol, "reverse": reverse}},
                           "intervals": [{"streams": [flow], "sum": flow}], "end": end}, indent=1)

    sends = read(text("UDP", 1, {"streams": [{"udp": {**flow, **counts}}], "sum": {**flow, **counts},
                                 "sum_sent": {**flow, **counts}, "sum_received": {**nothing, **none}}))
    assert "how many datagrams were lost is not told" in str(sends.problems)
    assert not [m for m in sends.measurements if m.name == "loss"]
    gets = read(text("UDP", 0, {"streams": [{"udp": {**nothing, **counts}}], "sum": {**nothing, **counts},
                                "sum_sent": {**nothing, **none}, "sum_received": {**flow, **counts}}))
    assert gets.sound and [m.value for m in gets.measurements if m.name == "total_datagrams"] == [836]
    tcp = read(text("TCP", 0, {"streams": [{"sender": nothing, "receiver": flow}], "sum_sent": nothing,
                               "sum_received": flow}))
    assert [(m.value, m.mode) for m in tcp.measurements if m.name == "bandwidth"] == [
        (0.008026, "TCP, 1 stream, receiver")]


def test_json_of_3_0_has_fewer_figures() -> None:
    """Numbers with six digits, no receiver's clock, no sender's flags."""
    flow = {"start": 0, "end": 5.00008, "seconds": 5.00008, "bytes": 16245572, "bits_per_second": 2.59925e+07}
    text = json.dumps({
        "start": {"connected": [{"socket": 4, "local_host": "192.0.2.3", "remote_host": "192.0.2.8"}],
                  "version": "iperf 3.0.11", "test_start": {"protocol": "TCP", "num_streams": 1, "omit": 0,
                                                           "duration": 5, "bytes": 0, "blocks": 0, "reverse": 0}},
        "intervals": [{"streams": [flow], "sum": {**flow, "omitted": False}}],
        "end": {"streams": [{"sender": {**flow, "retransmits": 14}, "receiver": flow}],
                "sum_sent": {**flow, "retransmits": 14}, "sum_received": flow}}, indent=1)
    assert values(text) == {"bandwidth TCP, 1 stream, receiver": 0.025993, "bandwidth TCP, 1 stream, sender": 0.025993,
                            "retransmits": 14, "duration": 5.0}


# --- ping -------------------------------------------------------------------------------------------------------


def test_pings_of_every_make() -> None:
    old = ping.parse("PING n1 (192.0.2.1) from 192.0.2.2 eth0: 56(84) bytes of data.\n--- n1 ping statistics ---\n"
                     "2000 packets transmitted, 1999 received, 0% packet loss, time 4003ms\n"
                     "rtt min/avg/max/mdev = 0.1/0.2/0.3/0.01 ms, ipg/ewma 2.0/0.2 ms\n")
    assert (old.loss, old.problems, old.doubts) == (0.05, [], [])
    six = ping.parse("PING fd00::1(n1 (fd00::1)) 1452 data bytes\n1460 bytes from n1: icmp_seq=1 ttl=64 time=0.1 ms\n"
                     "1 packets transmitted, 1 received, 0% packet loss, time 0ms\nrtt min/avg/max/mdev = 1/1/1/0 ms\n")
    assert (six.host, six.address, six.whole, six.loss, six.problems) == ("fd00::1", "fd00::1", 1500, 0.0, [])
    bsd = ping.parse("PING6(88=40+8+40 bytes) ::1 --> ::1\n48 bytes from ::1, icmp_seq=0 hlim=64 time=0.035 ms\n"
                     "1 packets transmitted, 1 packets received, 0.0% packet loss\n"
                     "round-trip min/avg/max/std-dev = 0.035/0.035/0.035/0.000 ms\n")
    assert (bsd.whole, bsd.loss, bsd.problems, bsd.doubts) == (88, 0.0, [], [])
    box = ping.parse("PING 192.0.2.1 (192.0.2.1): 56 data bytes\n2 packets transmitted, 2 packets received, 0% packet "
                     "loss\nround-trip min/avg/max = 0.066/0.208/0.350 ms\n")
    assert (box.loss, box.whole) == (0.0, 84)


@pytest.mark.parametrize("text", [
    "PING n1 (192.0.2.1) 56(84) bytes of data.\n",
    "PING n1 (192.0.2.1) 56(84) bytes of data.\n5 packets transmitted, 6 received, 0% packet loss, time 1ms\n",
    "PING n1 (192.0.2.1) 56(84) bytes of data.\n5 packets transmitted, 1 received, 0% packet loss, time 1ms\n",
    "PING n1 (192.0.2.1) 56(84) bytes of data.\n0 packets transmitted, 0 received, 0% packet loss, time 1ms\n",
    "ping: n1: Name or service not known\n", "ping: socktype: SOCK_RAW\nping: socket: Operation not permitted\n"])
def test_a_ping_that_tells_nothing(text: str) -> None:
    assert ping.parse(text).problems and not ping.read(text).usable


@pytest.mark.deep
def test_hostile_lines_take_no_time() -> None:
    """Nothing is tried in two ways: each of these took minutes, or would, with one quantifier inside of another."""
    import time
    start = time.process_time()
    for line in ("5 packets transmitted, 5 received" + ", +1 errors" * 30, "PING " + "a" * 200 + "(" + "b" * 200,
                 "[  5] " + "1-" * 90 + " sec", "[  5]" + " " * 150 + "sec /sec", '{"event":"start","data":{}}',
                 "rtt min/avg/max = " + "1/" * 90):
        read(f"Connecting to host h, port 5\n{line}\n" * 1000)
        ping.read(f"PING n1 (192.0.2.1) 56(84) bytes of data.\n{line}\n" * 1000)
    assert time.process_time() - start < 10


# --- a run ------------------------------------------------------------------------------------------------------


def outputs(server: str, client: str) -> list[Output]:
    return [Output(server, role=Role.SERVER, node="node01"), Output(client, role=Role.CLIENT, node="node02")]


def parse(server: str = SERVER, client: str = CLIENT, **params: int) -> list[Measurement]:
    return load_checks()["ethernet"].parse(outputs(server, client), Context(nodes=NODES, params={**PARAMS, **params}))


def linked(text: str, speed: int, kind: str = "physical") -> str:
    return text.replace("speed: 10000", f"speed: {speed}").replace("kind: virtual", f"kind: {kind}")


@pytest.mark.parametrize(("server", "client", "transport"), [
    ((25000, "physical"), (25000, "bond"), "TCP 25 Gb/s"), ((100000, "vlan"), (25000, "physical"), "TCP 25 Gb/s"),
    ((10000, "virtual"), (25000, "physical"), "TCP"), ((100000, "physical"), (200000, "physical"),
                                                      "TCP one thread 100 Gb/s")])
def test_the_speed_is_that_of_the_slower_interface(server: tuple, client: tuple, transport: str) -> None:
    found = parse(linked(SERVER, *server), linked(CLIENT, *client))
    assert {m.transport for m in found if m.name == "bandwidth"} == {transport}


def test_more_than_a_link_can_carry_is_an_error() -> None:
    with pytest.raises(ParseError, match="cannot come over a link of 10 Gb/s"):
        parse(linked(SERVER, 10000), linked(CLIENT, 10000))


def part(text: str, name: str, inside: str, status: int) -> str:
    """The text with another answer in one of its parts."""
    begin = text.index(f"# begin {name}\n") + len(f"# begin {name}\n")
    end = text.index(f"# status {name} ")
    return text[:begin] + inside + text[end:].replace(f"# status {name} 0", f"# status {name} {status}", 1)


LOST = ("PING 10.232.0.11 (10.232.0.11) {0}({1}) bytes of data.\n\n{2} packets transmitted, 0 received, 100% packet "
        "loss\n")


def black_hole() -> str:
    text = part(CLIENT, "large", LOST.format(1472, 1500, 5), 1)
    small = text[text.index("PING"):text.index("# status small")]
    inside = small.replace("56(84)", "1252(1280)")
    return text.replace("# status large 1\n", f"# status large 1\n# begin of1280\n{inside}# status of1280 0\n")


def test_a_black_hole_is_told_from_a_dead_node() -> None:
    hole = next(m for m in parse(client=black_hole()) if m.name == "path_mtu" and m.mode == "node02 to node01")
    assert hole.value == 1280 and hole.expected == 1500
    assert "lost without a word, those of 1280 pass" in hole.warnings[0]
    dead = part(part(CLIENT, "large", LOST.format(1472, 1500, 5), 1), "small", LOST.format(56, 84, 5), 1)
    silent = next(m for m in parse(client=dead) if m.name == "path_mtu" and m.mode == "node02 to node01")
    assert silent.value == "unknown" and "no answer to 5 small pings" in silent.warnings[0]
    gave_up = dead[:dead.index("# begin udp_back")] + dead[dead.index("dropped_after"):]
    gave_up = part(gave_up, "udp", "iperf3: error - unable to connect to server: No route to host\n", 1)
    with pytest.raises(ParseError, match=r"no answer to 5 small pings, and iperf3: udp: .*No route to host"):
        parse(client=gave_up)


def test_tcp_that_gets_stuck_in_a_black_hole_is_no_mystery() -> None:
    stuck = part(black_hole(), "tcp", "iperf3: interrupt - the client has terminated\n", 124)
    found = {(m.name, m.value) for m in parse(client=stuck)}
    assert ("path_mtu", 1280) in found and ("bandwidth", "not measured") in found
    with pytest.raises(ParseError, match="tcp: iperf3 did not end in time"):
        parse(client=part(CLIENT, "tcp", "", 124))


def test_somebody_says_that_it_is_too_long() -> None:
    said = "From 10.232.0.1 icmp_seq=1 Frag needed and DF set (mtu = 1400)\n" + LOST.format(1472, 1500, 5)
    lines = said.splitlines(keepends=True)
    long = part(CLIENT, "large", lines[1] + lines[0] + "".join(lines[2:]), 1)
    found = next(m for m in parse(client=long) if m.mode == "node02 to node01")
    assert found.value == 1400 and "a router or tunnel on the way" in found.warnings[0]


def test_lost_datagrams_and_who_lost_them() -> None:
    begin, end = CLIENT.index("# begin udp\n"), CLIENT.index("# status udp ")
    data = json.loads(CLIENT[begin + len("# begin udp\n"):end])
    for one in (data["end"]["sum"], data["end"]["sum_received"], data["end"]["streams"][0]["udp"]):
        one.update(lost_packets=89, lost_percent=100 * 89 / one["packets"])
    client = part(CLIENT, "udp", json.dumps(data, indent="\t") + "\n", 0)
    lost = next(m for m in parse(client=client) if m.name == "loss")
    assert lost.value == round(100 * 89 / 8925, 4) and not lost.warnings
    server = SERVER.replace("dropped_after: 0", "dropped_after: 89")
    lost = next(m for m in parse(server, client) if m.name == "loss")
    assert "89 came to node01, which did not read them in time" in lost.warnings[0]
    assert lost.value == 0      # on the way; with the warning it cannot pass
    lost = next(m for m in parse(SERVER.replace("dropped_after: 0", "dropped_after: 29"), client) if m.name == "loss")
    assert lost.value == round(100 * 60 / 8925, 4)


def test_too_few_datagrams_never_pass() -> None:
    few = (SAMPLES / "whole_iperf3_udp_json.out").read_text().replace("4461", "446").replace("6245400", "6245400")
    found = load_checks()["ethernet"].parse([Output(few)], Context())
    loss = next(m for m in found if m.name == "loss")
    assert "too few to tell a loss of 0.1 %" in loss.warnings[0]
    verdict = judge([TestResult(PlannedTest("t1", "ethernet", Subject(), (), 1), (loss,))], ())
    assert verdict[0].status is not Status.PASS


@looped(("server", "client", "said"), [
    (SERVER.replace("node: node01", "node: node03"), CLIENT, "ran on node03, not on node01"),
    (CLIENT, CLIENT, "is of the client"), (SERVER, SERVER, "is of the server"),
    (SERVER.replace("servers: 0 0 0 0\n", ""), CLIENT, "servers not told"),
    (SERVER.replace("route: 10.232.0.12 dev eth0", "route: local 10.232.0.12 dev lo").replace(
        "interface: eth0", "interface: lo"), CLIENT, "are one host"),
    (SERVER, CLIENT.replace("# status tcp 0", "# status tcp 1"), "tcp: iperf3 ended with status 1"),
    (SERVER, CLIENT.replace("# begin tcp\n", "# begin tcp_too\n"), "ends and had not begun"),
    (SERVER, CLIENT.replace("10.232.0.11", "10.232.0.77"), "asked 10.232.0.77, and node01 is 10.232.0.11"),
    (SERVER, CLIENT.replace("PING 10.232.0.11 (10.232.0.11)", "PING n (10.232.0.99)"), "10.232.0.99 was pinged"),
    (SERVER, CLIENT.replace('"remote_host":\t"10.232.0.11"', '"remote_host":\t"10.232.0.99"'), "end is 10.232.0.99"),
    (SERVER.replace("servers: 0 0 0 0", "servers: 137 0"), CLIENT, "where 4 servers ended"),
    (SERVER, CLIENT + "slurmstepd: error: *** STEP 1.0 CANCELLED\n", "error line")])
def test_a_run_that_is_not_whole(server: str, client: str, said: str) -> None:
    with pytest.raises(ParseError, match=said.replace("(", "\\(")):
        parse(server, client)


def test_what_one_text_of_two_tools_and_a_ping_that_failed_are_worth() -> None:
    ping_text, iperf_text = ((SAMPLES / f"whole_{name}.out").read_text() for name in ("ping_quiet", "iperf3_text"))
    assert read(iperf_text + ping_text.replace(" 0% packet loss", " 100% packet loss")).problems == (
        "texts of ping and of iperf in one: give them one by one",)
    found = parse(client=CLIENT.replace("# status small 0", "# status small 1"))
    assert "ping ended with status 1" in str([m.warnings for m in found if m.name == "path_mtu"])


def test_what_is_started() -> None:
    check = load_checks()["ethernet"]
    context = Context(nodes=NODES, params={**check.params, "hosts": "{name}-data"}, tools=TOOLS, port_base=18600)
    server, client = check.steps(context)
    assert server.ready is not None and server.ready.port == 18600 and server.nodes == ("node01",)
    assert server.argv[4:6] == ("server", "node02-data") and client.argv[4:6] == ("client", "node01-data")
    assert client.argv[6:] == ("9000", "/usr/bin/ping", "/usr/bin/iperf3", "18600", "50", "2", "3", "8")
    plain = check.steps(Context(nodes=NODES, params=check.params, tools=TOOLS))
    assert plain[1].argv[5] == "10.232.0.11"
    for bad in ({"udp_mbps": 100_000}, {"mtu": 100}, {"streams": 0}, {"hosts": "-f; reboot"}, {"hosts": ""}):
        nodes = NODES if bad != {"hosts": ""} else (NodeView("n1", address="a b"), NODES[1])
        with pytest.raises(ParseError):
            check.steps(Context(nodes=nodes, params={**check.params, **bad}, tools=TOOLS))
