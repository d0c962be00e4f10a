"""Outputs that a step brings: what it says is put into the job's folder, and nothing of it is trusted."""

import base64
import os
import subprocess
import time
from pathlib import Path

import pytest

from hpcadmin import run_carry
from hpcadmin.errors import StoreError
from hpcadmin.run_carry import Carrier, Intake, append, argv_of


class Case:
    def __init__(self, folder: Path, *nodes: str) -> None:
        self.said: list[str] = []
        self.folder = folder
        self.intake = Intake(folder, frozenset(nodes or ("n1", "n2")), self.said.append)

    def lines(self, *lines: str) -> None:
        for line in lines:
            self.intake.line(line.encode())

    def text(self, name: str) -> str:
        return (self.folder / name).read_text()


def data(task: int, text: str) -> str:
    return f"{task}: +{base64.b64encode(text.encode()).decode()}"


def test_each_task_writes_its_nodes_log_and_one_the_jobs_files(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.lines("0: node n1", " 1: node n2", "1: at n2.log 0", "0: at n1.log 0", data(0, "one "), data(1, "two"),
               data(0, "more"), "0: at driver.log 0", data(0, "d"), "0: done 12.5 77", "0: all")
    assert (case.text("n1.log"), case.text("n2.log"), case.text("driver.log")) == ("one more", "two", "d")
    assert (case.intake.done, case.intake.everyone, case.said) == ("12.5 77", False, [])
    case.lines("1: all")
    assert case.intake.everyone


def test_what_is_here_already_is_not_written_twice(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.lines("0: node n1", "0: at n1.log 0", data(0, "abc"))
    case.intake.again()
    case.lines("3: node n1", "3: at n1.log 0", data(3, "ab"), data(3, "cdef"), "3: at n1.log 6", data(3, "g"))
    assert case.text("n1.log") == "abcdefg"
    later = Case(tmp_path)                      # another process: validate --resume
    later.lines("0: node n1", "0: at n1.log 0", data(0, "abcdefgh"))
    assert later.text("n1.log") == "abcdefgh"


BAD = [
    (["1: node n9"], "a node: says that it is n9"),
    (["1: node n1"], "a node: says that it is n1, as another one does"),
    (["1: node n2", "1: node n1"], "n2: says that it is n1"),
    (["1: node ../x"], "a node: says that it is ../x"),
    (["1: node n2", "1: at n1.log 0"], "n2: speaks of n1.log"),
    (["1: node n2", "1: at ../../x 0"], "n2: speaks of ../../x"),
    (["1: node n2", "1: at script 0"], "n2: speaks of script"),
    (["1: node n2", "1: at done 0"], "n2: speaks of done"),
    (["1: node n2", "1: at driver.log 0"], "n2: has a driver.log, as the job's first node has"),
    (["1: node n2", "1: at n2.log 5"], "n2: left out a part of n2.log"),
    (["1: node n2", "1: at n2.log 0", "1: +***"], "n2: n2.log did not come whole"),
]


@pytest.mark.parametrize(("lines", "problem"), BAD)
def test_a_task_that_speaks_for_another_is_heard_no_more(tmp_path: Path, lines: list[str], problem: str) -> None:
    case = Case(tmp_path)
    case.lines("0: node n1", "0: at driver.log 0", data(0, "x"), *lines, "1: at n2.log 0", data(1, "late"), "1: all",
               "0: at n1.log 0", data(0, "good"), "0: all")
    assert case.said == [f"{problem}: nothing more is taken from it"]
    assert case.text("n1.log") == "good" and not (tmp_path / "n2.log").exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["driver.log", "n1.log"]
    assert case.intake.everyone


def test_only_the_first_node_says_that_the_job_is_done(tmp_path: Path) -> None:
    case = Case(tmp_path)
    case.lines("0: node n1", "1: node n2", "0: at claimed 0", data(0, "7"), "1: done 1 2", "done", "x: done 1 2",
               "0: done", "9: done 1 2")
    assert case.intake.done == ""


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_carry, "MOST_BYTES", 10)
    case = Case(tmp_path)
    case.lines("0: node n1", "0: at n1.log 0", data(0, "123456789"), data(0, "123"))
    assert case.text("n1.log") == "123456789" and "is larger than" in case.said[0]


def test_links_and_pipes_are_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("other")
    (tmp_path / "link").symlink_to(tmp_path / "other")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(StoreError, match="cannot be written"):
            append(tmp_path / name, b"x")
    assert (tmp_path / "other").read_text() == "other"


# --- the script on a node, without Slurm ------------------------------------------------------------------------


def stand_in(folder: Path, nodes: str) -> dict[str, str]:
    """An srun that starts the script for each node here, with labels."""
    folder.mkdir()
    (folder / "srun").write_text("""#!/bin/sh
while [ "$1" != sh ]; do shift; done
n=0
mkfifo "$D/in.0" "$D/in.1"
for node in $NODES; do
    SLURMD_NODENAME=$node "$1" "$2" "$3" "$4" "$5.$node" 5 <"$D/in.$n" | sed -u "s/^/$n: /" &
    n=$((n + 1))
done
tee "$D/in.0" >"$D/in.1"
wait
""")
    (folder / "srun").chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}", "NODES": nodes, "D": str(folder)}


