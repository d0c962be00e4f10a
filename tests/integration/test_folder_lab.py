"""The run folder in trouble, on a lab whose nodes can be kept from seeing it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from labtool import BIN, Done, Lab, lab
from loopback import wait_until

from hpcadmin.check import Status
from hpcadmin.errors import StoreError
from hpcadmin.frames import scan
from hpcadmin.lab import journal
from hpcadmin.rundata import Run, read_run

pytestmark = pytest.mark.lab

NODES = ["node01", "node02", "node03"]
CHECKS = {
    "says": '''
def steps(c):
    return (Step(("sh", "-c", 'echo "$SLURMD_NODENAME 42"')),)
def parse(o, c):
    node, value = o[0].text.split()
    return [Measurement("value", int(value), expected=42, subject=Subject((node,)))]
CHECK = Check("says", "Says 42", Scope.NODE, steps, parse)
''',
    "later": '''
def steps(c):
    return (Step(("sh", "-c", 'until [ -e /tmp/go ]; do sleep 0.1; done; echo "$SLURMD_NODENAME"'), timeout_s=300.0),)
def parse(o, c):
    return [Measurement("ok", 1, expected=1, subject=Subject((o[0].text.strip(),)))]
CHECK = Check("later", "Waits for a sign", Scope.NODE, steps, parse)
''',
    "pairs": '''
def steps(c):
    return (Step(("sh", "-c", 'echo "$SLURM_PROCID $SLURMD_NODENAME"'), Role.RANKS),
            Step(("sh", "-c", 'echo "here $SLURMD_NODENAME"')))
def parse(o, c):
    found = dict(line.split() for line in o[0].text.splitlines())
    if sorted(found.values()) != sorted(n.name for n in c.nodes):
        raise ParseError(f"answered: {found}")
    return [Measurement("ranks", len(found), expected=2, subject=Subject(tuple(n.name for n in c.nodes)))]
CHECK = Check("pairs", "Two ranks answer", Scope.PAIR, steps, parse)
''',
    "sleeps": '''
def steps(c):
    return (Step(("sh", "-c", 'sleep 1; echo "$SLURMD_NODENAME"')),)
def parse(o, c):
    return [Measurement("ok", 1, expected=1, subject=Subject((o[0].text.strip(),)))]
CHECK = Check("sleeps", "Takes a second", Scope.NODE, steps, parse)
''',
}
LONG = [f"long{number:02d}" for number in range(60)]
for _name in LONG:
    CHECKS[_name] = '''
def steps(c):
    return (Step(("sh", "-c", 'echo "${#1}"', "sh", "x" * 20000)),)
def parse(o, c):
    return [Measurement("length", int(o[0].text), expected=20000, subject=Subject((o[0].node,)))]
CHECK = Check("NAME", "A long command line", Scope.NODE, steps, parse)
'''.replace("NAME", _name)
SUITES = {"all": ["says", "pairs", "node_ready"], "says": ["says"], "later": ["says", "later"], "sleeps": ["sleeps"],
          "programs": ["mpi_hello"],
          "long": LONG}


class Cluster:
    """The lab, and what is done to its nodes' view of /shared."""

    def __init__(self, made: Lab) -> None:
        self.lab, self.home = made, made.home
        self.before: set[str] = set()
        checks = self.home / "checks"
        checks.mkdir()
        for name, text in CHECKS.items():
            (checks / f"{name}.py").write_text("from hpcadmin.check import *\n" + text)
        for name, names in SUITES.items():
            (self.home / f"{name}.toml").write_text("".join(f'[[entry]]\ncheck = "{n}"\n' for n in names))
        for collect in ("shared", "step"):
            (self.home / f"{collect}-site.toml").write_text(
                '[run]\ndir = "/shared/home/hpc/hpcadmin"\nchecks_dir = "/shared/home/hpc/checks"\n'
                f'collect = "{collect}"\nnode_dir = "/tmp"\n')
        (self.home / "inventory.json").write_text(json.dumps({"schema": 1, "nodes": [{"name": n} for n in NODES]}))
        (self.home / "hpcadmin/runs").mkdir(parents=True)
        os.system(f"chown -R --reference={self.home} {self.home}")  # noqa: S605

    def node(self, name: str, script: str) -> str:
        argv = [str(BIN / "hpcadmin"), "lab", "exec", "--name", self.lab.name, "--node", name, "--user", "root", "--"]
        done = subprocess.run([*argv, "sh", "-c", script], capture_output=True, text=True, timeout=60, check=True)
        return done.stdout

    def all(self, script: str, nodes: list[str] = NODES) -> None:
        for name in nodes:
            self.node(name, script)

    @contextmanager
    def hidden(self, *nodes: str) -> Iterator[None]:
        """These nodes have another, empty file system at /shared."""
        self.all("mount -t tmpfs none /shared", list(nodes))
        try:
            yield
        finally:
            self.all("while mountpoint -q /shared && df -P /shared | grep -q ^none; do umount -l /shared; done",
                     list(nodes))

    def argv(self, suite: str, collect: str, *more: str, **env: str) -> list[str]:
        return ["env", *(f"{k}={v}" for k, v in env.items()), str(BIN / "hpcadmin"), "--site", f"{collect}-site.toml",
                "validate", "--inventory", "inventory.json", "--suite", f"./{suite}.toml", *more]

    def validate(self, suite: str, collect: str = "shared", *more: str, **env: str) -> Done:
        return self.lab.sh(*self.argv(suite, collect, *more, **env))

    def begin(self, suite: str, collect: str = "shared", **env: str) -> subprocess.Popen[str]:
        self.before = {path.name for path in (self.home / "hpcadmin/runs").iterdir()}
        return subprocess.Popen(
            [str(BIN / "hpcadmin"), "lab", "exec", "--name", self.lab.name, "--", *self.argv(suite, collect, **env)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL)

    def last(self) -> Run:
        return read_run(self.lab.last_run())

    def measured(self) -> list[str]:
        """The checks that the run has measured which was begun last."""
        try:
            return [m.check for m in self.last().measured] if self.lab.last_run().name not in self.before else []
        except (StoreError, ValueError):
            return []

    def queue(self) -> list[str]:
        done = self.lab.sh("squeue", "-h", "-o", "%i %T")
        return done.out.splitlines() if done.status == 0 else ["squeue failed"]

    def quiet(self) -> None:
        """All nodes are free again, and nothing of ours is on them."""
        self.lab.sh("scancel", "-u", "hpc")
        wait_until(lambda: not self.queue())
        self.all("rm -f /tmp/go")
        wait_until(lambda: self.lab.sh("sinfo", "-h", "-t", "idle", "-o", "%D").out.strip() == "3")

    def root(self, name: str) -> Path:
        process = journal.load(self.lab.name).host(name).process
        assert process is not None
        return Path(f"/proc/{process.pid}/root")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("fold")
    for path in (folder, folder.parent):
        path.chmod(0o755)
    with lab("hpcfold", "10.202.32.0/24", folder, "--nodes", "3") as made:
        yield Cluster(made)


@pytest.fixture(autouse=True)
def _quiet(cluster: Cluster) -> Iterator[None]:
    yield
    cluster.quiet()


def passed(run: Run) -> Counter[tuple[str, Status]]:
    """Tests by check and status."""
    return Counter((check, status) for check, status, _ in {(v.check, v.status, v.test) for v in run.verdicts})


def once(run: Run) -> bool:
    """Nothing was counted twice."""
    return len({(m.test, m.measurement.name) for m in run.measured}) == len(run.measured)


ALL = {("says", Status.PASS): 3, ("pairs", Status.PASS): 3, ("node_ready", Status.PASS): 3}


# --- not shared -------------------------------------------------------------------------------------------------


def test_nodes_that_do_not_see_the_folder_are_named_with_what_to_do(cluster: Cluster) -> None:
    with cluster.hidden(*NODES):
        done = cluster.validate("says")
    assert (done.status, done.out) == (4, ""), done.err
    (line,) = [line for line in done.err.splitlines() if line.startswith("hpcadmin:")]
    assert "found that node[01-03] do not see the run folder /shared/home/hpc/hpcadmin/runs/" in line
    assert '[run] collect = "step"' in line
    wait_until(lambda: not cluster.queue())
    assert cluster.last().manifest.state == "failed"


def test_one_node_that_does_not_see_it_is_an_error_of_that_node(cluster: Cluster) -> None:
    with cluster.hidden("node02"):
        done = cluster.validate("says", HPCADMIN_SEE="5")
    assert done.status == 3, done.err
    run = cluster.last()
    assert passed(run) == {("says", Status.PASS): 2, ("says", Status.ERROR): 1}
    (reason,) = [v.reason for v in run.verdicts if v.status is Status.ERROR]
    assert "node02 does not see the run folder: there is no /shared" in reason
    assert '[run] collect = "step"' in reason


def test_without_a_shared_folder_a_step_brings_the_outputs(cluster: Cluster) -> None:
    with cluster.hidden(*NODES):
        process = cluster.begin("later", "step")
        # Results come while the job runs.
        wait_until(lambda: cluster.measured() == ["says"] * 3)
        cluster.all("touch /tmp/go")
        out, err = process.communicate(timeout=180)
        assert process.returncode == 0, out + err
        done = cluster.validate("all", "step")
        assert done.status == 0, done.out + done.err
        assert passed(cluster.last()) == ALL
        # Programs of ours are built on a node, and come to the others with the job.
        done = cluster.validate("programs", "step")
        assert done.status == 0, done.out + done.err
        assert passed(cluster.last()) == {("mpi_hello", Status.PASS): 1}
        told = cluster.lab.sh(str(BIN / "hpcadmin"), "--site", "step-site.toml", "runs", "outputs", "--json").json()
        (one,) = told["outputs"]
        assert (one["status"], one["role"], one["nodes"], one["node"]) == (0, "ranks", NODES, "node01")
        assert one["argv"][0].endswith("/bin/mpi_hello") and one["ended"] >= one["started"] and one["slurm_job"]
        # The last job is that of all three: nodes that were still completing had one of their own before.
        number = max(int(path.name) for path in (cluster.lab.last_run() / "jobs").iterdir() if path.name.isdecimal())
        script = (cluster.lab.last_run() / f"jobs/{number}/script").read_text()
        # By hand: with a word, and it prints what it has to say.
        kept = f"/shared/{(cluster.lab.last_run() / f'jobs/{number}/script').relative_to(cluster.lab.shared)}"
        cluster.all("mkdir -p /tmp/out && chown hpc /tmp/out")
        sent = cluster.lab.sh("sbatch", "-o", "/tmp/out/it", kept, "by-hand")
        assert sent.status == 0, sent.err
        job = sent.out.split()[-1]
        wait_until(lambda: "JobState=COMPLETED" in cluster.lab.sh("scontrol", "show", "job", job).out)
        printed = cluster.node("node01", "cat /tmp/out/it")
        cluster.all("rm -rf /tmp/out")
        assert "HPCADMIN-FRAME 1 id=t0001 step=0 role=ranks node=node01" in printed and "hpcadmin: " not in printed
        left = [cluster.node(n, "ls -A /tmp; ls -A /shared") for n in NODES]
    assert [text.split() for text in left] == [["go"]] * 3
    assert "AWAY=/tmp/hpcadmin-" in script and "/shared/" not in script.split("# ---- hpcadmin")[0]


def test_a_run_that_was_killed_takes_what_lies_on_the_nodes(cluster: Cluster) -> None:
    with cluster.hidden(*NODES):
        process = cluster.begin("later", "step")
        wait_until(lambda: cluster.measured() == ["says"] * 3)
        kill_validate(cluster)
        process.communicate(timeout=60)
        cluster.all("touch /tmp/go")
        name = cluster.lab.last_run().name
        done = cluster.lab.sh(str(BIN / "hpcadmin"), "--site", "step-site.toml", "validate", "--resume", name)
        assert done.status == 0, done.err
        run = cluster.last()
        assert passed(run) == {("says", Status.PASS): 3, ("later", Status.PASS): 3}
        assert once(run)
        assert run.plan is not None and len(run.plan.jobs) == 1


def test_what_nobody_came_for_is_measured_again(cluster: Cluster) -> None:
    with cluster.hidden(*NODES):
        process = cluster.begin("later", "step", HPCADMIN_TAKEN="0")
        wait_until(lambda: cluster.measured() == ["says"] * 3)
        kill_validate(cluster)
        process.communicate(timeout=60)
        cluster.all("touch /tmp/go")
        wait_until(lambda: not cluster.queue())
        name = cluster.lab.last_run().name
        done = cluster.lab.sh(str(BIN / "hpcadmin"), "--site", "step-site.toml", "validate", "--resume", name)
        assert done.status == 0, done.err
        run = cluster.last()
        assert passed(run) == {("says", Status.PASS): 3, ("later", Status.PASS): 3}
        assert run.plan is not None and [j.rest_of for j in run.plan.jobs] == [None, 1]


def kill_validate(cluster: Cluster) -> None:
    holder = json.loads((cluster.lab.last_run() / "lock").read_text())
    cluster.lab.sh("kill", f"-{int(signal.SIGKILL)}", str(holder["pid"]))


def test_a_node_without_room_says_so(cluster: Cluster) -> None:
    with cluster.hidden(*NODES):
        cluster.node("node02", "mount -t tmpfs -o size=4k,mode=1777 none /tmp")
        try:
            done = cluster.validate("says", "step")
        finally:
            cluster.node("node02", "umount -l /tmp")
    run = cluster.last()
    assert passed(run) == {("says", Status.PASS): 2, ("says", Status.ERROR): 1}, done.err
    (reason,) = [v.reason for v in run.verdicts if v.status is Status.ERROR]
    assert "node02 has no room in /tmp" in reason


# --- seen late --------------------------------------------------------------------------------------------------


class FileServer(threading.Thread):
    """Shows files to the other side late: what nodes wrote first by half, then with its end before its middle. By half
    until somebody has said that he waits."""

    def __init__(self, cluster: Cluster, nodes: tuple[str, ...]) -> None:
        super().__init__(daemon=True)
        self.roots = {n: cluster.root(n) / "shared" for n in nodes}
        self.shared, self.owner = cluster.lab.shared, cluster.home.stat()
        self.over, self.waited_for = threading.Event(), threading.Event()
        self.since: dict[object, float] = {}
        self.stage: dict[Path, str] = {}
        self.shown: list[str] = []

    def run(self) -> None:
        while not self.over.wait(0.2):
            for name, root in self.roots.items():
                for path in self.shared.rglob("hpcadmin/runs/*/jobs/*/*"):
                    if path.name in ("script", "mark") and self.due(root / path.relative_to(self.shared), 1.5):
                        self.down(path, root)
                for path in root.rglob(f"hpcadmin/runs/*/jobs/*/{name}.log"):
                    self.up(path, self.shared / path.relative_to(root))

    def due(self, what: object, seconds: float) -> bool:
        return time.monotonic() - self.since.setdefault(what, time.monotonic()) > seconds

    def down(self, path: Path, root: Path) -> None:
        mine = root / path.relative_to(self.shared)
        for folder in reversed([f for f in mine.parents if root in f.parents]):
            if not folder.exists():
                folder.mkdir()
                os.chown(folder, self.owner.st_uid, self.owner.st_gid)
        if not mine.exists():
            self.put(mine, path.read_bytes(), 0o700)

    def up(self, path: Path, there: Path) -> None:
        data = path.read_bytes()
        if not scan(data).frames:           # it is just being written
            return
        half = len(data) // 2
        stages = {"half": data[:half], "hole": data[:half] + b"\0" * 9 + data[half + 9:], "whole": data}
        shown = self.stage.get(there, "")
        stage = {"": "half", "half": "hole" if self.waited_for.is_set() else "half"}.get(shown, "whole")
        if stage != shown and self.due((there, stage), 2.0):
            self.show(there, stages[stage], stage)
            self.stage[there] = stage

    def show(self, there: Path, data: bytes, what: str) -> None:
        if not there.exists() or there.read_bytes() != data:
            self.put(there, data, 0o600)
            self.shown.append(what)

    def put(self, path: Path, data: bytes, mode: int) -> None:
        with path.open("r+b" if path.exists() else "wb") as stream:
            stream.write(data)
        os.chown(path, self.owner.st_uid, self.owner.st_gid)
        path.chmod(mode)


def test_files_that_are_shown_late_and_in_pieces_are_waited_for(cluster: Cluster) -> None:
    late = ("node02", "node03")
    with cluster.hidden(*late):
        server = FileServer(cluster, late)
        server.start()
        process = cluster.begin("says")
        said = ""
        try:
            assert process.stderr is not None
            for line in process.stderr:
                said += line
                if "waiting for" in line:
                    server.waited_for.set()
            out, _ = process.communicate(timeout=120)
        finally:
            process.kill()
            server.over.set()
            server.join()
    assert process.returncode == 0, out + said
    run = cluster.last()
    assert passed(run) == {("says", Status.PASS): 3} and once(run)
    assert Counter(server.shown) == {"half": 2, "hole": 2, "whole": 2}
    assert "waiting for 2 logs that the file server does not show whole yet" in said


# --- in trouble while the job runs ------------------------------------------------------------------------------


def jobs_folder(cluster: Cluster) -> Path:
    return Path(cluster.lab.last_run(), "jobs/1")


def test_a_folder_that_vanishes(cluster: Cluster) -> None:
    process = cluster.begin("later")
    wait_until(lambda: cluster.measured() == ["says"] * 3)
    run = cluster.lab.last_run()
    run.rename(cluster.home / "gone")
    out, err = process.communicate(timeout=180)
    (cluster.home / "gone").rename(run)
    assert process.returncode == 2 and out == "", err
    assert f"/shared/home/hpc/hpcadmin/runs/{run.name}/jobs/1: cannot be read: No such file or directory" in err
    assert "Traceback" not in err
    cluster.all("touch /tmp/go")            # else Slurm gives the job's processes the half of a minute to end
    wait_until(lambda: not cluster.queue())


def test_a_folder_that_this_user_may_not_read_any_more(cluster: Cluster) -> None:
    process = cluster.begin("later")
    wait_until(lambda: cluster.measured() == ["says"] * 3)
    jobs_folder(cluster).chmod(0)
    out, err = process.communicate(timeout=180)
    jobs_folder(cluster).chmod(0o700)
    assert process.returncode == 2, out + err
    assert "jobs/1: cannot be read: Permission denied" in err and "Traceback" not in err
    cluster.all("touch /tmp/go")
    wait_until(lambda: not cluster.queue())
    run = cluster.last()
    assert run.manifest.state == "failed" and "cannot be read: Permission denied" in run.manifest.notes[-1]
    assert passed(run) == {("says", Status.PASS): 3, ("later", Status.NOT_RUN): 3}


def test_what_is_no_log_of_a_node_is_never_read(cluster: Cluster) -> None:
    (cluster.home / "secret").write_text("secret\n")
    process = cluster.begin("later")
    wait_until(lambda: cluster.measured() == ["says"] * 3)
    made = {"node01": ("mkfifo {log}", "is not a regular file"), "node02": ("ln -s /etc/shadow {log}", "is a link"),
            "node03": ("ln {home}/secret {log}", "is known by a second name (a hard link)")}
    for node, (command, _) in made.items():
        log = jobs_folder(cluster) / f"{node}.log"
        log.unlink()
        subprocess.run(["sh", "-c", command.format(log=log, home=cluster.home)], check=True)
    cluster.all("touch /tmp/go")
    out, err = process.communicate(timeout=180)
    assert process.returncode == 3, out + err
    run = cluster.last()
    assert passed(run) == {("says", Status.PASS): 3, ("later", Status.ERROR): 3}
    for verdict in (v for v in run.verdicts if v.status is Status.ERROR):
        (node,) = verdict.subject.nodes
        assert verdict.reason.endswith(f"jobs/1/{node}.log {made[node][1]}")
    assert "Traceback" not in err and "root:" not in out + err + (run.path / "verdicts.jsonl").read_text()


def test_a_jobs_folder_that_is_a_link(cluster: Cluster) -> None:
    process = cluster.begin("later")
    wait_until(lambda: cluster.measured() == ["says"] * 3)
    folder = jobs_folder(cluster)
    folder.rename(cluster.home / "other")
    folder.symlink_to(cluster.home / "other")
    _, err = process.communicate(timeout=180)
    assert process.returncode == 2
    assert "jobs/1: cannot be read: Not a directory" in err or "jobs/1: cannot be read: Too many levels" in err
    cluster.all("touch /tmp/go")
    wait_until(lambda: not cluster.queue())
    done = cluster.lab.sh(str(BIN / "hpcadmin"), "--site", "shared-site.toml", "validate", "--resume",
                          cluster.lab.last_run().name)
    assert done.status == 2 and "jobs/1" in done.err and "is a link" in done.err


# --- clocks -----------------------------------------------------------------------------------------------------

AHEAD, BEHIND = ("#!/bin/sh\nexec /usr/bin/date.real -d '" + by + " seconds' \"$@\"\n" for by in ("+36000", "-36000"))


def test_clocks_that_are_wrong_change_no_verdict_and_are_told(cluster: Cluster) -> None:
    for node, text in (("node02", AHEAD), ("node03", BEHIND)):
        cluster.node(node, "cp /usr/bin/date /usr/bin/date.real; rm /usr/bin/date; cat >/usr/bin/date <<'E'\n"
                     f"{text}E\nchmod 755 /usr/bin/date")
    try:
        done = cluster.validate("sleeps")
    finally:
        cluster.all("mv /usr/bin/date.real /usr/bin/date", ["node02", "node03"])
    assert done.status == 0, done.out + done.err
    run = cluster.last()
    assert run.manifest.notes == (
        "node02: its clock is at least 10.0 h ahead of this host's: times in its outputs are wrong",
        "node03: its clock is at least 10.0 h behind this host's: times in its outputs are wrong")
    assert all(note.partition(": its clock")[0] in done.out for note in run.manifest.notes)
    told = cluster.lab.sh(str(BIN / "hpcadmin"), "--site", "shared-site.toml", "runs", "outputs", "--json").json()
    seconds = {one["node"]: one["seconds"] for one in told["outputs"]}
    assert seconds.keys() == set(NODES) and all(0.9 < value < 3000 for value in seconds.values())
    ahead = {one["node"]: one["started"] for one in told["outputs"]}
    assert 35000 < ahead["node02"] - ahead["node01"] < 37000


# --- large scripts ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("collect", ["shared", "step"])
def test_a_script_that_is_larger_than_slurm_takes(cluster: Cluster, collect: str) -> None:
    with cluster.hidden(*(NODES if collect == "step" else ())):
        done = cluster.validate("long", collect)
    assert done.status == 0, done.out + done.err
    assert passed(cluster.last()) == {(name, Status.PASS): 3 for name in LONG}
    folder = jobs_folder(cluster)
    assert (folder / "script").stat().st_size < 1 << 20
    assert (folder / "script.body").exists() == (collect == "shared")
