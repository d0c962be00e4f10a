"""The document's words: one catalogue a language, and a sentence that is not yet in any of them."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Union

from hpcadmin.errors import UsageError
from hpcadmin.handover import texts_en, texts_zh, told_zh
from hpcadmin.handover.told import Told

LANGUAGES: Mapping[str, Mapping[str, str]] = {"en": texts_en.TEXTS, "zh": texts_zh.TEXTS}
TOLD: Mapping[str, Told] = {"zh": Told(told_zh.TOLD, told_zh.HEADS)}       # the records are in English themselves
_TOLD = "told"
Arg = Union[str, int, "Msg"]


@dataclass(frozen=True)
class Msg:
    """A sentence of the catalogue with what is put into it. key "": the text itself, which is data."""

    key: str
    args: Mapping[str, Arg] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash((self.key, tuple(self.args.items())))


def msg(key: str, **args: Arg) -> Msg:
    return Msg(key, args)


def data(text: str) -> Msg:
    """What is no sentence of ours: a contract's words, a reason that a tool gave."""
    return Msg("", {"text": text})


def told(text: str) -> Msg:
    """What the run's records say, a reason or a cause: in English, and translated where it is shown."""
    return Msg(_TOLD, {"text": text})


def listed(*items: Msg) -> Msg:
    return Msg("list", {str(n): item for n, item in enumerate(items)})


class Words:
    """One language's catalogue."""

    def __init__(self, language: str) -> None:
        if language not in LANGUAGES:
            raise UsageError(f"no language {language!r}; known are {', '.join(LANGUAGES)}")
        self.language = language
        self._texts = LANGUAGES[language]

    def __call__(self, key: str, **args: Arg) -> str:
        return self.say(Msg(key, args))

    def say(self, message: Msg) -> str:
        if not message.key:
            return str(message.args["text"])
        if message.key == _TOLD:
            return self.told(str(message.args["text"]))
        said = {k: f"{v:,}" if isinstance(v, int) else self.say(v) if isinstance(v, Msg) else v
                for k, v in message.args.items()}
        return self._texts["list"].join(said.values()) if message.key == "list" else self._texts[
            message.key].format_map(said)

    def told(self, text: str) -> str:
        """What the run's records say, in this language as far as it is a sentence of ours."""
        return TOLD[self.language](text) if self.language in TOLD else text


def places(text: str) -> set[str]:
    """What is put into a text: {count}, {name}."""
    return {name for _, name, _, _ in string.Formatter().parse(text) if name}
