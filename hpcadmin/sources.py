"""The texts that a node was read from, opened again: files, members of archives, what one of many nodes printed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

from hpcadmin.documents import MAX_BYTES, clean_lines, decode, documents, is_capture
from hpcadmin.errors import StoreError
from hpcadmin.files import read_bounded
from hpcadmin.gathered import by_node, placed, without_node
from hpcadmin.intake import archive_of, unpack
from hpcadmin.model import Node
from hpcadmin.why import Text

Archives = dict[Path, Mapping[str, bytes]]


def open_sources(node: Node) -> tuple[list[Text], list[str]]:
    """(the texts that are as they were, a line for each that is not)."""
    texts, complaints = [], []
    archives: Archives = {}
    for source in node.sources:
        path = without_node(source.path)
        try:
            raw = _content(path, archives)
        except StoreError as exc:
            complaints.append(f"{path}: {exc.what}: what was read from it cannot be shown")
            continue
        text = next((text for text, forms in _texts(path, raw, node.name)
                     if not source.sha256 or source.sha256 in forms), None)
        if text is None:
            complaints.append(f"{path}: is not what it was when the node was read from it")
        else:
            texts.append(Text(path, text, source.kinds))
    return texts, complaints


def _content(path: str, archives: Archives) -> bytes:
    """Raises StoreError."""
    archive, member = archive_of(path)
    if archive is None:
        return read_bounded(Path(path), limit=MAX_BYTES)
    if archive not in archives:
        archives[archive] = unpack(archive)
    if member not in archives[archive]:
        raise StoreError("is not in the archive any more", where=path)
    return archives[archive][member][:MAX_BYTES]


def _texts(path: str, raw: bytes, node: str) -> Iterator[tuple[str, set[str]]]:
    """What may have been read as the node's text, with the sums of all forms of it."""
    text = decode(raw)
    whole = {_sum(raw), _sum(text.encode("utf-8", "surrogateescape"))}
    yield text, whole | (set() if is_capture(text) else _sums(path, raw))
    found = by_node(clean_lines(text))
    for own in sorted(found, key=lambda name: name != node):
        lines = placed(found[own])
        several = "\n".join(lines).encode("utf-8", "surrogateescape")
        alone = "\n".join(found[own].values()).encode("utf-8", "surrogateescape")
        yield "\n".join(lines), _sums(path, several) | _sums(path, alone)


def _sums(path: str, data: bytes) -> set[str]:
    return {_sum(document.text.encode("utf-8", "surrogateescape")) for document in documents(path, data)}


def _sum(data: bytes) -> str:
    return sha256(data).hexdigest()
