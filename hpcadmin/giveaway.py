"""Captures written once more without what identifies a site, to be sent to a vendor."""

from __future__ import annotations

import os
import secrets
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath

from hpcadmin.anonymise import anonymise
from hpcadmin.documents import decode
from hpcadmin.errors import StoreError, UsageError
from hpcadmin.files import read_bounded, write_atomic
from hpcadmin.intake import archive_of, nodes_of, texts
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
    found: dict[str, str] = {}
    nodes: set[str] = set()
    total = 0
    for root, node, item in _texts(paths):
        if isinstance(item, StoreError):
            left.append(str(item))
            continue
        total += len(item[1])
        if total > MAX_TOTAL:
            raise UsageError(f"more than {MAX_TOTAL} bytes at once", where=", ".join(paths)[:200])
        text = decode(item[1])
        found[_place(root, node, item[0], found)] = text
        nodes.update(nodes_of(text))
    clean = anonymise(found, key, nodes)
    make_private(into)
    for name, text in clean.items():
        place = into / name
        if ".." in place.parts:
            raise StoreError("would leave the folder", where=name)
        make_private(place.parent)
        write_atomic(place, text, mode=0o600)
    return len(clean), left


def _texts(paths: Sequence[str]) -> Iterator[tuple[Path, str, tuple[str, bytes] | StoreError]]:
    """(the folder that it was found in, whose it is by its name, a text by its name)"""
    for path in paths:
        place = Path(path).resolve()
        for node, item in texts([path]):
            yield place if place.is_dir() else place.parent, node, item


def _place(root: Path, node: str, file: str, taken: Collection[str]) -> str:
    """Where the copy goes: an archive becomes the folder that it was made of, so that it is still known whose a text
    is."""
    archive, member = archive_of(file)
    if archive is None:
        place = PurePosixPath(os.path.relpath(Path(file).resolve(), root))
    else:
        inner = PurePosixPath(member)
        place = inner if any(part.partition(".")[0] == node.partition(".")[0] for part in inner.parts) else node / inner
    return str(place) if str(place) not in taken else str(place.parent / f"{place.stem}.{len(taken)}{place.suffix}")


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
