"""Seals of run folders: what was changed is named, links are never followed, signatures of OpenSSH."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import names, node_results, with_logs, write_run

from hpcadmin import cli, seal
from hpcadmin.errors import StoreError
from hpcadmin.seal import SEAL, Seal, file_digest, look, make_seal, parse_seal, seal_text, verify, write_seal
from hpcadmin.seal_sign import Trust, check, sign

WHEN = "2026-07-30T10:15:00+02:00"
NAME = "20260730-101500-network"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HPCADMIN_DIR", str(tmp_path))
    monkeypatch.delenv("HPCADMIN_SITE", raising=False)
    monkeypatch.chdir(tmp_path)
    folder = with_logs(write_run(tmp_path / "runs" / NAME, node_results(names(4)), names(4)))
    (folder / "jobs/2/node01.log").write_bytes(b"raw\xff\n")
    return folder


def call(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    status = cli.run(["runs", *args])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return status, out, err


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "admin", "-f", str(path)], check=True)
    return path


def signers(tmp_path: Path, key: Path, name: str = "admin@site") -> Path:
    path = tmp_path / "signers"
    path.write_text(f"{name} {key.with_suffix('.pub').read_text()}")
    return path


def test_a_sealed_run_is_as_it_was_sealed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "verify")[:2] == (
        3, f"{NAME}: not sealed, so that nothing can be said (hpcadmin runs seal {NAME})\n")
    assert call(capsys, "seal")[0] == 0
    status, out, _ = call(capsys, "verify")
    assert (status, "shows damage, not tampering" in out, "as it was sealed" in out) == (0, True, True)
    digest = subprocess.run(["sha256sum", run / "SHA256SUMS"], capture_output=True, text=True, check=True).stdout[:64]
    assert json.loads(call(capsys, "verify", "--json")[1])["digest"] == digest
    done = subprocess.run(["sha256sum", "-c", "--strict", "--quiet", "SHA256SUMS"], cwd=run, capture_output=True,
                          check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_good_run_in_the_place_of_a_bad_one(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call(capsys, "seal")
    other = run.with_name("20261101-000000-network")
    run.rename(other)
    status, out, _ = call(capsys, "verify", other.name)
    assert (status, out.split("\n")[0]) == (1, f"sealed as another run: {NAME}")
    assert json.loads(call(capsys, "verify", other.name, "--json")[1])["sealed_as"] == NAME
    assert call(capsys, "seal", other.name)[0] == 2
    assert call(capsys, "export", other.name, "-o", str(tmp_path / "x"))[0] == 2


def test_each_kind_of_damage_is_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call(capsys, "seal")
    (run / "verdicts.jsonl").write_text("")
    (run / "limits.json").unlink()
    (run / "jobs/2/new.log").write_text("more")
    (run / "inventory.json").rename(run / "kept")
    (run / "inventory.json").symlink_to("kept")
    os.mkfifo(run / "pipe")
    status, out, _ = call(capsys, "verify")
    assert status == 1
    assert out.splitlines()[:6] == ["changed: verdicts.jsonl", "missing: limits.json", "added: jobs/2/new.log",
                                    "added: kept", "inventory.json is a link", "pipe is not a regular file"]
    found = json.loads(call(capsys, "verify", "--json")[1])
    assert (found["result"], found["exit_status"], found["missing"]) == ("damaged", 1, ["limits.json"])
    assert "does not fit any more" in call(capsys, "seal")[2]


def test_a_single_bit_of_every_file_counts(run: Path) -> None:
    sealed = write_seal(run, NAME, WHEN)
    for path in sealed.files:
        raw = (run / path).read_bytes()
        if not raw:
            continue
        (run / path).write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
        assert verify(sealed, look(run)).changed == (path,)
        (run / path).write_bytes(raw)
    assert verify(sealed, look(run)).sound


def test_what_changes_after_the_end_is_no_part_of_it(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call(capsys, "seal")
    for name in ("lock", "marks.json", "validate.log", "report.html"):
        (run / name).write_text("x")
    (run / "jobs/2/slurm.out").write_text("slurmstepd: error: *** JOB 7 CANCELLED")
    (run / "handover").mkdir()
    (run / "handover/page.html").write_text("x")
    status, out, _ = call(capsys, "verify")
    assert (status, "not part of the seal: handover, report.html" in out) == (0, True)
    (run / "jobs/report.html").write_text("x")
    assert call(capsys, "verify")[0] == 1


@pytest.mark.parametrize("name", [".SHA256SUMS.sig.77.tmp", ".SHA256SUMS.77.tmp", ".marks.json.77.tmp",
                                  ".report.xlsx.77.tmp", ".verdicts.jsonl.77.tmp"])
def test_what_somebody_who_was_killed_left_half_written_is_no_damage(run: Path, name: str,
                                                                     capsys: pytest.CaptureFixture[str]) -> None:
    """Of what is no part of a seal; half a file of the run is one that was not sealed."""
    assert call(capsys, "seal", run.name)[0] == 0
    (run / name).write_text("half")
    status, out, _ = call(capsys, "verify", run.name)
    part = "verdicts" in name
    assert (status, f"added: {name}" in out, f"not part of the seal: {name}" in out) == (int(part), part, not part)
    assert call(capsys, "seal", run.name)[0] == (2 if part else 0)


def test_a_link_is_not_followed_and_has_its_place_in_the_seal(run: Path, tmp_path: Path,
                                                              capsys: pytest.CaptureFixture[str]) -> None:
    """Nodes write into the folders of jobs: what they leave there is no reason to have no seal."""
    (tmp_path / "secret").write_text("secret")
    (run / "jobs/3").symlink_to(tmp_path)
    (run / "jobs/4").symlink_to("x")
    os.mkfifo(run / "jobs/a\nb\\")
    assert call(capsys, "seal")[0] == 0
    assert call(capsys, "verify")[0] == 0
    assert set(look(run).odd) == {"jobs/3", "jobs/4", "jobs/a\nb\\"}
    done = subprocess.run(["sha256sum", "-c", "--strict", "--quiet", "SHA256SUMS"], cwd=run, capture_output=True,
                          check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    (run / "jobs/4").unlink()
    (run / "jobs/3").unlink()
    os.mkfifo(run / "jobs/3")
    (run / "jobs/5").symlink_to("x")
    out = call(capsys, "verify")[1]
    assert out.splitlines()[:2] == ["jobs/3 is not a regular file", "jobs/5 is a link"]
    (run / "SHA256SUMS").rename(tmp_path / "sums")
    (run / "SHA256SUMS").symlink_to(tmp_path / "sums")
    assert call(capsys, "verify")[0] == 1


def test_a_running_run_is_not_sealed(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (run / "manifest.json").read_text()
    (run / "manifest.json").write_text(text.replace('"complete"', '"running"'))
    assert "is not over" in call(capsys, "seal")[2]


def test_too_many_files_and_too_deep(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = run / "/".join("d" * 1 for _ in range(20))
    deep.mkdir(parents=True)
    assert list(look(run).odd.values()) == ["is nested too deeply"]
    shutil.rmtree(run / "d")
    monkeypatch.setattr(seal, "MAX_FILES", 3)
    with pytest.raises(StoreError, match="more than 3 files"):
        look(run)


def test_a_file_that_grows_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"x" * 10)
    real = os.read

    def growing(fd: int, size: int) -> bytes:
        with path.open("ab") as stream:
            stream.write(b"y")
        return real(fd, size)
    monkeypatch.setattr(os, "read", growing)
    with pytest.raises(StoreError, match="changes while it is read"):
        file_digest(path)


@given(st.dictionaries(st.binary(min_size=1, max_size=20).filter(lambda b: b"\0" not in b), st.binary(max_size=3),
                       max_size=6))
def test_any_name_comes_back(files: dict[bytes, bytes]) -> None:
    made = Seal(NAME, WHEN, {os.fsdecode(n): (v.hex() or "0").rjust(64, "0") for n, v in files.items()})
    again = parse_seal(seal_text(made))
    assert (again.files, again.run_id, again.sealed) == (made.files, NAME, WHEN)


@pytest.mark.parametrize("text", [
    b"", b"x", b"\n", b"# hpcadmin seal 1\n", b"# hpcadmin seal 2\n# run a\n# sealed b\n",
    b"# hpcadmin seal 1\n# run a\n# sealed b\n" + b"0" * 64 + b"  a\n" + b"0" * 64 + b"  a\n",
    b"# hpcadmin seal 1\n# run a\n# sealed b\n" + b"0" * 63 + b"  a\n",
    b"# hpcadmin seal 1\n# run a\n# sealed b\n" + b"0" * 64 + b"  a",
    b"# hpcadmin seal 1\n# run a\n# sealed b\n\\" + b"0" * 64 + b"  a\\x\n",
])
def test_a_damaged_seal_is_refused(text: bytes) -> None:
    with pytest.raises(StoreError):
        parse_seal(text)


def test_hostile_names_in_a_seal_open_nothing(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_seal(run, NAME, WHEN)
    with (run / "SHA256SUMS").open("a") as stream:
        stream.write("0" * 64 + "  ../../../etc/passwd\n" + "0" * 64 + "  \x1b[31mred\n")
    status, out, _ = call(capsys, "verify")
    assert (status, "missing: ../../../etc/passwd" in out, "\x1b" in out) == (1, True, False)


def test_signed_by_an_allowed_signer(run: Path, tmp_path: Path, key: Path, capsys: pytest.CaptureFixture[str]) -> None:
    allowed = signers(tmp_path, key)
    assert call(capsys, "seal")[0] == 0
    assert call(capsys, "verify", "--signers", str(allowed))[0] == 3
    assert call(capsys, "seal", "--key", str(key))[0] == 0
    status, out, _ = call(capsys, "verify", "--signers", str(allowed))
    assert (status, "signed by admin@site, key SHA256:" in out, "tampering" in out) == (0, True, False)
    status, out, _ = call(capsys, "verify")
    assert (status, "signed by the key SHA256:" in out, "shows damage, not tampering" in out) == (0, True, True)


def test_tampering_is_seen_by_the_signature(run: Path, tmp_path: Path, key: Path,
                                            capsys: pytest.CaptureFixture[str]) -> None:
    allowed = signers(tmp_path, key)
    call(capsys, "seal", "--key", str(key))
    kept = (run / "SHA256SUMS.sig").read_bytes()
    (run / "verdicts.jsonl").write_text("")
    _, text = make_seal(run, NAME, WHEN)
    (run / "SHA256SUMS").write_bytes(text)
    status, out, _ = call(capsys, "verify", "--signers", str(allowed))
    assert (status, "as it was sealed" in out, "BAD SIGNATURE" in out) == (1, True, True)
    (run / "SHA256SUMS.sig").write_bytes(kept[:100])
    assert call(capsys, "verify")[0] == 1
    write_seal(run, NAME, WHEN)
    assert check(run, allowed).trust is Trust.NONE


def test_another_key_and_another_purpose_are_not_allowed(run: Path, tmp_path: Path, key: Path) -> None:
    write_seal(run, NAME, WHEN)
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", str(other)], check=True)
    sign(run, other)
    found = check(run, signers(tmp_path, key))
    assert (found.trust, "does not allow the key SHA256:" in found.reason) == (Trust.BAD, True)
    assert "none of its lines" not in found.reason
    nameless = tmp_path / "nameless"
    nameless.write_bytes(other.with_suffix(".pub").read_bytes())
    assert "none of its lines is NAME ssh-ed25519" in check(run, nameless).reason
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-n", "file", "-f", str(key), str(run / "SHA256SUMS")],
                   check=True, stdin=subprocess.DEVNULL, input=None) if not (run / "SHA256SUMS.sig").unlink() else None
    assert check(run, signers(tmp_path, key)).trust is Trust.BAD


@pytest.mark.parametrize(("options", "signer"), [
    ("*@site", "*@site"), ("!eve@site,*@site", "*@site"), ("!admin@site", ""), ("a,b", "a"), ('"a b,c"', "a b"),
    ('a namespaces="hpcadmin-run"', "a"), ('a namespaces="git"', ""), ('a valid-after="20990101"', ""),
    ('a valid-before="20200101"', ""), ("* cert-authority", ""), ("-Ohashalg=x", "-Ohashalg=x"),
    ("# a", "")])
def test_what_a_line_of_signers_allows(run: Path, tmp_path: Path, key: Path, options: str, signer: str) -> None:
    write_seal(run, NAME, WHEN)
    sign(run, key)
    found = check(run, signers(tmp_path, key, options))
    assert (found.trust, found.signer) == (Trust.GOOD if signer else Trust.BAD, signer)


def test_a_seal_that_is_replaced_while_it_is_looked_at_vouches_for_nothing(
        run: Path, tmp_path: Path, key: Path, monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str]) -> None:
    """Files that fit a forged seal, and the signed one put back before its signature is looked at."""
    allowed, look_at = signers(tmp_path, key), seal.look
    call(capsys, "seal", "--key", str(key))
    signed = (run / SEAL).read_bytes()
    (run / "verdicts.jsonl").write_text("")
    (run / SEAL).write_bytes(make_seal(run, NAME, WHEN)[1])

    def swapped(folder: Path) -> seal.Found:
        found = look_at(folder)
        (run / SEAL).write_bytes(signed)
        return found
    monkeypatch.setattr(seal, "look", swapped)
    status, out, _ = call(capsys, "verify", "--signers", str(allowed))
    assert (status, "was replaced while it was looked at" in out, "signed by" in out) == (1, True, False)
    (run / SEAL).write_bytes(make_seal(run, NAME, "2026-08-30T10:15:00+02:00")[1])
    status, _, err = call(capsys, "seal", "--key", str(key))
    assert (status, "was replaced while it was looked at" in err) == (2, True)


@pytest.mark.parametrize(("args", "says"), [
    (("seal", "--key", "/nowhere/key"), "/nowhere/key is no key"),
    (("seal", "--key", "/etc/hostname"), "was not signed with /etc/hostname"),
    (("seal", "nowhere"), "no run 'nowhere'"),
    (("verify", "--signers", "/nowhere/s"), "there is no file /nowhere/s"),
])
def test_what_cannot_be_done_is_one_line(run: Path, key: Path, args: tuple[str, ...], says: str,
                                         capsys: pytest.CaptureFixture[str]) -> None:
    write_seal(run, NAME, WHEN)
    sign(run, key)
    status, _, err = call(capsys, *args)
    assert (status, err.count("\n"), says in err) == (2, 1, True), err


def test_without_ssh_keygen(run: Path, key: Path, monkeypatch: pytest.MonkeyPatch,
                            capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    status, _, err = call(capsys, "seal", "--key", str(key))
    assert (status, "ssh-keygen is not there" in err) == (2, True)
    assert call(capsys, "verify")[0] == 0
    monkeypatch.undo()
    sign(run, key)
    monkeypatch.setenv("PATH", "/nowhere")
    status, out, err = call(capsys, "verify", str(run))
    assert (status, "not checked: ssh-keygen is not there" in out, err) == (0, True, "")
    assert call(capsys, "verify", str(run), "--signers", str(key.with_suffix(".pub")))[0] == 3


def test_a_run_that_is_judged_once_more_keeps_its_seal(run: Path, tmp_path: Path, key: Path) -> None:
    from hpcadmin.run_folder import RunFolder, read_record
    from hpcadmin.run_seal import seal_at_end, sealed_again
    from hpcadmin.rundata import Manifest
    folder = RunFolder(run, read_record(run / "manifest.json", Manifest))
    assert seal_at_end(folder) == ""

    def fits() -> bool:
        return verify(seal.read_seal(run), look(run)).sound
    sealed_again(folder, lambda: folder.update(exit_status=1))
    assert fits()

    def killed() -> None:
        folder.update(exit_status=3)
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        sealed_again(folder, killed)
    assert not seal.is_sealed(run)                      # and does not look damaged
    sealed_again(folder, lambda: folder.update(exit_status=0))
    assert fits()

    def full() -> None:
        raise StoreError("cannot be written: No space left on device")
    before = (run / SEAL).read_bytes()
    with pytest.raises(StoreError):
        sealed_again(folder, full)
    assert ((run / SEAL).read_bytes(), fits()) == (before, True)
    (run / "limits.json").write_text("[]")
    sealed_again(folder, lambda: folder.update(exit_status=0))
    assert not fits()
    write_seal(run, NAME, WHEN)
    sign(run, key)
    before = (run / "manifest.json").read_bytes()
    sealed_again(folder, lambda: folder.update(exit_status=1))
    assert ((run / "manifest.json").read_bytes(), check(run, signers(tmp_path, key)).trust) == (before, Trust.GOOD)


def test_a_run_that_cannot_be_sealed_says_why(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from hpcadmin.run_folder import RunFolder, read_record
    from hpcadmin.run_seal import seal_at_end, sealed_again
    from hpcadmin.rundata import Manifest
    folder = RunFolder(run, read_record(run / "manifest.json", Manifest))
    with monkeypatch.context() as full:
        full.setattr(seal, "MAX_FILES", 3)
        assert "more than 3 files" in seal_at_end(folder)
    sealed_again(folder, lambda: folder.update(exit_status=1))      # as one that was killed before it had a seal
    assert verify(seal.read_seal(run), look(run)).sound


@pytest.mark.deep
def test_runs_with_troubles_are_sealed_at_their_end(tmp_path: Path) -> None:
    """Nothing of a run comes into its folder after that."""
    from sim_runs import play
    sealed = 0
    for seed in range(25):
        play(tmp_path / str(seed), seed)
        for manifest in (tmp_path / str(seed)).rglob("manifest.json"):
            if json.loads(manifest.read_text())["state"] == "complete" and seal.is_sealed(manifest.parent):
                assert verify(seal.read_seal(manifest.parent), look(manifest.parent)).sound, seed
                sealed += 1
    assert sealed > 20


DAMAGES = {
    "plan.json is missing": lambda run: (run / "plan.json").unlink(),
    "plan.json: not JSON": lambda run: (run / "plan.json").write_text("{"),
    "verdicts.jsonl:1: not JSON": lambda run: (run / "verdicts.jsonl").write_text("x\n"),
    "measurements.jsonl has nothing of": lambda run: (run / "measurements.jsonl").write_text(""),
    "jobs/2/node02.log is missing": lambda run: (run / "jobs/2/node02.log").unlink(),
    "manifest.json is of schema 9": lambda run: (run / "manifest.json").write_text(
        (run / "manifest.json").read_text().replace('"schema": 1', '"schema": 9')),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_damage_is_sealed_only_by_force(run: Path, capsys: pytest.CaptureFixture[str], what: str) -> None:
    DAMAGES[what](run)
    status, out, err = call(capsys, "seal")
    assert (status, out, what in err, "--force" in err, (run / "SHA256SUMS").exists()) == (2, "", True, True, False)
    status, out, err = call(capsys, "seal", "--force")
    assert (status, "files sealed" in out, f"sealed as it is: {what}" in err) == (0, True, True)
    status, out, _ = call(capsys, "verify")
    assert (status, f"was known when it was sealed: {what}" in out) == (0, True)
    from hpcadmin.report.whole import read_for_report
    assert read_for_report(run, values=False).problems or "jobs/" in what
    if "jobs/" not in what:
        assert cli.run(["report"]) == 3, "the seal fits, and the report still tells"
        assert "INCOMPLETE" in capsys.readouterr().out


def test_a_damaged_run_without_a_seal_gets_none_by_being_judged_again(run: Path) -> None:
    from hpcadmin.run_folder import RunFolder, read_record
    from hpcadmin.run_seal import sealed_again
    from hpcadmin.rundata import Manifest
    (run / "findings.json").write_text("[")
    sealed_again(RunFolder(run, read_record(run / "manifest.json", Manifest)), lambda: None)
    assert not (run / "SHA256SUMS").exists()
