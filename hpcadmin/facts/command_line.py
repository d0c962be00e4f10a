"""The kernel's command line."""

from __future__ import annotations

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean, lines_of, quote
from hpcadmin.facts._reading import Document, Reading

NAME = "command_line"
COMMAND = r"""
[ -r /proc/cmdline ] || return 127
v=; { read -r v </proc/cmdline; } 2>/dev/null
printf 'cmdline=%s\n' "$v"
"""
FORMS = ("text",)
MARKS = ("BOOT_IMAGE=",)


def parse(text: str) -> str:
    lines = lines_of(text, "/proc/cmdline")
    if len(lines) != 1 or not lines[0].startswith("cmdline=") or not text.endswith("\n"):
        raise ParseError(f"{quote(text)} is not the kernel's command line")
    return clean(lines[0].partition("=")[2], 4000)


def read(document: Document) -> tuple[Reading, ...]:
    """A line that begins as boot loaders write it."""
    for number, line in enumerate(document.lines, 1):
        text = line.strip()
        if text.startswith("BOOT_IMAGE=") and " " in text:
            value = clean(text, 4000)
            return (Reading("/proc/cmdline", number, number, value, {"command_line": value}),)
    return ()
