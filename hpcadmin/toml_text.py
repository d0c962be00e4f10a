"""A site's TOML files: read strictly, and on which line a key stands."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from hpcadmin.errors import SiteError

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover
    import tomli as tomllib

MAX_TOML_BYTES = 10 * 1024 * 1024
_TABLE = re.compile(r"\s*\[\[?\s*(.+?)\s*\]\]?\s*(#.*)?")
_KEY = re.compile(r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file. Raises SiteError with file:line when it cannot be read or is not TOML."""
    return parse_toml(read_raw(path), str(path))


def read_raw(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
    except OSError as exc:
        raise SiteError(f"cannot be read: {exc.strerror}", where=str(path)) from exc
    if len(raw) > MAX_TOML_BYTES:
        raise SiteError(f"is larger than {MAX_TOML_BYTES} bytes", where=str(path))
    return raw


def parse_toml(raw: bytes, name: str) -> dict[str, Any]:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as exc:
        line = raw[: exc.start].count(b"\n") + 1
        raise SiteError("is not UTF-8", where=f"{name}:{line}") from exc
    try:
        tables: dict[str, Any] = tomllib.loads(text)
        return tables
    except tomllib.TOMLDecodeError as exc:
        match = re.search(r"\(at line (\d+), column (\d+)\)", str(exc))
        line_text = f"{name}:{match[1]}" if match else f"{name}:{text.count(chr(10)) + 1}"
        raise SiteError(f"not valid TOML: {re.sub(r' ?[(]at .*[)]$', '', str(exc))}", where=line_text) from exc
    except RecursionError as exc:
        raise SiteError("not valid TOML: nested too deeply", where=name) from exc


def locate(file_name: str, key: str) -> str:
    """file:line of a dotted key: where it is set, else its table or what holds it; the file alone when not found."""
    try:
        lines = Path(file_name).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return file_name
    found: dict[str, int] = {}
    table = ""
    for number, line in enumerate(lines, 1):
        header, entry = _TABLE.fullmatch(line), _KEY.match(line)
        if header:
            table = _dotted(header[1])
            found.setdefault(table, number)
        elif entry:
            found.setdefault(f"{table}.{_dotted(entry[1])}" if table else _dotted(entry[1]), number)
    # Of entries of an array of tables only the key within the entry is told.
    last = next((number for name, number in found.items() if name.endswith(f".{key}")), None)
    if key not in found and last is not None:
        return f"{file_name}:{last}"
    while key:
        if key in found:
            return f"{file_name}:{found[key]}"
        inner = next((number for name, number in found.items() if name.startswith(f"{key}.")), None)
        if inner is not None:
            return f"{file_name}:{inner}"
        key = key.rpartition(".")[0]
    return file_name


def _dotted(text: str) -> str:
    return ".".join(part.strip("\"'") for part in _PART.findall(text))
