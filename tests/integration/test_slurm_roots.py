"""Where the roots of other Slurms come from: the machine's own apt sources, and nothing half made."""

from __future__ import annotations

from pathlib import Path

import pytest
import slurm_roots
from slurm_roots import Absent, Mirror, apt_sources, find_mirror, whole

from hpcadmin.proof.parts import Slurm

pytestmark = pytest.mark.lab

DEB822 = """\
# a comment
Types: deb deb-src
URIs: http://mirror.example/debian
Suites: bookworm
 bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/own.gpg

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main

Types: deb
URIs: http://security.example/debian-security
Suites: bookworm-security
Components: main
"""
NAMED = slurm_roots.PACKAGES.split(",")
ONE_LINE = """\
# deb http://commented.example/debian bookworm main
deb [arch=amd64 signed-by=/etc/apt/own.gpg] http://lines.example/debian bookworm main contrib   # ours
deb-src http://source.example/debian bookworm main
deb http://extra.example/debian stable non-free
"""


@pytest.fixture(autouse=True)
def bookworm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_roots, "_os_release", lambda: "ID=debian\nVERSION_CODENAME=bookworm\n")


@pytest.mark.parametrize(("name", "text", "mirror"), [
    ("sources.list.d/debian.sources", DEB822, Mirror("http://mirror.example/debian", "/usr/share/keyrings/own.gpg")),
    ("sources.list", ONE_LINE, Mirror("http://lines.example/debian", "/etc/apt/own.gpg")),
    ("sources.list.d/own.list", "deb https://a.example/d/ bookworm main\n",
     Mirror("https://a.example/d/", slurm_roots.KEYRING)),
])
def test_the_mirror_of_the_machine(tmp_path: Path, name: str, text: str, mirror: Mirror) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    assert find_mirror(apt_sources(tmp_path)) == mirror


def test_no_mirror_where_no_source_has_debian(tmp_path: Path) -> None:
    (tmp_path / "sources.list").write_text("deb http://other.example/tool stable main\n".replace("stable", "tool"))
    assert find_mirror(apt_sources(tmp_path)) is None


def test_half_made_roots_are_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "sid"
    (root / "var/lib/dpkg").mkdir(parents=True)
    (root / "usr").mkdir()
    assert not whole(root)
    status = root / "var/lib/dpkg/status"
    ours = "".join(f"Package: {name}\nEssential: no\nStatus: install ok installed\n\n" for name in NAMED)
    status.write_text(ours)
    assert whole(root)
    status.write_text(f"{ours}Package: a\nStatus: install ok unpacked\n")
    assert not whole(root)
    status.write_text(ours.replace("slurmdbd", "other"))            # made when fewer packages were asked for
    assert not whole(root)
    monkeypatch.setenv("HPCADMIN_SLURM_ROOTS", str(tmp_path))
    assert slurm_roots._ready("sid") is None


def test_a_root_of_other_packages_is_made_anew_and_kept_until_then(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCADMIN_SLURM_ROOTS", str(tmp_path))
    found = Slurm((26, 5), "26.05.5", str(tmp_path / "sid"))
    monkeypatch.setattr(slurm_roots, "find", lambda root="": found)
    status = tmp_path / "sid/var/lib/dpkg/status"
    status.parent.mkdir(parents=True)
    (tmp_path / "sid/usr").mkdir()
    status.write_text("".join(f"Package: {name}\nStatus: install ok installed\n\n" for name in NAMED))
    assert slurm_roots._ready("sid") is found
    assert slurm_roots.marker("sid").read_text() == f"26.05.5\n{slurm_roots.PACKAGES}\n"
    status.write_text("")                                               # a marked one is not looked through again
    assert slurm_roots._ready("sid") is found
    monkeypatch.setattr(slurm_roots, "PACKAGES", f"{slurm_roots.PACKAGES},other")
    assert slurm_roots._ready("sid") is None
    monkeypatch.setattr(slurm_roots, "apt_sources", lambda: [])
    made = slurm_roots._make("sid")
    assert isinstance(made, Absent)
    assert status.exists() and slurm_roots.marker("sid").exists()


def test_without_a_network_the_reason_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCADMIN_SLURM_ROOTS", str(tmp_path))
    monkeypatch.setattr(slurm_roots, "apt_sources",
                        lambda: [{"uri": "http://127.0.0.1:9/debian", "suites": "bookworm", "components": "main",
                                  "signed-by": ""}])
    slurm_roots.slurm.cache_clear()
    try:
        found = slurm_roots.slurm("sid")
    finally:
        slurm_roots.slurm.cache_clear()
    assert isinstance(found, Absent)
    assert found.why.startswith("debootstrap")
    assert [p.name for p in tmp_path.iterdir()] == ["sid.lock"]
