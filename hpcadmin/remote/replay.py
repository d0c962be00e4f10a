"""Captures that were made before, in place of the machines: a folder with HOST.txt, or single files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from hpcadmin.errors import StoreError, UsageError
from hpcadmin.files import read_bounded
from hpcadmin.hosts import is_node_name
from hpcadmin.remote.base import DEFAULT_LIMIT, CommandResult

SUFFIX = ".txt"


class Replay:
    """Answers with the capture of each host, whatever the command."""

    def __init__(self, paths: Iterable[Path]) -> None:
        """Raises UsageError when a path has no captures, or two files are about the same host."""
        self.files: dict[str, Path] = {}
        for path in paths:
            for file in _captures(path):
                other = self.files.setdefault(file.stem, file)
                if other != file:
                    raise UsageError(f"two captures of {file.stem}: {other} and {file}")

    @property
    def hosts(self) -> list[str]:
        return list(self.files)

    def run(self, host: str, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30.0,
            limit: int = DEFAULT_LIMIT) -> CommandResult:
        file = self.files.get(host)
        if file is None:
            return CommandResult(host, error="there is no capture of it")
        try:
            output = read_bounded(file, limit=limit + 1)
        except StoreError as exc:
            return CommandResult(host, error=str(exc))
        if len(output) > limit:
            return CommandResult(host, output[:limit], error=f"{file}: larger than {limit} bytes", truncated=True)
        return CommandResult(host, output, 0)


def _captures(path: Path) -> list[Path]:
    if not path.is_dir():
        if not path.exists():
            raise UsageError("there is no such file or folder", where=str(path))
        found = [path]
    else:
        try:
            found = sorted(entry for entry in path.iterdir() if entry.suffix == SUFFIX and not entry.is_dir())
        except OSError as exc:
            raise UsageError(f"cannot be read: {exc.strerror}", where=str(path)) from exc
        if not found:
            raise UsageError(f"the folder has no captures (NODE{SUFFIX})", where=str(path))
    for file in found:
        if not is_node_name(file.stem):
            raise UsageError(f"{file.name!r} is not named after a node", where=str(path),
                             hint=f"a capture is NODE{SUFFIX}")
    return found
