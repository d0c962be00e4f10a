"""Finds the data folders: inside the installed package first, beside it in a checkout second.

`importlib.resources` fails for two of the three ways hpcadmin may be installed (the folders are top-level in the
source tree and are mapped into the package by setup.cfg), so they are found by path.
"""

from __future__ import annotations

from pathlib import Path

from hpcadmin.errors import StoreError

_PACKAGE = Path(__file__).resolve().parent


def data_dir(name: str) -> Path:
    """The folder `checks`, `conf_templates` or `playbooks`. Raises StoreError when the installation lacks it."""
    for candidate in (_PACKAGE / name, _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    raise StoreError(f"the data folder {name!r} is missing from this installation", where=str(_PACKAGE),
                     hint="reinstall hpcadmin")
