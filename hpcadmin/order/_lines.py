"""In which line of a TOML file a key stands. tomllib does not tell."""

from __future__ import annotations

import re
from collections.abc import Sequence

_HEADER = re.compile(r"\s*(\[\[?)([^\[\]]{1,200})\]\]?\s*(#.*)?\Z")
_KEY = re.compile(r"""\s*(?:"([^"]{1,100})"|'([^']{1,100})'|([A-Za-z0-9_-]{1,100}))\s*[.=]""")
Key = tuple["str | int", ...]


class Lines:
    """Of one file. A path has names, and numbers in arrays of tables: ("groups", "gpu", "nics", 1, "rate_gbps")."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self._found: dict[Key, int] = {}
        count: dict[Key, int] = {}
        table: Key = ()
        for number, line in enumerate(text.split("\n"), 1):
            header, key = _HEADER.match(line), _KEY.match(line)
            if header:
                table = self._table([part.strip().strip("\"'") for part in header[2].split(".")],
                                    header[1] == "[[", count)
                for length in range(1, len(table) + 1):
                    self._found.setdefault(table[:length], number)
            elif key:
                self._found.setdefault((*table, key[1] or key[2] or key[3]), number)

    @staticmethod
    def _table(parts: Sequence[str], repeated: bool, count: dict[Key, int]) -> Key:
        path: Key = ()
        for place, part in enumerate(parts):
            path = (*path, part)
            if repeated and place == len(parts) - 1:
                count[path] = count.get(path, -1) + 1
            if path in count:
                path = (*path, count[path])
        return path

    def where(self, *path: str | int) -> str:
        """file:line of the key, or of the innermost table above it that is found."""
        for length in range(len(path), 0, -1):
            if path[:length] in self._found:
                return f"{self.name}:{self._found[path[:length]]}"
        return f"{self.name}:1"
