"""sweep install: what it writes where, how it quotes, what it leaves alone; slurm.conf line by line."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from hpcadmin.cli import root as command
from hpcadmin.errors import StoreError, UsageError
from hpcadmin.sweep import install, install_slurm, install_write
from hpcadmin.sweep.install import (
    CRON,
    DIGEST_SERVICE,
    DIGEST_TIMER,
    LOGROTATE,
    SERVICE,
    TIMER,
    UNITS,
    Wanted,
    own_files,
)

PLAIN = Wanted("systemd", "/opt/hpcadmin/bin/hpcadmin", "/etc/hpcadmin/site.toml", "root", "root", "02:30",
               "/var/lib/hpcadmin")
LINES = install_slurm.lines("/usr/sbin/hpcadmin-health", 300, "ANY,CYCLE", prolog=False, epilog=False)
BLOCK = ("# BEGIN hpcadmin-health\nHealthCheckProgram=/usr/sbin/hpcadmin-health\nHealthCheckInterval=300\n"
         "HealthCheckNodeState=ANY,CYCLE\n# END hpcadmin-health\n")


def wanted(**more: Any) -> Wanted:
    from dataclasses import replace
    return replace(PLAIN, **more)


def line(text: str | None, key: str) -> str:
    assert text is not None
    (found,) = [one for one in text.splitlines() if one.startswith(f"{key}=")]
    return found.partition("=")[2]


def test_systemd_and_cron_exclude_each_other() -> None:
    units, cron = own_files(PLAIN), own_files(wanted(way="cron"))
    assert {path for path, text in units.items() if text} == {SERVICE, TIMER, DIGEST_SERVICE, DIGEST_TIMER}
    assert {path for path, text in cron.items() if text} == {CRON, LOGROTATE}
    assert set(own_files(None).values()) == {None}
    assert line(units[TIMER], "OnCalendar") == "*-*-* 02:30:00"
    assert line(units[TIMER], "Persistent") == "true" and int(line(units[TIMER], "RandomizedDelaySec")[:-3])
    assert line(units[SERVICE], "ExecStart") == "/opt/hpcadmin/bin/hpcadmin --site /etc/hpcadmin/site.toml sweep"
    assert all(install.is_ours(text) for text in [*units.values(), *cron.values()] if text)


def test_the_digest_in_the_morning() -> None:
    units, cron = own_files(wanted(digest_at="06:05")), own_files(wanted(way="cron", digest_at="06:05"))
    assert line(units[DIGEST_SERVICE], "ExecStart") == (
        "/opt/hpcadmin/bin/hpcadmin --site /etc/hpcadmin/site.toml sweep alarms --digest")
    assert line(units[DIGEST_TIMER], "OnCalendar") == "*-*-* 06:05:00"
    assert line(units[DIGEST_TIMER], "Persistent") == "true"
    assert "SuccessExitStatus" in (units[SERVICE] or "") and "SuccessExitStatus" not in (units[DIGEST_SERVICE] or "")
    assert line(units[DIGEST_SERVICE], "ProtectSystem") == line(units[SERVICE], "ProtectSystem")
    digest, sweeps = (cron[CRON] or "").splitlines()[-2:]
    assert digest.startswith("5 6 * * * root nice ") and " sweep alarms --digest >>" in digest
    assert sweeps.startswith("30 2 * * * root nice ") and " sweep >>" in sweeps
    assert "--digest" not in (own_files(wanted(way="cron", digest_at="never"))[CRON] or "")


def test_what_is_quoted() -> None:
    odd = wanted(site="/a b/%n $x \"q\" \\n 'é'.toml", variables=(("HPCADMIN_DIR", "/c d%"),), state="/c d%")
    service = own_files(odd)[SERVICE]
    assert line(service, "ExecStart").split(" ", 1)[1] == (
        '--site "/a b/%%n $$x \\"q\\" \\\\n \'é\'.toml" sweep')
    assert line(service, "Environment") == '"HPCADMIN_DIR=/c d%%"'
    assert line(service, "ReadWritePaths") == '"-/c d%%"'
    cron = (own_files(wanted(**{**vars(odd), "way": "cron"}))[CRON] or "").splitlines()[-1]
    assert cron.startswith("30 2 * * * root nice ") and "%" not in cron.replace("\\%", "")


@given(st.text(st.characters(exclude_categories=("C", "Z"), include_characters=" "), max_size=30))
def test_the_shell_of_cron_gives_back_the_words(name: str) -> None:
    one = wanted(way="cron", site=f"/{name}")
    if not one.site.isprintable():
        return
    found = (own_files(one)[CRON] or "").split("\n")[-2]
    said = found.split(" ", 6)[6].rpartition(" >>")[0].replace("\\%", "%")
    assert shlex.split(said)[-3:] == ["--site", f"/{name}", "sweep"]


@pytest.mark.parametrize("more", [
    {"program": "hpcadmin"}, {"program": "/a\nb"}, {"program": "/a;b"}, {"program": "/$x"}, {"site": "/a\nUser=x"},
    {"site": "site.toml"}, {"user": "root\nx"}, {"user": "-x"}, {"group": "a b"}, {"at": "24:00"}, {"at": "2:30"},
    {"at": "02:30\n"},
    {"digest_at": "7:30"}, {"digest_at": "Never"}, {"digest_at": ""}, {"digest_at": "07:30\n* * * * * root x"},
    {"state": "rel"}, {"variables": (("PATH", "a"),)}])
def test_what_cannot_be_written_is_refused(more: dict[str, Any]) -> None:
    for way in ("systemd", "cron"):
        with pytest.raises(UsageError):
            own_files(wanted(way=way, **more))


def test_path_of_slurms_commands() -> None:
    assert install.search_path("/usr/bin") == ""
    assert install.search_path("/opt/slurm/bin").endswith(":/bin:/opt/slurm/bin")


def test_systemctl_only_for_what_changed() -> None:
    assert install.systemctl([SERVICE], PLAIN, enabled=True)[0] == ("systemctl", "daemon-reload")
    assert install.systemctl([], PLAIN, enabled=True) == ()
    both = ("hpcadmin-sweep.timer", "hpcadmin-sweep-digest.timer")
    assert install.systemctl([], PLAIN, enabled=False) == tuple(("systemctl", "enable", "--now", one) for one in both)
    assert install.systemctl([], wanted(digest_at="never"), enabled=False) == (
        ("systemctl", "enable", "--now", both[0]),)
    assert install.systemctl([DIGEST_TIMER], PLAIN, enabled=True)[1:] == tuple(
        ("systemctl", verb, one) for one in both for verb in ("enable", "restart"))
    assert install.systemctl([TIMER], None, enabled=False) == (("systemctl", "daemon-reload"),)
    assert install.systemctl([CRON], wanted(way="cron"), enabled=False) == ()


def edit(text: str, lines: install_slurm.Lines = LINES, *, replace: bool = False, **files: str) -> install_slurm.Edited:
    def read(path: str) -> str:
        if Path(path).stem not in files:
            raise StoreError("cannot be read", where=path)
        return files[Path(path).stem]
    return install_slurm.edit(text, lines, read, "/etc/slurm", replace=replace)


BASE = "ClusterName=c\nNodeName=n1 CPUs=1\n"


def test_lines_are_added_once() -> None:
    once = edit(BASE)
    assert once.text == BASE + BLOCK and once.foreign == ()
    assert edit(once.text).text == once.text
    assert install_slurm.taken_back(once.text) == BASE


@pytest.mark.parametrize(("end", "between"), [("", "\n"), ("\\\n", "\n"), ("# a\n\n", "")])
def test_the_last_line_of_the_file(end: str, between: str) -> None:
    text = BASE + "PropagateResourceLimits=NONE " + end
    assert edit(text).text == text + between + BLOCK


@pytest.mark.parametrize("setting", [
    "HealthCheckProgram=/usr/sbin/nhc", "healthcheckprogram = /usr/sbin/nhc # NHC", "  HealthCheckInterval=60"])
def test_others_lines_stand_in_the_way(setting: str) -> None:
    text = f"{setting}\n{BASE}"
    refused = edit(text)
    assert len(refused.foreign) == 1 and "/etc/slurm/slurm.conf:1" in refused.foreign[0]
    put_out = edit(text, replace=True)
    assert put_out.text == f"#before-hpcadmin# {text}{BLOCK}" and put_out.foreign == ()
    assert edit(put_out.text).text == put_out.text
    assert install_slurm.taken_back(put_out.text) == text


@pytest.mark.parametrize("text", ["HealthCheckProgram=\\\n/usr/sbin/nhc\n", "Include more.conf\n"])
def test_what_cannot_become_a_comment_is_left(text: str) -> None:
    found = edit(text + BASE, replace=True, more="HealthCheckProgram=/usr/sbin/nhc\n")
    assert any("nhc" in one for one in found.foreign)


@pytest.mark.parametrize("text", [
    "HealthCheckInterval=60 HealthCheckProgram=/usr/sbin/nhc\n",
    "ClusterName=c \\\nHealthCheckProgram=/usr/sbin/nhc\n"])
def test_what_slurm_cannot_read_is_not_written_to(text: str) -> None:
    with pytest.raises(UsageError, match="conf check"):
        edit(text + BASE, replace=True)


def test_an_include_that_cannot_be_read() -> None:
    with pytest.raises(UsageError, match="cannot be known"):
        edit("Include nothere.conf\n" + BASE)


def test_what_is_there_already_is_not_written_twice() -> None:
    text = BASE + "".join(f"{key}={value}\n" for key, value in LINES)
    assert edit(text).text == text


def test_a_prolog_of_somebody_else_is_never_put_out() -> None:
    lines = install_slurm.lines("/usr/sbin/hpcadmin-health", 300, "ANY", prolog=True, epilog=True)
    found = edit("Prolog=/etc/slurm/prolog\n" + BASE, lines, replace=True)
    assert found.foreign == ("/etc/slurm/slurm.conf:1: Prolog=/etc/slurm/prolog",)
    assert "Epilog=/usr/sbin/hpcadmin-health-epilog\n" in edit(BASE, lines).text


@pytest.mark.parametrize("text", [
    "# BEGIN hpcadmin-health\n", BLOCK + BLOCK,
    "# END hpcadmin-health\n# BEGIN hpcadmin-health\n"])
def test_a_block_that_is_damaged(text: str) -> None:
    with pytest.raises(UsageError, match="by hand"):
        edit(BASE + text)


@pytest.mark.parametrize(("program", "interval", "states"), [
    ("hpcadmin-health", 300, "ANY"), ("/a b", 300, "ANY"), ("/a\nb", 300, "ANY"), ("/a", 0, "ANY"), ("/a", 1, "ANY\n")])
def test_lines_that_mean_something_else(program: str, interval: int, states: str) -> None:
    with pytest.raises(UsageError):
        install_slurm.lines(program, interval, states, prolog=False, epilog=False)


@pytest.fixture
def image(tmp_path: Path) -> Path:
    for name in ("etc/systemd/system", "etc/cron.d", "etc/logrotate.d", "etc/slurm"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def call(image: Path, *argv: str, way: str = "systemd") -> Result:
    import pwd
    user = pwd.getpwuid(os.geteuid()).pw_name
    return CliRunner().invoke(command, ["sweep", "install", "--root", str(image), "--with", way, "--user", user,
                                        "--command", "/usr/bin/hpcadmin", *argv],
                              env={"HPCADMIN_DIR": "/var/lib/hpcadmin"}, catch_exceptions=False, standalone_mode=False)


def tree(image: Path) -> dict[str, str]:
    return {str(path.relative_to(image)): path.read_text() for path in sorted(image.rglob("*")) if path.is_file()}


def test_shown_written_again_and_taken_away(image: Path) -> None:
    assert "--write does it" in call(image).output and tree(image) == {}
    call(image, "--write", "--digest-at", "never")
    assert set(tree(image)) == {SERVICE[1:], TIMER[1:]}
    assert "wrote" in call(image, "--write").output
    assert set(tree(image)) == {path[1:] for path in UNITS}
    assert (image / "var/lib/hpcadmin").stat().st_mode & 0o777 == 0o700
    assert json.loads(call(image, "--write", "--json").output)["changes"] == []
    call(image, "--write", way="cron")
    assert set(tree(image)) == {CRON[1:], LOGROTATE[1:]}
    call(image, "--uninstall", "--write")
    assert tree(image) == {}
    assert "nothing to change" in call(image, "--uninstall", "--write").output


def test_what_prolog_needs_on_the_nodes_is_told(image: Path) -> None:
    """Slurm drains every node on which the file is missing, and from here the nodes cannot be seen."""
    assert "/usr/sbin/hpcadmin-health-prolog must be on every node" in call(image, "--prolog").stderr
    assert call(image).stderr == call(image, "--prolog", "--uninstall").stderr == ""


def test_what_is_not_ours_is_refused_and_stays(image: Path) -> None:
    (image / TIMER[1:]).write_text("[Timer]\n")
    with pytest.raises(StoreError, match="not of hpcadmin"):
        call(image, "--write")
    assert "nothing to change" in call(image, "--uninstall", "--write").output
    assert tree(image) == {TIMER[1:]: "[Timer]\n"}
    (image / TIMER[1:]).unlink()
    (image / SERVICE[1:]).symlink_to("/dev/null")
    with pytest.raises(StoreError, match="masked"):
        call(image, "--write")


def test_slurm_conf_keeps_its_mode_and_a_copy(image: Path) -> None:
    real = image / "etc/slurm/real.conf"
    real.write_bytes(b"ClusterName=c\n# \xff\n")
    real.chmod(0o640)
    link = image / "etc/slurm/slurm.conf"
    link.symlink_to("real.conf")
    said = json.loads(call(image, "--write", "--json", "--slurm-conf", str(link)).output)
    assert link.is_symlink() and real.stat().st_mode & 0o777 == 0o640
    assert real.read_bytes() == b"ClusterName=c\n# \xff\n" + BLOCK.encode()
    (copy,) = said["copies"]
    assert Path(copy).read_bytes() == b"ClusterName=c\n# \xff\n" and Path(copy).stat().st_mode & 0o777 == 0o640
    assert json.loads(call(image, "--write", "--json", "--slurm-conf", str(link)).output)["changes"] == []
    call(image, "--write", "--uninstall", "--slurm-conf", str(link))
    assert real.read_bytes() == b"ClusterName=c\n# \xff\n"


def test_slurm_conf_that_conf_render_writes(image: Path) -> None:
    path = image / "etc/slurm/slurm.conf"
    path.write_text("# slurm.conf of cluster c, Slurm 24.11. Written by hpcadmin conf render.\n" + BASE)
    with pytest.raises(UsageError, match="conf render") as raised:
        call(image, "--write", "--slurm-conf", str(path))
    assert "[hooks]" in str(raised.value)


def test_a_folder_of_somebody_else(image: Path) -> None:
    import pwd
    (image / "var/lib/hpcadmin").mkdir(parents=True)
    me = pwd.getpwuid(os.geteuid())
    other = pwd.struct_passwd((me.pw_name, "x", me.pw_uid + 1, me.pw_gid, "", me.pw_dir, ""))
    with pytest.raises(UsageError, match="belongs to"):
        install_write.plan_folders(image, {"/var/lib/hpcadmin": 0o700}, other)


def test_what_others_may_write_is_not_run_every_night(tmp_path: Path) -> None:
    program = tmp_path / "hpcadmin"
    program.touch()
    program.chmod(0o757)
    with pytest.raises(UsageError, match="every night"):
        install_write.trusted(str(program), "--command", os.geteuid())
    program.chmod(0o755)
    install_write.trusted(str(program), "--command", os.geteuid())
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "open/link").symlink_to(program)
    with pytest.raises(UsageError, match="can be written by others"):
        install_write.trusted(str(tmp_path / "open/link"), "--command", os.geteuid())
    with pytest.raises(UsageError, match="No such file"):
        install_write.trusted(str(tmp_path / "none"), "--command", os.geteuid())


@pytest.mark.deep
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="not installed: systemd-analyze")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    program = tmp_path / "hpc admin"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    for one in (wanted(program=str(program)),
                wanted(program=str(program), site='/a b/%n $x "q" \\n.toml', state="/a %h", user="daemon",
                       writable=("/b c",), variables=(("HPCADMIN_DIR", "/a %h"),))):
        for path, text in own_files(one).items():
            if text:
                (tmp_path / Path(path).name).write_text(text)
        units = [str(tmp_path / Path(path).name) for path in UNITS]
        done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
        said = [line for line in done.stderr.splitlines() if "hpcadmin-sweep" in line]
        assert (done.returncode, said) == (0, []), done.stderr


@pytest.mark.deep
@pytest.mark.skipif(shutil.which("logrotate") is None, reason="not installed: logrotate")
def test_logrotate_takes_its_file(tmp_path: Path) -> None:
    file = tmp_path / "hpcadmin-sweep"
    file.write_text(own_files(wanted(way="cron"))[LOGROTATE] or "")
    done = subprocess.run(["logrotate", "-d", "-s", str(tmp_path / "state"), str(file)], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0 and "error:" not in done.stderr, done.stderr
    assert "/var/log/hpcadmin/sweep.log" in done.stderr
