"""What the run's records say in English - reasons, causes, titles of checks - in the document's language.

A catalogue has pairs of an English pattern and its translation. In a pattern {name} is text without "; ", {name:w} one
word, {name:t} any text that is translated in turn. What fits no pattern stays as it is: what tools and people wrote.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_MOST_CHARACTERS = 1500      # of a text; longer ones are no sentences of ours
_MOST_PARTS = 40
_MOST_DEEP = 6
_LEADING = r"((?:(?!; |: ).)+?)"       # at the beginning, where names may stand before: "node03: FAIL: …"
_WAYS = {"": r"((?:(?!; ).)+?)", "t": r"(.+?)", "w": r"([^\s;]+)"}


@dataclass(frozen=True)
class _Pattern:
    expression: re.Pattern[str]
    names: tuple[str, ...]
    again: frozenset[str]              # translated in turn
    text: str


def _pattern(english: str, text: str) -> _Pattern:
    made, names, again = "", [], set()
    for literal, name, way, _ in string.Formatter().parse(english):
        made += re.escape(literal)
        if name:
            made += _LEADING if not (made or way) else _WAYS[way or ""]
            names.append(name)
            if way == "t":
                again.add(name)
    return _Pattern(re.compile(made, re.DOTALL), tuple(names), frozenset(again), text)


class Told:
    """One language's catalogue of what is told. heads: words that stand before ": ", as a status."""

    def __init__(self, pairs: Sequence[tuple[str, str]], heads: Mapping[str, str]) -> None:
        self._exact = {english: text for english, text in pairs if "{" not in english}
        self._patterns = [_pattern(english, text) for english, text in pairs if "{" in english]
        self._heads = dict(heads)
        self._known: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        found = self._known.get(text)
        if found is None:
            found = self._known[text] = self._say(text, 0) if len(text) <= _MOST_CHARACTERS else text
        return found

    def _say(self, text: str, deep: int) -> str:
        parts = text.split("; ")
        head, colon, _ = text.partition(": ")
        whole = None if colon and head in self._heads else self._whole(text, deep)
        if whole is not None:
            return whole
        if deep >= _MOST_DEEP or len(parts) > _MOST_PARTS:
            return text
        said = [self._part(part, deep + 1) for part in parts]
        return "；".join(said) if said != parts else text  # noqa: RUF001

    def _whole(self, text: str, deep: int) -> str | None:
        found = self._exact.get(text)
        if found is not None or deep > _MOST_DEEP:
            return found
        for pattern in self._patterns:
            match = pattern.expression.fullmatch(text)
            if match:
                values = dict(zip(pattern.names, match.groups(), strict=True))
                return pattern.text.format_map({
                    name: self._say(value, deep + 1) if name in pattern.again else value
                    for name, value in values.items()})
        return None

    def _part(self, part: str, deep: int) -> str:
        """A sentence, or one behind a name: "node03 GPU 5: …"."""
        head, colon, rest = part.partition(": ")
        title = self._heads.get(head, head)
        whole = None if colon and title != head else self._whole(part, deep)
        if whole is not None:
            return whole
        if not colon or deep > _MOST_DEEP:
            return part
        said = self._part(rest, deep + 1)
        return f"{title}：{said}" if (said, title) != (rest, head) else part  # noqa: RUF001
