"""Signatures of seals, by OpenSSH's `ssh-keygen -Y`: keys that an admin has already, and no key of ours."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from hpcadmin.errors import StoreError, UsageError
from hpcadmin.files import read_whole, write_atomic
from hpcadmin.seal import MAX_SEAL_BYTES, SEAL, SIGNATURE, Seal
from hpcadmin.text import printable

NAMESPACE = "hpcadmin-run"      # a signature that was made for something else, as a git commit, is none of a run
_MAX_SIGNATURE = 64 * 1024
_TIMEOUT_S = 60.0
_PROGRAM = "ssh-keygen"
_REPLACED = "was replaced while it was looked at"
_ABSENT = f"{_PROGRAM} is not there"
_KEYS = ("id_ed25519", "id_ecdsa", "id_ed25519_sk", "id_ecdsa_sk", "id_rsa")
_NAMED_KEY = re.compile(r"^[^#\s].*\s(ssh|ecdsa|sk)-\S+\s+AAAA", re.MULTILINE)     # of allowed signers
_KEY_WORD = re.compile(r"\b(SHA256:[A-Za-z0-9+/]{20,64})")


class Trust(str, Enum):
    NONE = "not signed"
    GOOD = "signed"                     # by one of the allowed signers
    UNKNOWN = "signed by an unknown key"    # the signature fits, nobody vouches for the key
    BAD = "bad signature"
    UNCHECKED = "signature not checked"     # nothing here can do it


@dataclass(frozen=True)
class Signature:
    trust: Trust
    signer: str = ""                    # as the file of allowed signers has it
    key: str = ""                       # fingerprint
    reason: str = ""                    # why it is bad, in ssh-keygen's words


def usual_key() -> Path:
    """The user's own key. UsageError where there is none."""
    folder = Path("~/.ssh").expanduser()
    found = next((folder / name for name in _KEYS if (folder / name).is_file()), None)
    if found is None:
        raise UsageError(f"there is no key of yours in {folder}", hint="--key FILE names one; ssh-keygen -t ed25519 "
                         "makes one")
    return found


def sign(folder: Path, key: Path, seal: Seal | None = None) -> None:
    """Sign the folder's seal. A passphrase is asked for on the terminal; a key in the agent is named by its .pub.
    seal: as it was looked at."""
    if not key.is_file():
        raise UsageError(f"{key} is no key", hint="--key FILE names the private key, or its .pub for one in the agent")
    text = read_whole(folder / SEAL, limit=MAX_SEAL_BYTES)
    if seal is not None and hashlib.sha256(text).hexdigest() != seal.digest:
        raise StoreError(_REPLACED, where=str(folder / SEAL))
    done = _keygen("sign", "-n", NAMESPACE, "-f", str(key.absolute()), text=text, timeout_s=None)
    if done.returncode or not done.stdout.startswith(b"-----BEGIN SSH SIGNATURE-----"):
        raise UsageError(f"was not signed with {key}: {_said(done)}", where=str(folder / SEAL))
    write_atomic(folder / SIGNATURE, done.stdout)


def check(folder: Path, signers: Path | None, seal: Seal | None = None) -> Signature:
    """What the folder's signature is worth. signers: a file of allowed signers as of ssh-keygen(1). seal: as it was
    read, so that the text which the files were compared with is the one that the signature is of."""
    if not (folder / SIGNATURE).exists() and not (folder / SIGNATURE).is_symlink():
        return Signature(Trust.NONE)
    if signers is not None and not signers.is_file():
        raise UsageError(f"there is no file {signers}", hint="a line of it: NAME ssh-ed25519 AAAA…")
    if shutil.which(_PROGRAM) is None:          # the hashes can be looked at all the same
        return Signature(Trust.UNCHECKED, reason=_ABSENT)
    text = read_whole(folder / SEAL, limit=MAX_SEAL_BYTES)
    if seal is not None and hashlib.sha256(text).hexdigest() != seal.digest:
        return Signature(Trust.BAD, reason=f"{SEAL} {_REPLACED}")
    try:
        raw = read_whole(folder / SIGNATURE, limit=_MAX_SIGNATURE)
    except StoreError as exc:
        return Signature(Trust.BAD, reason=exc.what)
    with tempfile.NamedTemporaryFile(prefix="hpcadmin-", suffix=".sig") as kept:    # what is checked is what was read
        kept.write(raw)
        kept.flush()
        return _checked(kept.name, text, signers)


def _checked(signature: str, text: bytes, signers: Path | None) -> Signature:
    plain = _keygen("check-novalidate", "-n", NAMESPACE, "-s", signature, text=text)
    found = _KEY_WORD.search(plain.stdout.decode("utf-8", "replace"))
    key = found[1] if found else ""
    if plain.returncode or not key:
        return Signature(Trust.BAD, key=key, reason=_said(plain))
    if signers is None:
        return Signature(Trust.UNKNOWN, key=key)
    allowed = str(signers.absolute())
    named = _keygen("find-principals", "-s", signature, "-f", allowed, text=b"")
    for name in named.stdout.decode("utf-8", "replace").splitlines() if named.returncode == 0 else ():
        # A line may allow several names, or a pattern: the name that it says is asked for.
        for one in (n for n in name.split(",") if not n.startswith("!")):
            done = _keygen("verify", "-n", NAMESPACE, "-s", signature, "-f", allowed, "-I", one, text=text)
            if done.returncode == 0:
                return Signature(Trust.GOOD, one, key)
    why = "" if _NAMED_KEY.search(signers.read_text("utf-8", "replace")) else (
        "; none of its lines is NAME ssh-ed25519 AAAA…")
    return Signature(Trust.BAD, key=key, reason=f"{signers} does not allow the key {key}{why}")


def _keygen(what: str, *args: str, text: bytes, timeout_s: float | None = _TIMEOUT_S,
            ) -> subprocess.CompletedProcess[bytes]:
    program = shutil.which(_PROGRAM)
    if program is None:
        raise UsageError(_ABSENT, hint="it comes with OpenSSH's client, from 8.2")
    try:
        return subprocess.run([program, "-Y", what, *args], input=text, capture_output=True, timeout=timeout_s,
                              check=False)
    except subprocess.TimeoutExpired as exc:
        raise UsageError(f"ssh-keygen did not answer within {timeout_s:g} s") from exc


def _said(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = [line for line in (done.stderr + done.stdout).decode("utf-8", "replace").splitlines() if line.strip()]
    return printable(lines[-1], limit=200) if lines else f"ssh-keygen ended with {done.returncode}"
