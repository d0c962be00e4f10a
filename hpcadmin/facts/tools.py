"""Where the tools are that checks use. The names come with the probe; "" is looked for and not there."""

from __future__ import annotations

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean, lines_of, quote

NAME = "tools"
# TOOLS is set by the probe's beginning.
COMMAND = r"""
for t in $TOOLS; do printf '%s ' "$t"; command -v "$t" || echo; done
"""


def parse(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines_of(text, "command -v"):
        name, separator, path = line.strip("\r").partition(" ")
        if not separator or not name:
            raise ParseError(f"{quote(line)} is not a tool and its path")
        # command -v also prints the names of functions and aliases: these are no programs.
        found[name] = clean(path, 1000) if path.startswith("/") else ""
    return found
