"""Captures written once more without what identifies a site, to be sent to a vendor."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path

from hpcadmin.anonymise import anonymise
from hpcadmin.documents import decode
from hpcadmin.errors import StoreError, UsageError
from hpcadmin.files import read_bounded, write_atomic
from hpcadmin.intake import plan
from hpcadmin.state import make_private

KEY_BYTES = 32
MAX_TOTAL = 1024 * 1024 * 1024


def give_away(paths: Sequence[str], into: Path, key: bytes) -> tuple[int, list[str]]:
    """Write all texts under the paths into the new folder `into`; (how many, what was left out and why).

    Raises UsageError when the folder is not empty, StoreError when it cannot be written.
    """
    if into.exists() and any(into.iterdir()):
        raise UsageError("is not empty", where=str(into), hint="--anonymise writes into a new folder")
    left: list[str] = []
    texts: dict[str, str] = {}
    total = 0
    for file, data in _texts(paths, left):
        total += len(data)
        if total > MAX_TOTAL:
            raise UsageError(f"more than {MAX_TOTAL} bytes at once", where=", ".join(paths)[:200])
        texts[file] = decode(data)
    common = os.path.commonpath([str(Path(file).parent) for file in texts]) if texts else ""
    clean = anonymise({os.path.relpath(file, common or "."): text for file, text in texts.items()}, key)
    make_private(into)
    for name, text in clean.items():
        place = into / name
        if ".." in place.parts:
            raise StoreError("would leave the folder", where=name)
        make_private(place.parent)
        write_atomic(place, text, mode=0o600)
    return len(clean), left


def _texts(paths: Sequence[str], left: list[str]) -> Iterator[tuple[str, bytes]]:
    for loaders in plan(paths).values():
        for load in loaders:
            for item in load():
                if isinstance(item, tuple):
                    yield item
                elif isinstance(item, StoreError):
                    left.append(str(item))
                else:
                    left.append(f"{item.name}: dumps of /sys are not made anonymous")


def site_key(folder: Path) -> bytes:
    """The site's own key, so that captures of another day get the same replacements; made when it is not there."""
    path = folder / "anonymise.key"
    if path.exists():
        key = read_bounded(path, limit=1024)
        if len(key) != KEY_BYTES:
            raise StoreError(f"is not a key of {KEY_BYTES} bytes", where=str(path))
        return key
    make_private(folder)
    key = secrets.token_bytes(KEY_BYTES)
    write_atomic(path, key, mode=0o600)
    return key
