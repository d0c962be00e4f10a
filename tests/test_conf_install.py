"""conf render -o and --install: all or nothing, backups, links, locks, full disks, signals; never unasked."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import conf_models as m
import pytest

from hpcadmin import conf_install, conf_write, records
from hpcadmin.cli import run
from hpcadmin.conf_write import Change, Plan, plan, recover, write
from hpcadmin.errors import StoreError, UsageError
from hpcadmin.site import Site, SlurmSite

HEAD = "# slurm.conf of cluster t, for Slurm 22.05. Written by hpcadmin conf render.\n"
ROOT = os.geteuid() == 0


def put(folder: Path, **files: str) -> conf_write.Written:
    return write(plan(folder, {name.replace("_", "."): text for name, text in files.items()}))


def content(folder: Path) -> dict[str, str]:
    return {p.name: p.read_text() for p in sorted(folder.iterdir()) if p.is_file()}


def backups(folder: Path) -> list[Path]:
    return sorted(folder.glob(".old-*"))


# What is there is kept.

def test_old_files_are_kept_with_a_manifest_only_where_something_differs(tmp_path: Path) -> None:
    first = put(tmp_path, slurm_conf="A=1\n", gres_conf="# nothing\n")
    assert (first.names, first.backup) == (("gres.conf", "slurm.conf"), None)
    (tmp_path / "slurm.conf").chmod(0o640)
    assert put(tmp_path, slurm_conf="A=1\n", gres_conf="# nothing\n").names == ()
    assert backups(tmp_path) == []
    done = put(tmp_path, slurm_conf="A=2\n", gres_conf="# nothing\n")
    assert done.names == ("slurm.conf",)
    assert done.backup is not None
    assert stat.S_IMODE(done.backup.stat().st_mode) == 0o700
    assert (done.backup / "slurm.conf").read_text() == "A=1\n"
    assert stat.S_IMODE((tmp_path / "slurm.conf").stat().st_mode) == 0o640
    about = json.loads((done.backup / "MANIFEST.json").read_text())["files"]
    assert about["slurm.conf"]["mode"] == "0o640"
    assert set(content(done.backup)) == {"slurm.conf", "MANIFEST.json"}
    again = put(tmp_path, slurm_conf="A=3\n", gres_conf="x\n")
    assert len(backups(tmp_path)) == 2
    assert again.backup != done.backup
    assert (done.backup / "slurm.conf").read_text() == "A=1\n"


def test_a_file_of_ours_that_is_written_no_more_goes_and_others_stay(tmp_path: Path) -> None:
    (tmp_path / "topology.conf").write_text(HEAD.replace("slurm.conf", "topology.conf"))
    (tmp_path / "topology.yaml").write_text("- topology: mine\n")
    (tmp_path / "plugstack.conf").write_text("x\n")
    planned = plan(tmp_path, {"slurm.conf": "A=1\n"})
    assert planned.foreign == ("topology.yaml",)
    done = write(planned)
    assert set(done.names) == {"slurm.conf", "topology.conf"}
    assert set(content(tmp_path)) == {"slurm.conf", "topology.yaml", "plugstack.conf"}
    assert done.backup is not None
    assert (done.backup / "topology.conf").exists()


@pytest.mark.skipif(not ROOT, reason="owners are root's to give")
def test_owner_and_mode_stay_and_secrets_are_the_slurm_users(tmp_path: Path) -> None:
    put(tmp_path, slurm_conf="A=1\n")
    os.chown(tmp_path / "slurm.conf", 12345, 54321)
    (tmp_path / "slurm.conf").chmod(0o604)
    planned = plan(tmp_path, {"slurm.conf": "A=2\n", "slurmdbd.conf": "B=1\n"})
    write(planned, secret=("slurmdbd.conf",), owner="daemon")
    found = (tmp_path / "slurm.conf").stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (12345, 54321, 0o604)
    secret = (tmp_path / "slurmdbd.conf").stat()
    assert (secret.st_uid, stat.S_IMODE(secret.st_mode)) == (1, 0o600)
    (tmp_path / "slurmdbd.conf").chmod(0o644)
    write(plan(tmp_path, {"slurm.conf": "A=2\n", "slurmdbd.conf": "B=2\n"}), secret=("slurmdbd.conf",))
    assert stat.S_IMODE((tmp_path / "slurmdbd.conf").stat().st_mode) == 0o600
    with pytest.raises(StoreError, match="not known here"):
        write(Plan(tmp_path, (Change("gres.conf", None, b"x"),)), secret=("gres.conf",), owner="nobody-of-that-name")
    assert not (tmp_path / "gres.conf").exists()


# All or nothing.

def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, error: BaseException, nth: int = 2) -> None:
    """Writing over two files and making a third, with the nth call of Path.`what` going wrong."""
    put(tmp_path, slurm_conf="A=1\n", gres_conf="B=1\n")
    before = content(tmp_path)
    real = getattr(Path, what)
    calls = 0

    def wrong(self: Path, *args: object, **kwargs: object) -> object:
        nonlocal calls
        calls += 1
        if calls == nth:
            raise error
        return real(self, *args, **kwargs)
    with monkeypatch.context() as patch:
        patch.setattr(Path, what, wrong)
        with pytest.raises((StoreError, KeyboardInterrupt)):
            put(tmp_path, slurm_conf="A=2\n", gres_conf="B=2\n", cgroup_conf="C=2\n")
    assert content(tmp_path) == before
    assert backups(tmp_path) == []


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_a_rename_that_fails_puts_everything_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int) -> None:
    broken(tmp_path, monkeypatch, "rename", OSError(5, "Input/output error"), nth)


def test_ctrl_c_before_the_change_leaves_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(tmp_path, monkeypatch, "mkdir", KeyboardInterrupt(), 2)


def test_a_file_that_changed_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    put(tmp_path, slurm_conf="A=1\n")
    planned = plan(tmp_path, {"slurm.conf": "A=2\n", "gres.conf": "x\n"})
    (tmp_path / "slurm.conf").write_text("A=by hand\n")
    with pytest.raises(StoreError, match=r"slurm\.conf: has changed meanwhile"):
        write(planned)
    assert content(tmp_path) == {"slurm.conf": "A=by hand\n"}


KILLED = """
import os, sys
from pathlib import Path
from hpcadmin.conf_write import plan, write
real = Path.rename
def once(self, target):
    real(self, target)
    os.kill(os.getpid(), 9)
