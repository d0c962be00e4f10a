"""IP addresses of the node."""

from __future__ import annotations

from ipaddress import ip_address

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import lines_of

NAME = "addresses"
COMMAND = "run 20 ip -o addr show scope global"


def parse(text: str) -> tuple[str, ...]:
    """Global addresses in the order of the interfaces, IPv4 first."""
    found: list[str] = []
    for line in lines_of(text, "ip addr"):
        words = line.split()
        if len(words) < 4 or words[2] not in ("inet", "inet6"):
            continue
        try:
            address = str(ip_address(words[3].partition("/")[0]))
        except ValueError as exc:
            raise ParseError(f"{words[3]!r} is not an IP address") from exc
        if address not in found:
            found.append(address)
    if not found:
        raise ParseError("ip addr shows no address")
    return tuple(sorted(found, key=lambda address: ":" in address))
