"""The name of the hardware profile that this node only pretends to have (nodes of `hpcadmin lab`)."""

from __future__ import annotations

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean, lines_of

NAME = "simulated"
ORDER = 2
COMMAND = r"""
if [ -e /etc/hpcadmin/simulated ]; then head -n 1 /etc/hpcadmin/simulated; else echo no; fi
"""


def parse(text: str) -> str:
    """"" on a real node."""
    lines = lines_of(text, "/etc/hpcadmin/simulated")
    if len(lines) != 1:
        raise ParseError("/etc/hpcadmin/simulated has more than one line")
    return "" if lines[0].strip() == "no" else clean(lines[0])
