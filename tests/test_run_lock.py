"""One process watches a run; what a lock left behind keeps nobody out; what is said of runs that nobody watches."""

import errno
import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcadmin import records, run_lock
from hpcadmin.errors import UsageError
from hpcadmin.run import states
from hpcadmin.run_lock import Holder, take, watcher
from hpcadmin.rundata import Manifest
from hpcadmin.slurm.states import Job

HOLD = """
import sys, time
from pathlib import Path
from hpcadmin.run_lock import take
lock = take(Path(sys.argv[1]))
lock.write()
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_lock, "PATIENCE_S", 0.0)


def written(folder: Path, **changes: object) -> None:
    text = {"host": os.uname().nodename, "pid": os.getpid(), "since": "2026-11-30T16:00:00+01:00",
            "started": run_lock._started(os.getpid()), **changes}
    (folder / "lock").write_text(records.dumps(Holder(**text)))  # type: ignore[arg-type]


def test_a_killed_process_leaves_no_lock(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"held\n"
    holder = watcher(tmp_path)
    assert holder is not None and holder.pid == process.pid and run_lock.is_process(holder)
    with pytest.raises(UsageError, match=f"is being watched by process {process.pid} on {holder.host} since 20"):
        take(tmp_path)
    process.kill()
    process.wait()
    process.stdout.close()
    assert watcher(tmp_path) is None
    assert not run_lock.is_process(holder)
    lock = take(tmp_path)
    lock.write()
    assert watcher(tmp_path) is not None
    lock.release()
    lock.release()
    assert watcher(tmp_path) is None


def no_locks(_fd: int, _how: int) -> None:
    raise OSError(errno.ENOLCK, "No locks available")


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", no_locks)
    lock = take(tmp_path)
    assert "has no locks" in lock.warning
    lock.write()
    with pytest.raises(UsageError, match="is being watched"):
        take(tmp_path)
    lock.release()
    written(tmp_path, started="1")              # the number is that of another process now
    take(tmp_path).release()


def test_two_at_one_time_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both find nobody; whoever writes last has it, and the other neither goes on nor wipes out who has it."""
    monkeypatch.setattr(fcntl, "flock", no_locks)
    taken: list[run_lock.RunLock] = []
    monkeypatch.setattr(time, "sleep", lambda _: written(tmp_path, host="elsewhere", pid=7) if not taken else None)
    with pytest.raises(UsageError, match="is being watched by process 7 on elsewhere"):
        taken.append(take(tmp_path))
    assert "elsewhere" in (tmp_path / "lock").read_text()
    (tmp_path / "lock").unlink()
    monkeypatch.setattr(time, "sleep", lambda _: None)
    lock = take(tmp_path)
    lock.write()
    written(tmp_path, host="elsewhere", pid=7)      # after two minutes without a touch
    lock.release()
    assert "elsewhere" in (tmp_path / "lock").read_text()


@pytest.mark.parametrize("locks", [True, False])
def test_another_host_is_told_by_its_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, locks: bool) -> None:
    """A lock that ends at the host, or none: the file is touched as long as somebody watches."""
    if not locks:
        monkeypatch.setattr(fcntl, "flock", no_locks)
    written(tmp_path, host="elsewhere", pid=7)
    with pytest.raises(UsageError, match="watched by process 7 on elsewhere since"):
        take(tmp_path)
    long_ago = time.time() - run_lock.LEFT_S - 5
    os.utime(tmp_path / "lock", (long_ago, long_ago))
    assert watcher(tmp_path) is None
    take(tmp_path).release()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["lock"]


def test_a_held_lock_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_lock, "TOUCH_S", 0.01)
    lock = take(tmp_path)
    lock.write()
    os.utime(tmp_path / "lock", (1, 1))
    end = time.monotonic() + 60
    while (tmp_path / "lock").stat().st_mtime < 10:
        assert time.monotonic() < end
        time.sleep(0.01)
    lock.release()


def test_damage_in_the_lock_keeps_nobody_out(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("{")
    take(tmp_path).release()


class Slurm:
    def find(self, comment: str) -> tuple[Job, ...]:
        assert comment == "hpcadmin:r1:"
        return (Job(12, "PENDING", "Priority"), Job(11, "COMPLETED"), Job(13, "RUNNING"))


def test_what_is_said_of_runs_that_go_on(tmp_path: Path) -> None:
    path = tmp_path / "r1"
    path.mkdir()
    manifest = Manifest("r1", "s", (), "running", "")
    done = Manifest("r0", "s", (), "complete", "")
    both = [(tmp_path / "r0", done), (path, manifest)]
    assert states(both, Slurm()) == {"r1": "interrupted, to be resumed"}  # type: ignore[arg-type]
    lock = take(path)
    lock.write()
    assert states(both, Slurm()) == {"r1": "running (job 12 pending: Priority, job 13 running)"}  # type: ignore[arg-type]
    assert states(both, None) == {"r1": "running"}
    lock.release()


def test_a_lock_of_an_earlier_boot_is_nobody_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same number and the same ticks may come again: where there are no locks, the boot tells."""
    def none(fd: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")
    monkeypatch.setattr(fcntl, "flock", none)
    written(tmp_path, boot=run_lock._boot())
    assert watcher(tmp_path) is not None
    written(tmp_path, boot="another")
    assert watcher(tmp_path) is None
    take(tmp_path).release()
