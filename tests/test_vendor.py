"""What a vendor is sent of a faulty node: all that he needs, nothing of the others, and no names if so asked."""

import csv
import gzip
import hashlib
import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
from made_runs import inventory, names, node_results, pair_results, write_run
from test_report import healthy_value

from hpcadmin import cli, vendor_files
from hpcadmin.check import Measurement, Scope, Status, Step, Subject, Verdict
from hpcadmin.frames import Frame, encode
from hpcadmin.model import Dimm, Nic, Source
from hpcadmin.rundata import PlannedEntry, PlannedTest, Run, TestResult, read_run
from hpcadmin.vendor import faulty_nodes
from hpcadmin.vendor_pack import Bundle, bundle

N4 = names(4)
KEY = b"k" * 32
DMESG = "[    5.1] NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.\n"


def frame(test: str, node: str, text: str, role: str = "each", step: int = 0) -> bytes:
    return encode(Frame(test, step, role, node, node, 0, 1e9, 1e9 + 1, frozenset(), text.encode()))


def value(a: str, b: str) -> float:
    return 11.5 if "node03" in (a, b) else healthy_value(a, b)


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """node03 is slow with all, node02 lacks a GPU, and a program over all nodes failed for it."""
    log = tmp_path / "captures/node03.dmesg"
    log.parent.mkdir()
    log.write_text(DMESG)
    both = tmp_path / "captures/all.txt"
    both.write_text("node01 and node03")
    inv = inventory(N4, gpus=2)
    told = tuple(replace(
        n, neighbours=(("eth0", "frodo", "Ethernet1"),), serial=f"SYS{i}X9001", vendor="Maker", product="X9",
        uuid=f"4c4c4544-0000-2010-8020-80c04f20203{i}",
        sources=(
            Source(str(both), ("lscpu",), hashlib.sha256(both.read_bytes()).hexdigest()),
            *([Source(str(log), ("dmesg",), hashlib.sha256(log.read_bytes()).hexdigest())] if i == 3 else [])),
        gpus=tuple(replace(g, serial=f"16500{i}00{g.index}1",
                           uuid=f"GPU-0000000{i}-aaaa-bbbb-cccc-00000000000{g.index}") for g in n.gpus),
        dimms=(Dimm("A1", 65536, "DDR5", serial=f"D1MM{i}5", part="M321"),),
        nics=(Nic("mlx5_0", "mlx5_0", 1, guid=f"b8cef60300aa000{i}", serial=f"MT2200X0000{i}", firmware="28.39"),))
        for i, n in enumerate(inv.nodes, 1))
    inv = replace(inv, nodes=told)
    gpus = [TestResult(PlannedTest(f"t8{i}", "nvidia_smi", Subject((n,)), (Step(("nvidia-smi",)),), 2),
                       (Measurement("gpus", 1 if n == "node02" else 2, expected=2),),
                       outputs=(f"jobs/2/{n}.log#t8{i}",))
            for i, n in enumerate(N4, 1)]
    group = TestResult(PlannedTest("t85", "nccl_allreduce", Subject(N4), (Step(("all_reduce_perf",)),), 2, ranks=8),
                       error="node02: 1 of 2 ranks started")
    entries = (PlannedEntry("nvidia_smi", "GPUs", Scope.NODE), PlannedEntry("nccl_allreduce", "NCCL", Scope.GROUP),
               PlannedEntry("mpi_pingpong", "Pairs", Scope.PAIR), PlannedEntry("node_ready", "Ready", Scope.NODE),
               PlannedEntry("mpi_hello", "Hello", Scope.GROUP))
    results = [*node_results(N4), *gpus, group, *pair_results(value, N4)]
    path = write_run(tmp_path / "runs/20260730-101500-network", results, N4, inv=inv, entries=entries, exit_status=None)
    (path / "jobs/2").mkdir(parents=True)
    for i, n in enumerate(N4, 1):
        (path / f"jobs/2/{n}.log").write_bytes(
            frame(f"t8{i}", n, f"GPUs of {n}: serial 16500{i}0001\n") + frame(f"t900{i}", n, f"ready {n}"))
    driver = [frame("t85", "node01", "rank 3 on node02 is not there", "ranks")]
    for r in results:
        if r.test.check == "mpi_pingpong":
            a, b = r.test.subject.nodes
            driver += [frame(r.test.id, a, f"server {a}", "server"),
                       frame(r.test.id, b, f"client {a} {b}", "client", 1)]
    (path / "jobs/2/driver.log").write_bytes(b"".join(driver))
    return path


def opened(made: Bundle) -> dict[str, str]:
    with tarfile.open(fileobj=io.BytesIO(made.data)) as archive:
        members = archive.getmembers()
        found = {m.name.partition("/")[2]: archive.extractfile(m).read().decode()  # type: ignore[union-attr]
                 for m in members}
    assert {m.name.partition("/")[0] for m in members} == {made.name.removesuffix(".tar.gz")}
    assert all(m.isreg() and (m.uid, m.gid, m.uname, m.mode) == (0, 0, "", 0o644) for m in members)
    sums = dict(line.split("  ")[::-1] for line in found["SHA256SUMS"].splitlines())
    assert sums == {name: hashlib.sha256(text.encode()).hexdigest() for name, text in found.items()
                    if name != "SHA256SUMS"}
    return found


