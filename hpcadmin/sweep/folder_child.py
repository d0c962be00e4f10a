"""Reads the nodes' results for the sweep, in a process of its own: a folder on a server that is dead keeps whoever
reads it, and the sweep gives this process up. Names on the standard input; for each a line of JSON, as it comes."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from hpcadmin.errors import StoreError
from hpcadmin.files import read_bounded


def read_one(path: Path, limit: int) -> dict[str, str]:
    try:
        path.lstat()
    except FileNotFoundError:
        return {"why": "no result"}
    except OSError as exc:
        return {"why": f"cannot be read: {exc.strerror}"}
    try:
        raw = read_bounded(path, limit=limit + 1)
    except StoreError as exc:
        return {"why": exc.what}
    if len(raw) > limit:
        return {"why": f"result of more than {limit} bytes"}
    return {"text": raw.decode("utf-8", "replace")}


def unusable(folder: Path) -> str:
    """A folder that cannot be looked into is not an empty one."""
    try:
        os.scandir(folder).close()
    except (FileNotFoundError, NotADirectoryError):
        return "is not a folder"
    except OSError as exc:
        return f"cannot be read: {exc.strerror}"
    return ""


def main() -> None:
    folder, limit = Path(sys.argv[1]), int(sys.argv[2])
    if why := unusable(folder):
        print(json.dumps({"folder": why}), flush=True)
        return
    for line in sys.stdin:
        name = line.rstrip("\n")
        print(json.dumps({"node": name, **read_one(folder / f"{name}.json", limit)}), flush=True)


if __name__ == "__main__":
    main()
