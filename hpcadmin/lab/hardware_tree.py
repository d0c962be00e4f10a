"""Writes trees of many small files: equal contents share one file, so that a node costs little memory."""

from __future__ import annotations

import os
from pathlib import Path


class Tree:
    """A folder being filled; never written to again through the same names (contents are hard links)."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._pool: dict[tuple[bytes, int], str] = {}
        self._folders: set[str] = set()
        self._folder(str(root))

    def file(self, name: str, content: str | bytes, mode: int = 0o444) -> None:
        raw = content.encode() if isinstance(content, str) else content
        path = f"{self.root}/{name}"
        self._folder(path.rpartition("/")[0])
        twin = self._pool.get((raw, mode))
        if twin is not None:
            os.link(twin, path)
            return
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(fd, raw)
            os.fchmod(fd, mode)
        finally:
            os.close(fd)
        self._pool[raw, mode] = path

    def value(self, name: str, value: object) -> None:
        """A file as sysfs has it: the value and a line end."""
        self.file(name, f"{value}\n")

    def link(self, name: str, target: str) -> None:
        """A symbolic link at `name` to `target`, both counted from the tree's root; stored relative."""
        path = f"{self.root}/{name}"
        self._folder(path.rpartition("/")[0])
        Path(path).symlink_to(os.path.relpath(f"{self.root}/{target}", path.rpartition("/")[0]))

    def folder(self, name: str) -> None:
        self._folder(f"{self.root}/{name}")

    def _folder(self, path: str) -> None:
        if path in self._folders:
            return
        parent = path.rpartition("/")[0]
        if path.startswith(f"{self.root}/"):
            self._folder(parent)
        if not Path(path).is_dir():
            Path(path).mkdir(parents=True)
            Path(path).chmod(0o755)
        self._folders.add(path)
