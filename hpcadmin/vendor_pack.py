"""One archive for the vendor of one node; the same run and key give the same bytes."""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass

from hpcadmin.anonymise import Mask
from hpcadmin.report.summary import summarise
from hpcadmin.report.times import parse_time
from hpcadmin.rundata import Run
from hpcadmin.vendor import Case, case_of, readme, texts_of
from hpcadmin.vendor_files import collect, every_name

_NAME = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True)
class Bundle:
    """name: of the archive's file. left: what is not in it, and why."""

    name: str
    data: bytes
    files: tuple[str, ...]
    left: tuple[str, ...]
    case: Case


def bundle(run: Run, node: str, *, key: bytes | None = None, keep_serials: bool = False, checks_dir: str = "",
           ) -> Bundle:
    """key: what identifies the site is replaced, by this key. keep_serials: but not in serials.csv, which a return of
    parts needs."""
    case = case_of(run, node)
    found = collect(case, checks_dir=checks_dir)
    found.left[:0] = [f"run folder: {problem}" for problem in summarise(run).problems]
    texts = {**texts_of(case, anonymous=key is not None), **found.texts}
    texts["README.txt"] = readme(case, list(texts), found.left, anonymous=key is not None)
    name, left = f"{run.manifest.run_id}-{node}", found.left
    if key is not None:
        own = texts["serials.csv"]
        # By letters, as it would take what is in a file's name for the name of a host.
        mask = Mask({_letters(at): text for at, text in enumerate(texts.values())}, key, every_name(run),
                    (run.manifest.user,))
        texts = {_safe(mask.path(path)): mask.text(text) for path, text in texts.items()}
        if keep_serials:
            texts["serials.csv"] = own
        name, left = mask.text(name), [mask.text(line) for line in left]
    files = {path: text.encode("utf-8", "backslashreplace") for path, text in texts.items()}
    files["SHA256SUMS"] = "".join(f"{hashlib.sha256(files[path]).hexdigest()}  {path}\n"
                                  for path in sorted(files)).encode()
    root = _NAME.sub("_", name)[:150]
    return Bundle(f"{root}.tar.gz", _archive(root, files, _time(run)), tuple(sorted(files)), tuple(left), case)


def _letters(number: int) -> str:
    return "".join(chr(ord("a") + int(digit)) for digit in str(number))


def _safe(path: str) -> str:
    return "/".join(_NAME.sub("_", part) for part in path.split("/"))


def _time(run: Run) -> int:
    """Of the run, so that the archive does not depend on when it was made."""
    started = parse_time(run.manifest.started)
    return max(0, int(started.timestamp())) if started is not None and started.tzinfo is not None else 0


def _archive(root: str, files: Mapping[str, bytes], time: int) -> bytes:
    stream = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=time) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(files):
            member = tarfile.TarInfo(f"{root}/{path}")
            member.size, member.mtime, member.mode = len(files[path]), time, 0o644
            archive.addfile(member, io.BytesIO(files[path]))
    return stream.getvalue()
