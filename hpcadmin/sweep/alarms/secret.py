"""Secrets come from a file that nobody else may read, or from the environment; they are in no error and no log."""

from __future__ import annotations

import os
from pathlib import Path

from hpcadmin.errors import StoreError
from hpcadmin.files import read_bounded
from hpcadmin.sweep.alarms.model import AlarmError

MAX_SECRET_BYTES = 4096
HIDDEN = "***"


def secret(file: str, env: str, what: str) -> str:
    """What is in the file, else in the variable; "" when neither is named. AlarmError when it is not there."""
    if file:
        path = Path(file)
        try:
            if path.stat().st_mode & 0o007:
                raise AlarmError("may be used by everybody on this host", where=file, hint=f"chmod o= {file}")
            text = read_bounded(path.resolve(), limit=MAX_SECRET_BYTES + 1).decode("utf-8", "replace").strip()
        except StoreError as exc:
            raise AlarmError(exc.what, where=file) from exc
        except OSError as exc:
            raise AlarmError(f"cannot be read: {exc.strerror}", where=file) from exc
    elif env:
        text, file = os.environ.get(env, "").strip(), f"${env}"
    else:
        return ""
    if not text or len(text) > MAX_SECRET_BYTES or not text.isprintable():
        raise AlarmError(f"{'holds no' if not text else 'is not one line that is a'} {what}", where=file)
    return text


def one_of(file: str, env: str) -> bool:
    return bool(file) + bool(env) <= 1


def scrubbed(text: str, *secrets: str) -> str:
    for one in secrets:
        if one:
            text = text.replace(one, HIDDEN)
    return text
