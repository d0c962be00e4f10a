"""hpcadmin runs seal and verify: hashes of all files of a run, and who vouches for them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hpcadmin.text import printable

if TYPE_CHECKING:
    from hpcadmin.seal import Difference, Found, Seal
    from hpcadmin.seal_sign import Signature

_MOST = 20
NO_PROOF = "shows damage, not tampering"


@click.command("seal")
@click.argument("run_name", metavar="[RUN]", required=False)
@click.option("--sign", is_flag=True, help="Sign it too, with your SSH key.")
@click.option("--key", metavar="FILE", help="Another key than the one of ~/.ssh; its .pub for one in the agent.")
@click.option("--force", is_flag=True, help="Seal what is missing or damaged, too, as it is now.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.pass_obj
def seal_command(obj: dict[str, str | None], *, run_name: str | None, sign: bool, key: str | None, force: bool,
                 as_json: bool) -> int:
    """Write the SHA-256 of every file of a run into its SHA256SUMS, and sign that.

    A seal that is whole is kept; one that does not fit any more is not replaced. A folder in which something is missing
    or damaged is not sealed: afterwards its seal would fit.
    """
    from hpcadmin.cli import complain
    from hpcadmin.errors import StoreError, UsageError
    from hpcadmin.report.folders import find_run
    from hpcadmin.run_folder import iso_now, read_record
    from hpcadmin.run_seal import damage
    from hpcadmin.rundata import Manifest, read_run
    from hpcadmin.seal import is_sealed, look, read_seal, verify, write_seal
    from hpcadmin.seal_sign import sign as sign_seal
    from hpcadmin.seal_sign import usual_key
    from hpcadmin.site import load_site
    from hpcadmin.state import runs_dir
    folder = find_run(runs_dir(load_site(obj["site"])), run_name)
    manifest = read_record(folder / "manifest.json", Manifest)
    if manifest.state == "running":
        raise UsageError(f"run {folder.name} is not over: it is sealed at its end")
    problems: list[str] = []
    if is_sealed(folder):
        seal = read_seal(folder)
        wrong = verify(seal, look(folder), folder.name)
        if not wrong.sound:
            raise StoreError(f"does not fit any more: {'; '.join(lines_of(wrong)[:3])}",
                             where=str(folder / "SHA256SUMS"),
                             hint="remove it yourself if that is as it should be, then seal again")
    else:
        problems = damage(read_run(folder))
        if problems and not force:
            raise StoreError(f"{'; '.join(problems[:3])}{f' and {len(problems) - 3} more' if problems[3:] else ''}",
                             where=str(folder), hint="a seal would say that the folder is whole; --force seals it as "
                             "it is")
        seal = write_seal(folder, manifest.run_id, iso_now(), problems)
    if sign or key:
        sign_seal(folder, Path(key) if key else usual_key(), seal)
    if as_json:
        _print_json({"run": folder.name, "files": len(seal.files), "digest": seal.digest, "sealed": seal.sealed,
                     "signed": bool(sign or key), "problems": problems})
        return 0
    for problem in problems[:_MOST]:
        complain(f"sealed as it is: {problem}")
    click.echo(printable(f"{folder.name}: {len(seal.files)} files sealed{' and signed' if sign or key else ''}"))
    click.echo(printable(f"SHA-256 of {folder / 'SHA256SUMS'}: {seal.digest}"))
    return 0


@click.command("verify")
@click.argument("run_name", metavar="[RUN]", required=False)
@click.option("--signers", metavar="FILE", help="Allowed signers, as for ssh-keygen -Y verify: the run must be signed "
              "by one of them.")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
@click.pass_obj
def verify_command(obj: dict[str, str | None], run_name: str | None, signers: str | None, as_json: bool) -> int:
    """Whether a run's files are those that were sealed, and by whom.

    Exit status: 0 as sealed; 1 changed, missing or added files, or a signature that does not fit; 3 not sealed, or
    not signed, or its signature not checked, although --signers was given.
    """
    from hpcadmin.report.folders import find_run
    from hpcadmin.seal import is_sealed, look, read_seal, verify
    from hpcadmin.seal_sign import check
    from hpcadmin.site import load_site
    from hpcadmin.state import runs_dir
    folder = find_run(runs_dir(load_site(obj["site"])), run_name)
    if not is_sealed(folder):
        return _unsealed(folder, as_json=as_json)
    from hpcadmin.errors import StoreError
    try:
        seal = read_seal(folder)
    except StoreError as exc:               # a damaged seal is damage, and not a mistake of the user
        return _damaged(folder, str(exc), as_json=as_json)
    found = look(folder)
    wrong = verify(seal, found, folder.name)
    signature = check(folder, Path(signers) if signers else None, seal)
    status = _status(wrong, signature, wanted=signers is not None)
    if as_json:
        _print_json({"run": folder.name, "path": str(folder), **_plain(seal, found, wrong, signature),
                     "exit_status": status})
    else:
        _say(folder, seal, found, wrong, signature)
    return status


def _unsealed(folder: Path, *, as_json: bool) -> int:
    text = f"{folder.name}: not sealed, so that nothing can be said (hpcadmin runs seal {folder.name})"
    if as_json:
        _print_json({"run": folder.name, "path": str(folder), "result": "not sealed", "exit_status": 3})
    else:
        click.echo(printable(text))
    return 3


def _damaged(folder: Path, why: str, *, as_json: bool) -> int:
    if as_json:
        _print_json({"run": folder.name, "path": str(folder), "result": "damaged", "problem": why, "exit_status": 1})
    else:
        click.echo(printable(f"{folder.name}: DAMAGED: {why}"))
    return 1


def _status(wrong: Difference, signature: Signature, *, wanted: bool) -> int:
    from hpcadmin.seal_sign import Trust
    if not wrong.sound or signature.trust is Trust.BAD:
        return 1
    return 3 if wanted and signature.trust is not Trust.GOOD else 0


def lines_of(wrong: Difference) -> list[str]:
    other = [f"sealed as another run: {wrong.other}"] if wrong.other else []
    return [*other, *(f"changed: {p}" for p in wrong.changed), *(f"missing: {p}" for p in wrong.missing),
            *(f"added: {p}" for p in wrong.added), *wrong.odd]


def _say(folder: Path, seal: Seal, found: Found, wrong: Difference, signature: Signature) -> None:
    from hpcadmin.seal_sign import Trust
    from hpcadmin.text import plural
    lines = lines_of(wrong)
    for line in lines[:_MOST]:
        click.echo(printable(line, limit=500))
    if len(lines) > _MOST:
        click.echo(f"… and {len(lines) - _MOST} more, --json has all")
    result = "as it was sealed" if wrong.sound else f"DAMAGED: {plural(len(lines), 'thing')} not as sealed"
    for problem in seal.problems[:_MOST]:
        click.echo(printable(f"was known when it was sealed: {problem}", limit=600))
    click.echo(printable(f"{folder.name}: {result} ({plural(len(seal.files), 'file')}, {seal.sealed[:60]})"))
    if found.made:
        click.echo(f"not part of the seal: {printable(', '.join(found.made), limit=500)}")
    click.echo({
        Trust.NONE: f"not signed: this {NO_PROOF}",
        Trust.GOOD: f"signed by {printable(signature.signer, limit=200)}, key {signature.key}",
        Trust.UNKNOWN: f"signed by the key {signature.key}; without --signers FILE nobody says whose it is: this "
                       f"{NO_PROOF}",
        Trust.UNCHECKED: f"it has a signature, which was not checked: {signature.reason}; this {NO_PROOF}",
        Trust.BAD: f"BAD SIGNATURE: {signature.reason}"}[signature.trust])
    click.echo(f"SHA-256 of SHA256SUMS: {seal.digest}")


def _plain(seal: Seal, found: Found, wrong: Difference, signature: Signature) -> dict[str, Any]:
    from hpcadmin.seal_sign import Trust
    result = "as sealed" if wrong.sound else "damaged"
    return {"result": result, "sealed": seal.sealed, "digest": seal.digest, "files": len(seal.files),
            "changed": list(wrong.changed), "missing": list(wrong.missing), "added": list(wrong.added),
            "odd": list(wrong.odd), "sealed_as": seal.run_id, "not_part_of_it": list(found.made),
            "problems": list(seal.problems), "signature": signature.trust.value,
            "signer": signature.signer, "key": signature.key, "problem": signature.reason,
            "shows_tampering": signature.trust is Trust.GOOD}


def _print_json(value: Any) -> None:
    sys.stdout.write(json.dumps(value, indent=1) + "\n")