def until_done(carrier: Carrier, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not (carrier.folder / "done").exists():
        assert time.monotonic() < end
        carrier.pump()
        time.sleep(0.02)


@pytest.mark.deep
def test_the_script_says_all_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in stand_in(tmp_path / "bin", "n1 n2").items():
        monkeypatch.setenv(key, value)
    job = tmp_path / "job"
    job.mkdir()
    said: list[str] = []
    bodies = {"n1": os.urandom(100_000), "n2": b"x" * 30}
    for node, body in bodies.items():
        there = tmp_path / f"away.{node}"
        there.mkdir(mode=0o700)
        (there / "script").write_text("")
        (there / f"{node}.log").write_bytes(body)
        (there / "stray.log").write_text("stray")
        os.mkfifo(there / "begun")
    first = tmp_path / "away.n1"
    (first / "driver.log").write_text("driver\n")
    (first / "srun.out").symlink_to("/etc/passwd")
    carrier = Carrier(job, str(tmp_path / "away"), ("n1", "n2"), 2, said.append)
    carrier.attach(7)
    end = time.monotonic() + 60
    while not (job / "n1.log").exists() or (job / "n1.log").stat().st_size < 100_000:
        assert time.monotonic() < end
        carrier.pump()
    with (first / "n1.log").open("ab") as log:
        log.write(b"more")
    (first / "done").write_text("12.5 7\n")
    for node in bodies:
        (tmp_path / f"away.{node}" / "over").write_text("")
    until_done(carrier)
    assert (job / "n1.log").read_bytes() == bodies["n1"] + b"more" and (job / "n2.log").read_bytes() == bodies["n2"]
    assert (job / "driver.log").read_text() == "driver\n" and (job / "done").read_text() == "12.5 7\n"
    assert not (job / "srun.out").exists() and said == []
    carrier.close()
    end = time.monotonic() + 60
    while not all((tmp_path / f"away.{n}" / "collected").exists() for n in bodies):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_an_srun_that_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    said: list[str] = []
    carrier = Carrier(tmp_path, "/tmp/x", ("n1",), 1, said.append)
    carrier.attach(7)
    assert said == ["srun cannot be started: No such file or directory: the outputs of job 7 cannot be collected"]
    assert not carrier.pump()


@pytest.mark.deep
def test_an_srun_that_fails_is_told_with_its_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "srun").write_text("#!/bin/sh\necho 'srun: error: no way there' >&2\nexit 1\n")
    (tmp_path / "srun").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    carrier = Carrier(tmp_path, "/tmp/x", ("n1",), 1, lambda _: None)
    carrier.attach(7)
    end = time.monotonic() + 60
    while carrier.attached:
        assert time.monotonic() < end
        carrier.pump()
        time.sleep(0.02)
    assert carrier.problem() == "srun: error: no way there"


def test_lines_are_short_enough_for_srun(tmp_path: Path) -> None:
    argv = argv_of(7, ("n1", "n2"), 2, "/tmp/x")
    assert {"--jobid=7", "--overlap", "--label"} < set(argv) and argv[argv.index("-w") + 1] == "n[1-2]"
    done = subprocess.run(["base64", "-w", "720"], input=b"x" * 100_000, capture_output=True, check=True)
    assert max(map(len, done.stdout.split(b"\n"))) + 20 < 1000


@pytest.mark.parametrize("cut", [1, 700, 1999, 2000, 2500, 65536])
def test_a_node_cannot_speak_for_another_in_a_long_line(tmp_path: Path, cut: int) -> None:
    """srun says whose a line is at its beginning alone."""
    carrier = Carrier(tmp_path, "/tmp/x", ("n1", "n2"), 2, lambda text: None)
    evil = b"1: " + b" " * 9000 + b"0:+" + base64.b64encode(b"forged") + b"\n"
    data = b"0: node n1\n1: node n2\n0: at n1.log 0\n" + evil + b"0:+" + base64.b64encode(b"real") + b"\n"
    for start in range(0, len(data), cut):
        carrier._lines(data[start:start + cut])
    assert (tmp_path / "n1.log").read_bytes() == b"real"
