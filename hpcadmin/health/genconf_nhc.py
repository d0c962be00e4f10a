"""nhc.conf -> health.toml: each line as an entry of ours, or as a comment that says why it is not carried over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hpcadmin.health import genconf_nhc_checks as checks
from hpcadmin.health.node import masks, nhc_words
from hpcadmin.health.node.nhc import KNOWN
from hpcadmin.health.node.nhc_match import is_name, range_parts
from hpcadmin.health.node.nhc_plan import FOLLOWED, HARMLESS
from hpcadmin.health.node.nhc_read import BLANKS, logical_lines
from hpcadmin.health.toml_text import Table, document


def from_nhc(text: str, name: str) -> str:
    """The text of health.toml. Raises ValueError for a file that is no nhc.conf by its size."""
    writer = _Writer()
    tables = [table for number, line, odd in logical_lines(text) for table in writer.line(number, line, odd)]
    head = [f"Made from {name}. A line that is only a comment was not carried over; the reason stands before it.",
            "hpcadmin health check FILE looks at it, hpcadmin health compile FILE writes what the nodes read."]
    return document(head, tables)


class _Writer:
    def __init__(self) -> None:
        self.names: dict[str, str] = {}
        self.ids: dict[str, int] = {}

    def line(self, number: int, line: str, odd: list[str]) -> Iterator[Table]:
        mask, bar, check = line.partition("||")
        mask, check = mask.strip(BLANKS), check.strip(BLANKS)
        if not mask or mask[0] == "#" or (bar and not check):
            return
        if not bar:
            yield self._left(number, line, "it has no ||: NHC skips it")
            return
        try:
            nodes, notes = _nodes(mask)
            yield from self._check(number, mask, nodes, nhc_words.squeeze(check), [*odd, *notes])
        except checks.NotCarriedOver as exc:
            yield self._left(number, f"{mask} || {check}", str(exc))
        except nhc_words.NotRun as exc:
            yield self._left(number, f"{mask} || {check}", f"only a shell can do this: {exc}")
        except nhc_words.WrongSyntax as exc:
            yield self._left(number, f"{mask} || {check}", f"the line is wrong: {exc}")

    def _left(self, number: int, line: str, why: str) -> Table:
        return Table(notes=(f"line {number}, not carried over: {why}", f"    {line}"))

    def _check(self, number: int, mask: str, nodes: list[str], text: str, odd: list[str]) -> Iterator[Table]:
        words = [word.text for word in nhc_words.split(text, self.names)]
        if words and words[0] == "export":
            words = words[1:]
        if words and all(nhc_words.is_name(word.partition("=")[0]) and "=" in word for word in words):
            yield self._setting(number, mask, words, text)
            return
        if not words:
            return
        if words[0] not in KNOWN:
            raise checks.NotCarriedOver(f"{words[0]} is no check of NHC's own; a check of the site is a file "
                                        "(docs/health.md)")
        for entry in checks.carried(words[0], words[1:]):
            values: dict[str, Any] = {"id": self._id(entry.use, number), **entry.values}
            if nodes:
                values["nodes"] = nodes
            yield Table(entry.use, values, (f"line {number}: {mask} || {text}", *odd, *entry.notes))

    def _id(self, use: str, number: int) -> str:
        """The line it came from, with a letter for what one line became several of."""
        key = f"{use}:{number}"
        self.ids[key] = self.ids.get(key, 0) + 1
        return f"line{number}" if self.ids[key] == 1 else f"line{number}-{self.ids[key]}"

    def _setting(self, number: int, mask: str, words: list[str], text: str) -> Table:
        values: Mapping[str, str] = dict(word.split("=", 1) for word in words)
        if mask == "*":
            self.names.update(values)
        ours = all(name in HARMLESS for name in values)
        why = ("it sets NHC's own behaviour" if ours else "what it sets is used in the lines below"
               if mask == "*" and not any(name in FOLLOWED for name in values) else "it changes how NHC's checks work")
        return self._left(number, f"{mask} || {text}", why)


def _nodes(mask: str) -> tuple[list[str], tuple[str, ...]]:
    """The mask as one of ours, none for every node; and what is different from NHC."""
    if mask == "*":
        return [], ()
    sign, bare = ("!" if mask.startswith("!") else ""), mask.removeprefix("!")
    if bare[:1] not in ("/", "{") and ("[" in bare or "(" in bare):
        raise checks.NotCarriedOver("its mask is a glob with brackets, which would be read as a range of nodes: write "
                                    "it as a regular expression")
    if bare in ("", "/") or bare[0] == "@" or (bare[0] not in "/{" and set(bare) & set(",]")):
        raise checks.NotCarriedOver("its mask is none of ours: write the nodes as {gpu[001-100]}")
    if bare[0] == "{" and bare[-1] == "}":
        bare, strange = _ranges(bare[1:-1])
        why = f"NHC does not understand {strange[0]!r} in its mask and passes over it from there" if strange else ""
        return [checks.mask(sign + bare)], (why,) if why else ()
    return [checks.mask(mask)], ()


def _ranges(inside: str) -> tuple[str, list[str]]:
    """Nodes as NHC counts them: n[1-10] has as many digits as the longer end, n[10-01] is n[01-10]; what is no range of
    NHC's."""
    written, strange = [], [part for part in inside.split(",") if part != part.strip() or not part]
    for group in masks.split(inside):
        parts = range_parts(group)
        if parts is None:
            strange += [] if is_name(group) else [group]
            written.append(group)
            continue
        prefix, low, high, suffix = parts
        width = max(len(low), len(high))
        low, high = sorted((low, high), key=int)
        written.append(f"{prefix}[{low.zfill(width)}-{high.zfill(width)}]{suffix}")
    return "{" + ",".join(written) + "}", strange
