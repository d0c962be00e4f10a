"""Passwords in lines of Slurm's files: never in a message, a difference or JSON."""

from __future__ import annotations

import re

HIDDEN = "*****"
_NAMES = r"pass(?:word|wd|phrase)?|secret|token"
# A value ends with its quotes or the next blank; it may go on behind a backslash at the end of the line. Of a list
# (user=u,password=p,x=1) all that follows is hidden: a password may have commas.
_KEYED = re.compile(rf"""(?i)(\w*(?:{_NAMES})[ \t]*[-+*/]?=[ \t]*(?:\\\r?\n[ \t]*)*)"""
                    r"""("[^"]*"?|(?:\\\r?\n|[^\s"])(?:\\\r?\n|[^\s])*)""")
_LINE = re.compile(rf"""(?im)^([ \t#]*\w*(?:{_NAMES})[ \t]*[-+*/]?=)(?:\\\r?\n|[^\n])+""")
_URL = re.compile(r"""(?i)\b([a-z][a-z0-9+.-]{0,20}://[^\s/@:"]{0,200}:)[^\s@"/]{1,200}@""")
_KEY = re.compile(rf"(?i)\w*(?:{_NAMES})\Z")


def secret(key: str) -> bool:
    """Whether the value of a key of this name is a password."""
    return _KEY.match(key) is not None


def hidden_lines(text: str) -> str:
    """The same for the text of a file: of a line that begins with such a key nothing else is left, for a password with
    blanks may stand there without quotes."""
    return hidden(_LINE.sub(rf"\1{HIDDEN}", text))


def hidden(text: str) -> str:
    """The text with ***** in the place of passwords: values of such keys, also within other values, and in URLs."""
    if "=" in text:
        text = _KEYED.sub(rf"\1{HIDDEN}", text)
    return _URL.sub(rf"\1{HIDDEN}@", text) if "://" in text else text
