"""Reads what small "hello" programs other than ours print: a line for each rank, with the number of ranks and often the
host. They tell which ranks came up and where, and nothing of messages between them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hpcadmin.text import printable

_FROM = re.compile(r"Hello,? ?world[,!]? (?:from ){1,2}processor (\S{1,255}), rank (\d{1,7}) (?:out )?of (\d{1,7})\b",
                   re.IGNORECASE)
_GREETING = re.compile(r"(?:Hello|Hi|Greetings)\b(.{0,80}?)\b(?:rank|process|processor|proc|task|am)[ #:=]{1,3}"
                       r"(\d{1,7}) ?(?:out of|of|/) ?(\d{1,7})\b(.{0,400})", re.IGNORECASE)
_ALIVE = re.compile(r"(?:rank|process|proc) {1,20}(\d{1,7}) of {1,20}(\d{1,7}) (?:is|on|running)\b(.{0,400})",
                    re.IGNORECASE)
_BEFORE = re.compile(r" ?,? (?:world )?from (?:host |node |processor )?([\w.-]{1,255})[,:]? ?(?:\(|i am )?$",
                     re.IGNORECASE)
_HOST = re.compile(r"\b(?:on|at) (?:host |node |processor )?([\w.-]{1,255})")


@dataclass(frozen=True)
class Greetings:
    """ranks, hosts: where all is there. problems: what is missing or does not agree."""

    ranks: int | None
    hosts: tuple[str, ...]
    problems: tuple[str, ...]


def _one(line: str) -> tuple[int, int, str] | None:
    """(rank, of how many, host or "") of a line."""
    begin = max(line.lower().find("hello"), 0)
    line = line[begin:begin + 1000]
    found = _FROM.match(line)
    if found:
        return int(found[2]), int(found[3]), found[1]
    found = _GREETING.match(line)
    if found:
        host = _HOST.search(found[4].split("(")[0]) or _BEFORE.match(found[1])
        return int(found[2]), int(found[3]), host[1] if host else ""
    found = _ALIVE.match(line)
    host = _HOST.search(f" on{found[3].removeprefix(' on')}") if found else None
    return (int(found[1]), int(found[2]), host[1] if host and host[1] != "alive" else "") if found else None


def read(lines: Sequence[str]) -> Greetings | None:
    """None where no line greets."""
    found = [one for one in map(_one, lines) if one]
    if not found:
        return None
    sizes, ranks = {size for _, size, _ in found}, Counter(rank for rank, _, _ in found)
    hosts = tuple(dict.fromkeys(host for _, _, host in found)) if all(host for _, _, host in found) else ()
    problems = _problems(sizes, ranks, len(found))
    return Greetings(None if problems else sizes.pop(), hosts, tuple(problems))


def _problems(sizes: set[int], ranks: Counter[int], lines: int) -> list[str]:
    if len(sizes) > 1:
        return [f"ranks of {' and '.join(map(str, sorted(sizes)[:6]))}: several programs, or mixed output"]
    size = min(sizes)
    if size == 1 and lines > 1:
        return [f"{lines} programs of one rank each: the ranks did not find each other"]
    first = 1 if size in ranks else 0                  # some count from 1
    wanted = range(first, first + size) if size <= 1_000_000 else range(0)
    missing = [rank for rank in wanted if rank not in ranks]
    twice = [rank for rank, count in ranks.items() if count > 1]
    strange = [rank for rank in ranks if rank not in wanted]
    return [f"rank {_list(which)} of {size} {what}" for which, what in
            ((missing, "is missing"), (twice, "comes twice"), (strange, "cannot be")) if which]


def _list(ranks: Sequence[int]) -> str:
    return printable(", ".join(map(str, ranks[:8])) + (" and more" if len(ranks) > 8 else ""))
