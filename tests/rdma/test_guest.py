"""The harness of the guests, with a stand-in for virtme-ng: nothing is booted here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import guest


def stand_in(folder: Path, body: str) -> str:
    path = folder / "vng"
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def two(scratch: Path, vng: str) -> tuple[guest.Guest, guest.Guest]:
    shared = scratch / "shared"
    shared.mkdir()
    one, other = (guest.Guest(name, shared, Path("/boot/vmlinuz"), vng, (), guest.cable(scratch / "cable", end))
                  for end, name in enumerate(("n1", "n2")))
    return one, other


def alive(pid_file: Path) -> bool:
    try:
        os.kill(int(pid_file.read_text(encoding="utf-8")), 0)
    except ProcessLookupError:
        return False
    return True


def test_the_newest_kernel_with_soft_roce_is_taken(tmp_path: Path) -> None:
    boot, modules = tmp_path / "boot", tmp_path / "modules"
    boot.mkdir()
    for version, has in (("6.1.0-9-amd64", True), ("6.1.0-57-amd64", True), ("6.12.0-1-cloud", False)):
        (boot / f"vmlinuz-{version}").touch()
        folder = (modules / version / guest.RXE_MODULE).parent
        folder.mkdir(parents=True)
        if has:
            (folder / "rdma_rxe.ko.xz").touch()
    assert [k.name for k in guest.kernels(boot, modules)] == ["vmlinuz-6.1.0-57-amd64", "vmlinuz-6.1.0-9-amd64"]


def test_what_is_missing_is_said_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(guest.shutil, "which", lambda name, path=None: None if name == "ib_write_bw" else name)
    monkeypatch.setattr(guest, "kernels", lambda: [])
    monkeypatch.setattr(guest, "find_vng", lambda: None)
    assert guest.missing() == ("not installed: ib_write_bw (perftest), a kernel in /boot with rdma_rxe.ko "
                               "(linux-image-amd64), vng (pip install virtme-ng)")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "not root" in guest.missing()


def test_settings_stay_data(tmp_path: Path) -> None:
    path = tmp_path / "settings"
    guest.write_settings(path, {"REPOSITORY": "/a b/$(touch x)'"})
    told = subprocess.run(["sh", "-c", '. "$1"; printf %s "$REPOSITORY"', "sh", str(path)], capture_output=True,
                          text=True, check=True)
    assert told.stdout == "/a b/$(touch x)'"


def test_command_line(tmp_path: Path) -> None:
    one, other = two(tmp_path, "/opt/vng")
    argv = one.argv(["sh", "/a b/guest.sh"])
    assert argv[0] == "/opt/vng"
    assert argv[-2:] == ["--", "sh '/a b/guest.sh'"]
    assert f"--rwdir={tmp_path}/shared" in argv
    assert "--rw" not in argv                       # the machine's own files stay as they are
    assert "server=on" in " ".join(argv)
    assert "server=off" in " ".join(other.argv(["true"]))


@pytest.mark.deep
def test_it_is_over_when_the_first_guest_ends(tmp_path: Path) -> None:
    body = f'touch "{tmp_path}/cable"\n' \
           f'case "$*" in *"--name n1"*) until [ -s "{tmp_path}/n2.pid" ]; do sleep 0.1; done; exit 7 ;; esac\n' \
           f'echo $$ >"{tmp_path}/n2.pid"; sleep 100 & wait'
    one, other = two(tmp_path, stand_in(tmp_path, body))
    boot = guest.run_two(one, other, ["true"], tmp_path, socket=tmp_path / "cable", timeout_s=90)
    assert (boot.exit_status, boot.timed_out) == (7, False)
    assert boot.seconds < 60
    assert not alive(tmp_path / "n2.pid")


@pytest.mark.deep
def test_a_guest_that_hangs_is_killed_with_all_it_started(tmp_path: Path) -> None:
    body = f'echo $$ >"{tmp_path}/leader.pid"\nsleep 100 &\necho $! >"{tmp_path}/child.pid"\nwait'
    one, other = two(tmp_path, stand_in(tmp_path, body))
    boot = guest.run_two(one, other, ["true"], tmp_path, socket=tmp_path / "cable", timeout_s=1.0)
    assert boot.timed_out
    assert not alive(tmp_path / "leader.pid")
    status = Path(f"/proc/{(tmp_path / 'child.pid').read_text(encoding='utf-8').strip()}/stat")
    assert not status.exists() or ") Z " in status.read_text(encoding="utf-8")
