"""The name of the hardware profile that this node only pretends to have (nodes of `hpcadmin lab`)."""

from __future__ import annotations

import re

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import lines_of, quote

NAME = "simulated"
ORDER = 2
COMMAND = r"""
if [ -e /etc/hpcadmin/simulated ]; then head -n 1 /etc/hpcadmin/simulated; else echo no; fi
"""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}\Z")


def parse(text: str) -> str:
    """"" on a real node."""
    lines = lines_of(text, "/etc/hpcadmin/simulated")
    name = lines[0].strip()
    if len(lines) != 1 or not _NAME.match(name):
        raise ParseError(f"{quote(text)} is not the name of a hardware profile")
    return "" if name == "no" else name