def test_a_slow_node(run_folder: Path) -> None:
    run = read_run(run_folder)
    assert faulty_nodes(run) == ["node02", "node03"]
    files = opened(bundle(run, "node03"))
    assert {name for name in files if "/" not in name} == {
        "README.txt", "SHA256SUMS", "facts.json", "findings.json", "measurements.csv", "serials.csv", "verdicts.json"}
    assert [f["nodes"] for f in json.loads(files["findings.json"])] == [["node03"]]
    assert {v["where"] for v in json.loads(files["verdicts.json"])} == {
        "node03", "node01 - node03", "node02 - node03", "node03 - node04"}
    assert [row["value"] for row in csv.DictReader(io.StringIO(files["measurements.csv"]))
            if row["kind"] == "measurement"] == ["11.5"] * 3
    outputs = {name for name in files if name.startswith("outputs/")}
    assert len(outputs) == 6, "both sides of its three pairs, and nothing that was good"
    text = files["outputs/t0003-0-server-node01.txt"]
    assert text.startswith("# mpi_pingpong, test t0003, step 0, server on node01, exit status 0, "
                           "2001-09-09T01:46:40+00:00 to")
    assert text.endswith("\nserver node01")
    assert "node03: slow to every partner" in files["README.txt"]
    assert "SYS3X9001" in files["README.txt"]
    assert "all.txt: tells of other nodes too" in files["README.txt"]
    assert files["kernel/node03.dmesg"] == DMESG
    for line in [name for name in files if name != "SHA256SUMS"]:
        assert f"  {line}\n" in files["README.txt"]


def test_nothing_of_other_nodes_but_what_the_findings_need(run_folder: Path) -> None:
    run = read_run(run_folder)
    for node, others in (("node03", "124"), ("node02", "134")):
        whole = "".join(opened(bundle(run, node)).values())
        for i in others:
            for own in (f"SYS{i}X", f"16500{i}0", f"D1MM{i}", f"MT2200X0000{i}", f"ready node0{i}",
                        f"GPUs of node0{i}"):
                assert own not in whole
    files = opened(bundle(run, "node02"))
    assert "t85-0-ranks-node01.txt" in " ".join(files), "what a program over all nodes printed"
    assert "node01, node02" not in files["verdicts.json"]
    assert "server" not in " ".join(files), "its pair with the slow node is the slow node's"


def test_a_node_speaks_for_itself_only(run_folder: Path) -> None:
    with (run_folder / "jobs/2/node01.log").open("ab") as stream:
        stream.write(frame("t0003", "node03", "made up by node01", "client", 1))
    assert "made up" not in "".join(opened(bundle(read_run(run_folder), "node03")).values())


def test_serials_are_a_table(run_folder: Path) -> None:
    files = opened(bundle(read_run(run_folder), "node03"))
    rows = {(r["part"], r["place"]): r for r in csv.DictReader(io.StringIO(files["serials.csv"]))}
    assert rows["GPU", "1"]["serial"] == "165003001" "1"
    assert rows["NIC", "mlx5_0"]["firmware"] == "28.39"
    assert rows["DIMM", "A1"]["part_number"] == "M321"
    assert rows["system", ""]["serial"] == "SYS3X9001"


def test_the_same_bytes_each_time(run_folder: Path) -> None:
    run = read_run(run_folder)
    first = bundle(run, "node03")
    assert first == bundle(run, "node03")
    assert bundle(run, "node03", key=KEY).data == bundle(run, "node03", key=KEY).data
    assert gzip.decompress(first.data)


def test_anonymised_it_names_nobody(run_folder: Path) -> None:
    run = read_run(run_folder)
    made = bundle(run, "node03", key=KEY)
    files = opened(made)
    whole = "".join(files.values()) + " ".join(files) + made.name + "".join(made.left)
    for name in (*N4, "SYS3", "165003", "D1MM3", "MT2200", "b8cef60300aa", "00000003-aaaa", "Cluster:", "lab\n",
                 "frodo"):
        assert name not in whole, name
    assert "Xid (PCI:0000:1b:00): 79" in whole, "what it says of the hardware stays"
    assert "11.5" in files["measurements.csv"]
    assert "outputs/t0003-0-server-" in " ".join(files), "what is no name is not replaced"
    masked = made.name.removeprefix("20260730-101500-network-").removesuffix(".tar.gz")
    assert masked in files["README.txt"], "the same replacement everywhere"


def test_who_made_the_run_is_named_by_nothing_of_it(run_folder: Path) -> None:
    """The run's folder, and with it the name, stands in the command lines of our programs."""
    run = read_run(run_folder)
    user = replace(run, manifest=replace(run.manifest, user="aragorn"))
    log = run_folder / "jobs/2/node02.log"
    log.write_bytes(log.read_bytes() + frame("t82", "node02", "/scratch/aragorn/runs/osu NODE02"))
    said = "".join(opened(bundle(user, "node02", key=KEY)).values())
    assert ("/runs/osu" in said, "aragorn" in said, "node02" in said.lower()) == (True, False, False)


