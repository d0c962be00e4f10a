"""ssh_config files as one text: the user's first, then the system's, with their Include lines put in (paramiko knows no
Include, and Debian's /etc/ssh/ssh_config begins with one)."""

from __future__ import annotations

import glob
import os
import re
from pathlib import Path

from hpcadmin.errors import UsageError

MAX_DEPTH = 8
MAX_FILES = 200
_KEYWORD = re.compile(r"\s*([A-Za-z]{1,40})\s*[=\s]\s*(.*)")


def read(path: str) -> str:
    """The named file alone, as `ssh -F` does; the user's and the system's for "". Raises UsageError when a named file
    cannot be read."""
    if path:
        try:
            return _expand(Path(path).expanduser(), Path("~/.ssh").expanduser(), [0], must=True)
        except OSError as exc:
            raise UsageError(f"cannot be read: {exc.strerror}", where=path, hint="[ssh] config in site.toml") from exc
    home = Path("~/.ssh").expanduser()
    system = Path("/etc/ssh")
    return _expand(home / "config", home, [0]) + "\nHost *\n" + _expand(system / "ssh_config", system, [0])


def _expand(path: Path, base: Path, count: list[int], depth: int = 0, must: bool = False) -> str:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        if must:
            raise
        return ""
    lines = []
    block = "Host *"
    for line in text.splitlines():
        match = _KEYWORD.match(line)
        word = match[1].lower() if match else ""
        if word in ("host", "match"):
            block = line
        if word != "include" or match is None or depth >= MAX_DEPTH:
            lines.append(line)
            continue
        for pattern in match[2].split():
            name = os.path.expanduser(pattern.strip('"'))  # noqa: PTH111  (glob takes text)
            for found in sorted(glob.glob(str(base / name))):  # noqa: PTH207
                count[0] += 1
                if count[0] <= MAX_FILES:
                    lines.append(_expand(Path(found), base, count, depth + 1))
        lines.append(block)      # what follows belongs to the block it stands in, not to the included file's last one
    return "\n".join(lines)
