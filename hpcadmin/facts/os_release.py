"""The operating system's name from /etc/os-release."""

from __future__ import annotations

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean, lines_of, pairs

NAME = "os_release"
COMMAND = r"""
for f in /etc/os-release /usr/lib/os-release; do
  [ -r $f ] || continue
  while read -r v; do echo "$v"; done <$f
  return 0
done
return 127
"""


def parse(text: str) -> str:
    found = {key: value.strip("\"'") for key, value in pairs(lines_of(text, "/etc/os-release"), "=")}
    value = clean(found.get("PRETTY_NAME") or " ".join(filter(None, (found.get("NAME"), found.get("VERSION_ID")))))
    if not value:
        raise ParseError("/etc/os-release has no PRETTY_NAME and no NAME")
    return value