Path.rename = once
write(plan(Path(sys.argv[1]), {"slurm.conf": "A=2\\n", "gres.conf": "B=2\\n"}))
"""


def test_after_a_kill_in_the_middle_the_old_files_come_back(tmp_path: Path) -> None:
    put(tmp_path, slurm_conf="A=1\n", gres_conf="B=1\n")
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert content(tmp_path)["gres.conf"] == "B=2\n"
    assert content(tmp_path)["slurm.conf"] == "A=1\n"
    assert recover(tmp_path) == ("gres.conf",)
    assert content(tmp_path) == {"slurm.conf": "A=1\n", "gres.conf": "B=1\n"}
    assert backups(tmp_path) == []
    assert recover(tmp_path) == ()


def test_a_backup_that_cannot_be_told_is_left_for_the_admin(tmp_path: Path) -> None:
    (tmp_path / ".old-x").mkdir()
    (tmp_path / ".old-x" / "UNFINISHED").write_text("")
    (tmp_path / ".old-x" / "MANIFEST.json").write_text("[1")
    with pytest.raises(StoreError, match="cannot be put back"):
        put(tmp_path, slurm_conf="A=1\n")
    assert not (tmp_path / "slurm.conf").exists()


def test_signals_wait_until_the_files_are_in_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, slurm_conf="A=1\n", gres_conf="B=1\n")
    real = Path.rename

    def slow(self: Path, target: Path) -> Path:
        os.kill(os.getpid(), signal.SIGINT)
        return real(self, target)
    monkeypatch.setattr(Path, "rename", slow)
    with pytest.raises(KeyboardInterrupt):
        put(tmp_path, slurm_conf="A=2\n", gres_conf="B=2\n")
        time.sleep(1)
    assert content(tmp_path) == {"slurm.conf": "A=2\n", "gres.conf": "B=2\n"}


def test_two_at_once(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    try:
        with pytest.raises(StoreError, match="another hpcadmin writes there"):
            put(tmp_path, slurm_conf="A=1\n")
    finally:
        os.close(fd)
    assert content(tmp_path) == {}
    assert put(tmp_path, slurm_conf="A=1\n").names == ("slurm.conf",)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if not ROOT:
        pytest.skip("mounting a small file system needs root")
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=755", "tmpfs", str(place)], check=False,
                          capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_changes_nothing(small_disk: Path) -> None:
    put(small_disk, slurm_conf="A=1\n" * 2000, gres_conf="B=1\n" * 100)
    before = content(small_disk)
    with pytest.raises(StoreError, match=r"No space left on device.*nothing was changed"):
        put(small_disk, slurm_conf="A=2\n" * 2000, gres_conf="B=2\n" * 20000)
    assert content(small_disk) == before
    assert backups(small_disk) == []
    with (small_disk / "filler").open("wb", buffering=0) as stream, pytest.raises(OSError, match="No space"):
        while True:                                         # until not a byte is left
            stream.write(b"x" * 4096)
    with pytest.raises(StoreError, match="No space"):
        put(small_disk, slurm_conf="A=3\n", gres_conf="B=3\n")
    (small_disk / "filler").unlink()
    assert content(small_disk) == before
    assert list(small_disk.glob(".*")) == []


def test_a_read_only_disk_changes_nothing(small_disk: Path) -> None:
    put(small_disk, slurm_conf="A=1\n")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StoreError, match="Read-only file system"):
        put(small_disk, slurm_conf="A=2\n")
    assert content(small_disk) == {"slurm.conf": "A=1\n"}


def test_what_may_not_be_written_is_told_before_anything_is_asked(small_disk: Path,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    put(small_disk, slurm_conf="A=1\n", gres_conf="B=1\n")
    changes = plan(small_disk, {"slurm.conf": "A=2\n", "gres.conf": "B=2\n"}).changes
    conf_write.may_write(small_disk, changes)
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    with pytest.raises(StoreError, match=r"gres\.conf: belongs to root:root and must stay so"):
        conf_write.may_write(small_disk, changes)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StoreError, match="read-only file system; nothing was changed"):
        conf_write.may_write(small_disk, changes)


def test_a_folder_of_others_is_told_before_the_difference(place: Path, monkeypatch: pytest.MonkeyPatch,
                                                          capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "access", lambda *_, **__: False)
    assert run(["conf", "render", "--install"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"{place}/live: cannot be written: no permission" in err


@pytest.mark.parametrize("kind", ["link", "dangling", "folder", "fifo"])
def test_what_is_no_plain_file_is_neither_replaced_nor_followed(tmp_path: Path, kind: str) -> None:
    elsewhere, folder = tmp_path / "real.conf", tmp_path / "out"
    elsewhere.write_text("real\n")
    folder.mkdir()
    {"link": lambda: (folder / "slurm.conf").symlink_to(elsewhere),
     "dangling": lambda: (folder / "slurm.conf").symlink_to(tmp_path / "none"),
     "folder": (folder / "slurm.conf").mkdir,
     "fifo": lambda: os.mkfifo(folder / "slurm.conf")}[kind]()
    with pytest.raises(StoreError, match=r"slurm\.conf: is "):
        put(folder, slurm_conf="A=1\n")
    assert elsewhere.read_text() == "real\n"
    assert not (tmp_path / "none").exists()


# Where Slurm reads.

def live_site(folder: Path) -> Site:
    return Site(slurm=SlurmSite(conf_dir=str(folder)))


def test_no_way_leads_to_a_live_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    live = tmp_path / "live"
    (live / "sub").mkdir(parents=True)
    (tmp_path / "link").symlink_to(live)
    (tmp_path / "up").symlink_to(tmp_path)
    (live / "out").symlink_to(tmp_path / "free")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "other" / "slurm.conf"))
    for name in ("live", "live/sub", "live/new/deep", "link", "link/sub/x", "up/link", "live/../live", "other"):
        with pytest.raises(UsageError, match="which Slurm reads"):
            conf_install.refuse_live(tmp_path / name, live_site(live))
    for name in ("free", "live2", "."):
        conf_install.refuse_live(tmp_path / name, live_site(live))
    conf_install.refuse_live(tmp_path / "free", live_site(tmp_path / "missing"))


@pytest.mark.skipif(not ROOT, reason="a bind mount needs root")
def test_a_bind_mount_of_a_live_folder_is_one(tmp_path: Path) -> None:
    live, other = tmp_path / "live", tmp_path / "other"
    live.mkdir()
    other.mkdir()
    done = subprocess.run(["mount", "--bind", str(live), str(other)], check=False, capture_output=True)
    if done.returncode != 0:
        pytest.skip("no bind mount can be made here")
    try:
        with pytest.raises(UsageError, match="which Slurm reads"):
            conf_install.refuse_live(other / "new", live_site(live))
    finally:
        subprocess.run(["umount", str(other)], check=True)


# The password.

def test_the_password_is_put_in_and_shown_nowhere(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("s3cret!pw\n")
    secret.chmod(0o600)
    text = conf_install.with_password("DbdHost=a\nStorageUser=slurm\n\nX=1\n", secret)
    assert text == "DbdHost=a\nStorageUser=slurm\nStoragePass=s3cret!pw\n\nX=1\n"
    (tmp_path / "slurmdbd.conf").write_text('DbdHost=b StoragePass="old one" StorageUser=x\nstoragepass = older\n')
    shown = "\n".join(conf_install.difference(plan(tmp_path, {"slurmdbd.conf": text})))
    assert "+StoragePass=*****" in shown
    assert 'StorageUser=x' in shown
    for word in ("s3cret", "old one", "older", "one\""):
        assert word not in shown


@pytest.mark.parametrize(("raw", "mode", "word"), [
    ("", 0o600, "one line"), ("\n", 0o600, "one line"), ("a\nb\n", 0o600, "one line"), ("a b", 0o600, "character"),
    ("a#b", 0o600, "character"), ("pässword", 0o600, "character"), ("x" * 2000, 0o600, "one line"),
    ("fine", 0o640, "chmod 600"), ("fine", 0o604, "chmod 600"), ('a"b', 0o600, "character"),
])
def test_a_bad_password_file_is_one_line_without_the_password(tmp_path: Path, raw: str, mode: int, word: str) -> None:
    secret = tmp_path / "password"
    secret.write_text(raw)
    secret.chmod(mode)
    with pytest.raises(StoreError, match=word) as info:
        conf_install.with_password("StorageUser=slurm\n", secret)
    assert not raw.strip() or raw.strip() not in str(info.value)
    secret.unlink()
    with pytest.raises(StoreError, match="cannot be read"):
        conf_install.with_password("StorageUser=slurm\n", secret)


# The command line.

@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HPCADMIN_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("HPCADMIN_SITE", raising=False)
    monkeypatch.delenv("SLURM_CONF", raising=False)
    (tmp_path / "live").mkdir()
    (tmp_path / "site.toml").write_text('[cluster]\nname = "thinktank"\ncontrollers = ["head(10.0.0.1)"]\n'
                                        f'[slurm]\nconf_dir = "{tmp_path}/live"\n')
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "inventory.json").write_text(records.dumps(m.inventory((m.names("node", 4), m.H100))))
    return tmp_path


def test_nothing_is_installed_unless_asked_and_answered(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["conf", "render"]) == 0
    assert run(["conf", "render", "-o", "live"]) == 2
    assert "which Slurm reads (--install" in capsys.readouterr().err
    assert run(["conf", "render", "--install"]) == 2              # nobody answers
    assert "--yes" in capsys.readouterr().err
    assert content(place / "live") == {}
    assert run(["conf", "render", "--install", "--yes"]) == 0
    out = capsys.readouterr().out
    assert f"{place}/live/slurm.conf: new, " in out
    assert f"wrote {place}/live/slurm.conf" in out
    assert set(content(place / "live")) == {"slurm.conf", "gres.conf", "cgroup.conf"}
    assert run(["conf", "render", "--install", "--yes"]) == 0
    assert "nothing to change" in capsys.readouterr().out
    assert backups(place / "live") == []


def test_the_difference_comes_first_and_what_it_takes(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["conf", "render", "--install", "--yes"]) == 0
    (place / "live" / "slurm.conf").write_text(
        (place / "live" / "slurm.conf").read_text().replace("ReturnToService=1", "ReturnToService=0"))
    capsys.readouterr()
    assert run(["conf", "render", "--install", "live", "--yes"]) == 0
    out = capsys.readouterr().out
    assert "-ReturnToService=0\n+ReturnToService=1\n" in out
    assert out.index("+ReturnToService=1") < out.index("wrote ")
    assert "scontrol reconfigure" in out
    assert "what was there is in " in out


def test_what_would_stop_a_daemon_is_not_installed(place: Path, capsys: pytest.CaptureFixture[str],
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    from hpcadmin.conf.check import run as runner
    from hpcadmin.conf.check.finding import Finding, Severity
    monkeypatch.setattr(runner, "judge", lambda *_: runner.Result((Finding(Severity.FATAL, "it dies", rule="x.y"),)))
    assert run(["conf", "render", "--install", "--yes"]) == 1
    error = capsys.readouterr().err
    assert "FATAL: it dies [x.y]" in error
    assert "nothing installed" in error
    assert content(place / "live") == {}


@pytest.mark.parametrize("args", [["--install", "none"], ["--install", "--json"], ["--install", "-o", "x"], ["--yes"],
                                  ["--install", "--explain"]])
def test_wrong_usage(place: Path, args: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["conf", "render", *args]) == 2
    assert content(place / "live") == {}
    assert not (place / "none").exists()
    assert capsys.readouterr().err.strip()


def test_slurmdbd_conf_gets_its_password_where_it_is_installed_and_nowhere_else(
        place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = (place / "site.toml").read_text()
    (place / "site.toml").write_text(site + '[accounting]\nhost = "ctl1"\nslurmdbd = true\n')
    assert run(["conf", "render", "--install", "--yes"]) == 2
    assert "StoragePass" in capsys.readouterr().err
    (place / "pw").write_text("hunter2hunter2\n")
    (place / "pw").chmod(0o600)
    (place / "site.toml").write_text(
        site + '[slurm.options]\nSlurmUser = "root"\n[accounting]\nhost = "ctl1"\nslurmdbd = true\n'
        f'password_file = "{place}/pw"\n')
    said = ""
    for args in ([], ["-o", "out"], ["--explain"], ["--json"], ["--install", "--yes"]):
        assert run(["conf", "render", *args]) == 0, args
        captured = capsys.readouterr()
        said += captured.out + captured.err
    assert "hunter2" not in said
    assert "hunter2" not in (place / "out" / "slurmdbd.conf").read_text()
    assert stat.S_IMODE((place / "out" / "slurmdbd.conf").stat().st_mode) == 0o600
    installed = place / "live" / "slurmdbd.conf"
    assert "StoragePass=hunter2hunter2\n" in installed.read_text()
    assert stat.S_IMODE(installed.stat().st_mode) == 0o600


def test_an_output_folder_keeps_what_was_there(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["conf", "render", "-o", "out"]) == 0
    assert run(["conf", "render", "-o", "out", "--comments"]) == 0
    out = capsys.readouterr().out
    assert "what was there is in " in out
    assert len(backups(place / "out")) == 1


def test_no_folder_and_no_absolute_one_are_said(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option in (["-o", ""], ["--install="]):
        assert run(["conf", "render", *option]) == 2
        assert "an empty text names no folder" in capsys.readouterr().err
    text = (place / "site.toml").read_text()
    (place / "site.toml").write_text(re.sub(r"conf_dir = .*", 'conf_dir = "live"', text))
    assert run(["conf", "render", "--install", "--yes"]) == 2
    assert re.search(r"site\.toml:\d+: \[slurm\] conf_dir = 'live' is not an absolute path", capsys.readouterr().err)


def test_a_backup_that_cannot_be_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of root, to somebody else: whether something is to be put back is not known, so nothing is written."""
    (tmp_path / ".old-20261130T000000Z").mkdir()
    lstat = Path.lstat

    def denied(path: Path) -> os.stat_result:
        if path.name == conf_write.UNFINISHED:
            raise PermissionError(13, "Permission denied", str(path))
        return lstat(path)
    monkeypatch.setattr(Path, "lstat", denied)
    with pytest.raises(StoreError, match="not known: Permission denied") as caught:
        conf_write.tidy(tmp_path)
    assert caught.value.hint == "run it as root"
