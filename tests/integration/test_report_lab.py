"""The path from validate to the signed document, as the ordinary user of a real cluster: MPI over a real network with
one slow cable, and simulated GPUs of which one is lost."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from pathlib import Path

import pytest
from labtool import BIN, Lab, lab
from report_forms import FORMS, form_rows, outputs_of, page_text, rows_of, shown

pytestmark = [pytest.mark.lab, pytest.mark.alone]
NAME, NET = "hpcrep", "10.203.34.0/24"
CRITERIA = """
[contract]
title = "Four nodes"
[[criterion]]
number = "1"
text = "MPI between all nodes."
checks = ["mpi_hello", "mpi_pingpong"]
[[criterion]]
number = "2"
text = "25 MB/s between any two nodes at 256 KiB."
checks = ["mpi_pingpong"]
measurement = "bandwidth"
unit = "MB/s"
size_bytes = 262144
min = 25.0
[[criterion]]
number = "3"
text = "Every node."
coverage = { nodes = 100.0 }
"""
WAIVER = """
[[waiver]]
name = "W1"
who = "Somebody"
reason = "The cable of node03 is on order."
until = 2099-12-31
check = "mpi_pingpong"
nodes = "node03"
"""
# Signs with a key that only the agent has.
AGENT = """
ssh-keygen -q -t ed25519 -N '' -f key && echo "hpc@lab $(cat key.pub)" >signers
ssh-keygen -q -t ed25519 -N '' -f other
ssh-add -q key && rm key && {hpcadmin} runs seal {run} --sign --key key.pub
"""


def pingpong(words: list[str]) -> tuple[int, float] | None:
    """A row of mpi_pingpong: bytes, samples, two latencies, two bandwidths."""
    return (int(words[0]), float(words[4])) if len(words) == 6 and words[0].isdigit() else None


def latency(words: list[str]) -> tuple[int, float] | None:
    return (1, float(words[2])) if len(words) == 6 and words[0] == "1" else None


def text_of(words: list[str]) -> str:
    return " ".join(" ".join(words).split())


def test_from_validate_to_the_signed_document(tmp_path_factory: pytest.TempPathFactory) -> None:
    shared = tmp_path_factory.mktemp("shared")
    with lab(NAME, NET, shared, "--nodes", "4") as cluster:
        (shared / "ok.toml").write_text(CRITERIA)
        (shared / "waived.toml").write_text(WAIVER)
        for words in (("discover", "-w", "node[01-04]"), ("conf", "render", "-o", "conf")):
            assert cluster.hpcadmin(*words).status == 0
        assert cluster.hpcadmin("validate", "--suite", "network").status == 0
        good = cluster.last_run()
        assert cluster.lab("fault", "node03", "--rate", "100mbit").status == 0
        assert cluster.hpcadmin("validate", "--suite", "network").status == 1
        bad = cluster.last_run()
        numbers_are_those_of_the_outputs(cluster, bad)
        compared(cluster, good, bad)
        statements(cluster, good, bad)
        signed(cluster, good)
        for_the_vendor(cluster, bad)


def numbers_are_those_of_the_outputs(cluster: Lab, run: Path) -> None:
    texts = {}
    for form in FORMS:
        done = cluster.hpcadmin("report", "--format", form, "--all", "-o", f"out.{form}")
        assert (done.status, done.err) == (1, ""), form
        texts[form] = (cluster.home / f"out.{form}").read_bytes()
    for name, factor, read in (("bandwidth", 1e6, pingpong), ("latency", 1e-6, latency)):
        raw = rows_of(run, read)
        assert len(raw) >= 12, "three pairs of node03 were not measured again"
        for form, told in form_rows(texts, "mpi_pingpong", name, factor).items():
            bare = type(raw)(("", size, value) for _, size, value in raw.elements())
            assert told == (bare if form == "prometheus" else raw), (form, name)
    page = page_text(texts["html"])
    key = [value for _, size, value in rows_of(run, pingpong) if size == 262144]
    assert shown(min(key)) in page and shown(min(key)) in texts["table"].decode()
    assert "node03: slow to every partner" in page
    assert all(f'<testcase name="{name}' in texts["junit"].decode() for name in ("node01 - node03", "node03"))


def compared(cluster: Lab, good: Path, bad: Path) -> None:
    done = cluster.hpcadmin("report", "--compare", good.name, "--json")
    assert done.status == 1
    found = done.json()
    assert [(t["check"], t["nodes"], t["new"]) for t in found["worse"]] == [("mpi_pingpong", ["node03"], "FAIL")]
    assert [f["nodes"] for f in found["appeared"]] == [["node03"]]
    back = cluster.hpcadmin("report", "--run", good.name, "--compare", bad.name, "--json").json()
    assert [(t["check"], t["nodes"]) for t in back["fixed"]] == [("mpi_pingpong", ["node03"])]
    assert back["appeared"] == [] and [f["nodes"] for f in back["gone"]] == [["node03"]]


def statements(cluster: Lab, good: Path, bad: Path) -> None:
    criteria = ["--criteria", "/shared/ok.toml"]
    for number, (run, more, word) in enumerate((
            (good, [*criteria, "--conf", "conf", "--live", "/etc/slurm"], "ACCEPTED"), (bad, criteria, "NOT ACCEPTED"),
            (bad, [*criteria, "--criteria", "/shared/waived.toml"], "ACCEPTED WITH WAIVERS"))):
        done = cluster.hpcadmin("report", "--handover", "--run", run.name, *more, "-o", f"handover{number}")
        assert (done.status, done.out.splitlines()[0]) == (int(word == "NOT ACCEPTED"), word), done.out + done.err
        folder = cluster.home / f"handover{number}"
        page = page_text((folder / "index.html").read_bytes())
        assert hashlib.sha256((run / "SHA256SUMS").read_bytes()).hexdigest() in page
        for path in (p for p in (folder / "raw").rglob("*") if p.is_file()):
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            assert digest == hashlib.sha256((run / path.relative_to(folder / "raw")).read_bytes()).hexdigest()
            assert digest in page
        if "--conf" in more:
            config = (cluster.home / "conf/slurm.conf").read_bytes()
            assert hashlib.sha256(config).hexdigest() in page
    for run in (good, bad):
        assert cluster.hpcadmin("runs", "verify", run.name).status == 0


def signed(cluster: Lab, run: Path) -> None:
    script = AGENT.format(hpcadmin=BIN / "hpcadmin", run=run.name)
    done = cluster.sh("ssh-agent", "sh", "-ec", script)
    assert done.status == 0, done.err
    verify = ["runs", "verify", run.name, "--json"]
    unknown = cluster.hpcadmin(*verify)
    assert (unknown.status, unknown.json()["shows_tampering"]) == (0, False)
    known = cluster.hpcadmin(*verify, "--signers", "signers")
    assert (known.status, known.json()["signer"], known.json()["shows_tampering"]) == (0, "hpc@lab", True)
    assert cluster.sh("sh", "-c", 'echo "x $(cat other.pub)" >others').status == 0
    assert cluster.hpcadmin(*verify, "--signers", "others").status == 1
    assert cluster.sh("sh", "-c", f"cd hpcadmin/runs/{run.name} && sha256sum -c --quiet SHA256SUMS").status == 0
    done = cluster.hpcadmin("report", "--handover", "--run", run.name, "-o", "signed")
    page = page_text((cluster.home / "signed/index.html").read_bytes())
    assert known.json()["key"] in page
    assert cluster.sh("sh", "-c", f"echo x >>hpcadmin/runs/{run.name}/limits.json").status == 0
    assert cluster.hpcadmin(*verify, "--signers", "signers").json()["changed"] == ["limits.json"]
    assert cluster.hpcadmin("report", "--handover", "--run", run.name, "-o", "signed").status != 0


def bundle(cluster: Lab, *more: str) -> dict[str, str]:
    done = cluster.hpcadmin("runs", "vendor", "--json", *more)
    assert done.status == 0, done.err
    made = done.json()["bundles"]
    assert len(made) == 1
    with tarfile.open(fileobj=io.BytesIO((cluster.home / made[0]["file"]).read_bytes())) as tar:
        return {m.name.partition("/")[2]: (tar.extractfile(m) or io.BytesIO()).read().decode() for m in tar}


def for_the_vendor(cluster: Lab, run: Path) -> None:
    files = bundle(cluster, run.name)
    texts = {text for _, text in outputs_of(run)}
    sent = [text.partition("\n\n")[2] or text for name, text in files.items() if name.startswith("outputs/")]
    assert sent and all(any(text in s or s.strip().endswith(text.strip()) for text in texts) for s in sent)
    masked = bundle(cluster, run.name, "--anonymise")
    assert not re.search(r"node0\d|hpcrep|10\.203\.", "".join([*masked, *masked.values()]))


def test_simulated_hardware_is_said_in_every_form(tmp_path_factory: pytest.TempPathFactory) -> None:
    shared = tmp_path_factory.mktemp("shared")
    with lab(NAME, NET, shared, "--nodes", "2", "--hardware", "8xH100") as cluster:
        assert cluster.hpcadmin("discover", "-w", "node[01-02]").status == 0
        assert cluster.lab("fault", "node02", "--gpu", "5", "lost").status == 0
        assert cluster.hpcadmin("validate", "--suite", "smoke").status == 1
        run = cluster.last_run()
        for form in FORMS:
            done = cluster.hpcadmin("report", "--format", form, "-o", f"out.{form}")
            assert (done.status, done.err) == (1, ""), form
            assert form == "xlsx" or b"8xH100" in (cluster.home / f"out.{form}").read_bytes(), form
        done = cluster.hpcadmin("report", "--handover", "-o", "handover")
        assert (done.status, done.out.splitlines()[0]) == (1, "NOT ACCEPTED")
        page = (cluster.home / "handover/index.html").read_bytes().decode()
        assert '@top-center { content: "SIMULATED: 8xH100"' in page          # on every sheet of paper
        found = cluster.hpcadmin("report", "--json").json()
        assert {tuple(f["nodes"]) for f in found["findings"]} == {("node02",)}
        serials = bundle(cluster, run.name)["serials.csv"]
        inventory = (cluster.home / "hpcadmin/inventory.json").read_text()
        uuids = re.findall(r"GPU-[0-9a-f-]{36}", serials)
        assert len(set(uuids)) >= 7 and all(uuid in inventory for uuid in uuids)
