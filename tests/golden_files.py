"""Texts compared whole with their golden files; HPCADMIN_GOLDEN=write writes them anew."""

import os
from pathlib import Path


def compare(path: Path, text: str) -> None:
    if os.environ.get("HPCADMIN_GOLDEN") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), path
