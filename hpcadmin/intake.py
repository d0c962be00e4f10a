"""What a sysadmin has (texts, folders of them, archives, dumps of /sys) taken in: files to documents, by node."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import sys
import tarfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import BinaryIO, cast

from hpcadmin.documents import MAX_BYTES, clean_lines, decode, documents, documents_in, is_capture, tree
from hpcadmin.errors import StoreError, UsageError
from hpcadmin.facts import Document
from hpcadmin.files import read_bounded
from hpcadmin.gathered import by_node, may_be, of_node, placed, series
from hpcadmin.hosts import fold, is_node_name
from hpcadmin.text import printable

MAX_FILES = 200_000
PEEK = 4096                              # of a file, to see whether it may be of many nodes
PEEK_LINES = 64
MAX_PLACED = 20_000_000                  # lines of all nodes of such a text, with those that are another node's
MAX_TREE_FILE = 256 * 1024               # of a file of /sys or /proc
MAX_ARCHIVE = 512 * 1024 * 1024          # unpacked
_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tbz", ".tar.xz", ".txz")
# What people add to a node's name when they keep a tool's output in a file.
_KINDS = frozenset({
    "amd-smi", "capture", "dmesg", "dmidecode", "hwloc", "ibdev2netdev", "ibstat", "ibstatus", "ibv_devinfo", "json",
    "lldp", "log", "lscpu", "lspci", "lstopo", "nccl", "numactl", "nvidia-smi", "nvlink", "out", "rocm-smi", "slurmd",
    "smi", "topo", "txt", "xml",
})
_TREE_TOPS = ("sys/devices", "sys/bus", "sys/class", "proc/cpuinfo", "proc/meminfo")


Item = Document | StoreError | tuple[str, bytes]
Loader = Callable[[], Iterator[Item]]


@dataclass
class Taken:
    """What belongs together: the texts of one node. captures: what our own probe printed, by file."""

    node: str
    documents: list[Document] = field(default_factory=list)
    captures: dict[str, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


def take(paths: Sequence[str], node: str = "") -> Iterator[Taken]:
    """The texts under the paths, node by node, each read when it is asked for (see `plan`)."""
    return (load(own, loaders) for own, loaders in plan(paths, node).items())


def plan(paths: Sequence[str], node: str = "") -> dict[str, list[Loader]]:
    """What there is to read, by node: a folder's files NODE.txt, NODE.lscpu.txt and folders NODE/; a file by its own
    name; "-" is stdin. node: all of it is about that one. What reads it can be handed to another process.

    Raises UsageError when a path holds nothing.
    """
    loaders: dict[str, list[Loader]] = {}
    found = [each for path in paths for each in _walk(path, node)]
    names = Counter(series(name) for name in {name for name, _ in found})
    for name, reader in found:
        # node01.txt beside node02.txt is what one node said, and no other node is known by it.
        for own, each in _gathered(name, reader, alone=names[series(name)] > 1):
            loaders.setdefault(node or own, []).append(each)
    return loaders


def texts(paths: Sequence[str]) -> Iterator[tuple[str, tuple[str, bytes] | StoreError]]:
    """(whose it is by its name, a text by its name) for all under the paths, as they are."""
    for path in paths:
        for node, reader in _walk(path, ""):
            for item in reader():
                yield node, StoreError("is a dump of /sys, not a text", where=item.name) if isinstance(
                    item, Document) else item


def nodes_of(text: str) -> list[str]:
    """The nodes that a text of many is of; none of any other."""
    lines = clean_lines(text)
    return list(by_node(lines)) if may_be(lines[:PEEK_LINES]) else []


def _gathered(name: str, reader: Loader, *, alone: bool) -> Iterator[tuple[str, Loader]]:
    """One reader for each node in a text that pdsh, clush or dshbak made of many; else the reader as it is."""
    found: dict[str, dict[int, str]] = {}
    file = ""
    try:
        if isinstance(reader, partial) and reader.func is _content:
            path: Path = reader.args[0]
            file, found = str(path), _nodes_in(partial(read_bounded, path))
        elif isinstance(reader, partial) and reader.func is iter and isinstance(reader.args[0][0], tuple):
            file, data = reader.args[0][0]
            found = _nodes_in(lambda limit: data[:limit])
    except StoreError:
        found = {}                       # who reads it says so
    if found and alone and list(found) != [name]:
        what = f"has lines of {printable(fold(found), limit=80)}, and is named after {name}: not read"
        yield name, partial(iter, (StoreError(what, where=file),))
        return
    if not found:
        yield name, reader
    whole = sum(max(own) for own in found.values()) <= MAX_PLACED
    for node, own in found.items():
        yield node, partial(_of_many, file if whole else of_node(file, node), own, whole)


def _nodes_in(head: Callable[..., bytes]) -> dict[str, dict[int, str]]:
    return by_node(clean_lines(decode(head(limit=MAX_BYTES)))) if may_be(clean_lines(decode(head(limit=PEEK)))) else {}


def _of_many(name: str, own: Mapping[int, str], whole: bool) -> Iterator[Item]:
    """whole: line numbers are those of the file."""
    text = "\n".join(placed(own) if whole else own.values())
    yield from documents(name, text.encode("utf-8", "surrogateescape"))


def load(node: str, loaders: Iterable[Loader]) -> Taken:
    """The texts of one node."""
    taken = Taken(node)
    for reader in loaders:
        for item in reader():
            _put(taken, item)
    return taken


def _put(taken: Taken, item: Item) -> None:
    if isinstance(item, Document):
        taken.documents.append(item)
        return
    if isinstance(item, StoreError):
        taken.errors.append(str(item))
        return
    file, data = item
    text = decode(data[:MAX_BYTES])
    if not is_capture(text):
        taken.documents += documents_in(file, text, cut=len(data) > MAX_BYTES)
        return
    taken.captures[file] = "" if taken.captures else text         # of two, none is read
    if len(data) > MAX_BYTES:
        taken.errors.append(f"{file}: larger than {MAX_BYTES} bytes: its end is not here")


def _walk(path: str, node: str) -> Iterator[tuple[str, Loader]]:
    """(node, what reads its texts) of all that a path given by the user holds. node: what has no name of its own."""
    if path == "-":
        yield "stdin", partial(iter, (("stdin", sys.stdin.buffer.read(MAX_BYTES + 1)),))
        return
    place = Path(path)
    if not place.exists():
        raise UsageError("there is no such file or folder", where=path)
    try:
        place = place.resolve() if place.is_symlink() else place     # the user named the link: that one is followed
        if place.is_dir():
            yield from _folder(place, node)
        else:
            yield from _file(place, _node_of(place.name) or "node")
    except OSError as exc:
        raise UsageError(f"cannot be read: {exc.strerror}", where=path) from exc


def _folder(folder: Path, node: str) -> Iterator[tuple[str, Loader]]:
    entries = sorted((entry for entry in os.scandir(folder) if not entry.name.startswith(".")),
                     key=lambda entry: entry.name)
    if len(entries) > MAX_FILES:
        raise UsageError(f"more than {MAX_FILES} files", where=str(folder))
    if _is_tree(folder) or _of_tools(entries):
        yield _node_of(folder.resolve().name) or "node", partial(_of_node, folder)
        return
    empty = True
    for entry in entries:
        path, name = Path(entry.path), _node_of(entry.name) or node
        empty = False
        if not name:
            why = StoreError("is not named after a node", where=str(path),
                             hint="files are NODE.txt or NODE.TOOL.txt, folders NODE; or --node NAME with the files")
            yield "".join(c if is_node_name(f"n{c}") else "_" for c in entry.name), partial(iter, (why,))
            continue
        if entry.is_symlink() or not (entry.is_file() or entry.is_dir()):
            # Never followed: nodes may write in such folders.
            yield name, partial(iter, (StoreError("is not a regular file: not opened", where=str(path)),))
        elif entry.is_dir():
            yield name, partial(_of_node, path)
        else:
            yield from _file(path, name)
    if empty:
        raise UsageError("the folder has no captures (NODE.txt, or NODE/ with texts)", where=str(folder))


def _of_tools(entries: Sequence[os.DirEntry[str]]) -> bool:
    """Whether it is the folder of one node: lscpu.txt, topo.txt, nothing named after a node."""
    return bool(entries) and all(is_tool(_node_of(entry.name)) and entry.is_file(follow_symlinks=False)
                                 for entry in entries)


def _of_node(folder: Path) -> Iterator[Item]:
    """All texts in the folder of one node, at any depth."""
    if _is_tree(folder):
        yield _read_tree(folder)
        return
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.name.startswith("."):
            continue
        if entry.is_symlink() or not (entry.is_file() or entry.is_dir()):
            yield StoreError("is not a regular file: not opened", where=entry.path)
        elif entry.is_dir():
            yield from _of_node(Path(entry.path))
        else:
            for _, load in _file(Path(entry.path), ""):
                yield from load()


def _file(path: Path, node: str) -> Iterator[tuple[str, Loader]]:
    if not path.name.lower().endswith(_ARCHIVES):
        yield node, partial(_content, path)
        return
    for own, item in _archive(path, node):
        yield own, partial(iter, (item,))


def _content(path: Path) -> Iterator[Item]:
    try:
        yield str(path), read_bounded(path, limit=MAX_BYTES + 1)
    except StoreError as exc:
        yield exc


def _node_of(name: str) -> str:
    """node01 of node01.lscpu.txt, node01.txt and node01.tar.gz; "" when that is no name of a node."""
    lower = name.lower()
    for suffix in _ARCHIVES:
        if lower.endswith(suffix):
            name = name[: -len(suffix)]
            break
    parts = name.split(".")
    while len(parts) > 1 and parts[-1].lower() in _KINDS:
        parts.pop()
    found = ".".join(parts)
    return found if is_node_name(found) else ""


def is_tool(name: str) -> bool:
    """Whether a file of that name is named after a tool alone, not after a node."""
    return name.lower() in _KINDS


# --- archives and dumps of /sys -----------------------------------------------------------------------------------


def _archive(path: Path, node: str) -> Iterator[tuple[str, Item]]:
    """A dump of /sys and /proc is one document; any other archive is a folder of texts."""
    try:
        files = unpack(path)
    except StoreError as exc:
        yield node, exc
        return
    top = _tree_top(files)
    if top is not None:
        yield node, tree(str(path), {name[len(top):]: data for name, data in files.items() if name.startswith(top)})
        return
    for name, data in files.items():
        yield _of_member(PurePosixPath(name).parts) or node, (f"{path}:{name}", data)


def _of_member(parts: Sequence[str]) -> str:
    """n2 of caps/n2/topo.txt and of n2/topo.txt, n1 of caps/n1.txt; "" of topo.txt."""
    if len(parts) > 2:
        return _node_of(parts[-2])
    names = (_node_of(part) for part in reversed(parts))
    return next((name for name in names if name and not is_tool(name)), "")


def archive_of(name: str) -> tuple[Path | None, str]:
    """(the archive, the member) of a text's name such as caps.tar.gz:node01.txt; (None, "") of a file's."""
    for place, char in enumerate(name):
        if char == ":" and name[:place].lower().endswith(_ARCHIVES) and Path(name[:place]).is_file():
            return Path(name[:place]), name[place + 1:]
    return None, ""


def unpack(path: Path) -> dict[str, bytes]:
    """The regular files by their names. Raises StoreError when it is no archive, or larger than allowed."""
    try:
        return _unpack(path)
    except (tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError, ValueError) as exc:
        raise StoreError(f"cannot be unpacked: {exc}", where=str(path)) from exc


def _unpack(path: Path) -> dict[str, bytes]:
    with path.open("rb") as raw:
        head = raw.read(6)
        raw.seek(0)
        stream = _opened(raw, head)
        files: dict[str, bytes] = {}
        links: dict[str, str] = {}
        total = 0
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            for member in archive:
                name = str(PurePosixPath(member.name)).lstrip("/").removeprefix("./")
                if ".." in PurePosixPath(name).parts:
                    continue
                if member.issym():
                    links[name] = _target(name, member.linkname)
                if not member.isfile():
                    continue
                content = archive.extractfile(member)
                data = content.read(MAX_BYTES + 1) if content else b""
                total += len(data) + 512
                if total > MAX_ARCHIVE or len(files) >= MAX_FILES:
                    raise ValueError(f"more than {MAX_ARCHIVE} bytes or {MAX_FILES} files")
                files[name] = data
    for name, target in links.items():
        files.setdefault(f"{name}@", target.encode("utf-8", "surrogateescape"))
    return files


def _opened(raw: BinaryIO, head: bytes) -> BinaryIO:
    """Through what it is packed with, by its first bytes."""
    if head.startswith(b"\x1f\x8b"):
        return cast(BinaryIO, gzip.GzipFile(fileobj=raw))
    if head.startswith(b"BZh"):
        return cast(BinaryIO, bz2.BZ2File(raw))
    return cast(BinaryIO, lzma.LZMAFile(raw)) if head.startswith(b"\xfd7zXZ") else raw


def _target(link: str, to: str) -> str:
    """Where a link of that name leads, from the top of the tree."""
    return os.path.normpath(str(PurePosixPath(link).parent / to))


def _tree_top(files: Mapping[str, bytes]) -> str | None:
    """What stands before sys/ and proc/ in the names: "", or "node01/"."""
    for name in files:
        for top in _TREE_TOPS:
            if name.startswith(top):
                return ""
            place = name.find("/" + top)
            if place >= 0:
                return name[: place + 1]
    return None


def _is_tree(folder: Path) -> bool:
    return any((folder / top).exists() for top in _TREE_TOPS)


def _read_tree(folder: Path) -> Document:
    """The small files under sys and proc; links as NAME@ with where they lead to, as in an archive."""
    files: dict[str, bytes] = {}
    cut = False
    for top in ("sys", "proc"):
        for here, folders, names in os.walk(folder / top):
            for name in [*folders, *names]:
                path = Path(here, name)
                key = str(path.relative_to(folder))
                if path.is_symlink():
                    files[f"{key}@"] = _target(key, str(path.readlink())).encode("utf-8", "surrogateescape")
                elif name in names:
                    try:
                        files[key] = read_bounded(path, limit=MAX_TREE_FILE)
                    except StoreError:
                        continue         # /sys has files that nobody may read
                if len(files) > MAX_FILES:
                    cut = True
                    break
            if cut:
                break
    return tree(str(folder), files, cut=cut)