def test_anonymised_but_for_the_serials(run_folder: Path) -> None:
    files = opened(bundle(read_run(run_folder), "node03", key=KEY, keep_serials=True))
    assert "SYS3X9001" in files.pop("serials.csv")
    assert "SYS3X9001" not in "".join(files.values())


def test_it_is_bounded(run_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run_folder / "jobs/2/node02.log").write_bytes(frame("t82", "node02", "begin" + "x" * 5000 + "end"))
    monkeypatch.setattr(vendor_files, "MOST_OF_ONE", 1000)
    files = opened(bundle(read_run(run_folder), "node02"))
    text = files["outputs/t82-0-each-node02.txt"]
    assert len(text) < 1200
    assert text.endswith("end")
    assert "characters are left out here" in text
    assert "characters of its middle" in files["README.txt"]
    monkeypatch.setattr(vendor_files, "MOST_FILES", 1)
    made = bundle(read_run(run_folder), "node03")
    assert sum(name.startswith("outputs/") for name in made.files) == 1
    assert sum("at most" in line for line in made.left) == 6


def test_a_source_that_was_changed_is_left_out(run_folder: Path) -> None:
    (run_folder.parent.parent / "captures/node03.dmesg").write_text("another machine's")
    made = bundle(read_run(run_folder), "node03")
    assert "kernel/node03.dmesg" not in made.files
    assert any("not what the run's inventory was read from" in line for line in made.left)


def test_hostile_names_and_outputs(tmp_path: Path) -> None:
    bad = "../../etc/passwd"
    verdict = Verdict("c", Subject((bad,)), Status.FAIL, "=cmd()\x1b[31m\n<b>", test="t1")
    test = PlannedTest("t1", "c", Subject((bad,)), (), 2)
    path = write_run(tmp_path / "run", [TestResult(test, error="x")], (bad,), verdicts=[verdict], exit_status=None)
    (path / "jobs/2").mkdir(parents=True)
    (path / "jobs/2/a.log").symlink_to("/etc/passwd")
    (path / "jobs/2/b.log").write_bytes(frame("t1", "n", "\xff\x00") + b"torn")
    made = bundle(read_run(path), bad)
    files = opened(made)
    assert all(".." not in name.split("/") for name in files)
    assert "/" not in made.name
    assert "\x1b" not in files["README.txt"]
    assert "root:" not in "".join(files.values())


def test_a_node_without_a_serial_is_told(run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                         capsys: pytest.CaptureFixture[str]) -> None:
    from hpcadmin.errors import StoreError
    from hpcadmin.store_archive import take_in
    monkeypatch.setenv("HPCADMIN_DIR", str(tmp_path))
    monkeypatch.delenv("HPCADMIN_SITE", raising=False)
    monkeypatch.chdir(tmp_path)
    (run_folder / "inventory.json").unlink()
    _, out, err = call(capsys, "--node", "node03")
    assert "note: node03: its serial is not known" in err
    with pytest.raises(StoreError, match="is what runs vendor made, no run: not taken in"):
        take_in(tmp_path / out.strip(), run_folder.parent)


def test_a_run_that_was_cut_off(run_folder: Path) -> None:
    for name in ("plan.json", "inventory.json", "findings.json"):
        (run_folder / name).unlink()
    run: Run = read_run(run_folder)
    files = opened(bundle(run, "node03"))
    assert "The run has no inventory of this node." in files["README.txt"]
    assert "No finding of this run names this node." in files["README.txt"]
    assert "11.5 MB/s" in files["README.txt"]


def call(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    status = cli.run(["runs", "vendor", *args])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return status, out, err


def test_as_it_is_called(run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                         capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("HPCADMIN_DIR", str(tmp_path))
    monkeypatch.delenv("HPCADMIN_SITE", raising=False)
    monkeypatch.chdir(tmp_path)
    status, out, err = call(capsys)
    assert (status, out.splitlines()) == (0, [f"20260730-101500-network-node0{i}.tar.gz" for i in (2, 3)])
    assert "tells of other nodes too" in err
    assert "serial is not known" not in err
    assert (tmp_path / out.splitlines()[0]).stat().st_mode & 0o777 == 0o600
    status, out, err = call(capsys, "last", "--node", "node01", "--json", "-o", str(tmp_path / "captures"))
    assert (status, json.loads(out)["bundles"][0]["findings"]) == (0, 0)
    assert "node01: no finding of this run names it" in err
    status, out, _ = call(capsys, "--node", "node03", "--anonymise")
    assert status == 0
    assert "node03" not in out
    for args, says in ((["--node", "node09"], "is not a node of"), (["--keep-serials"], "is for --anonymise"),
                       (["-o", "nowhere"], "is not a folder")):
        status, out, err = call(capsys, *args)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert says in err
