"""Where hpcadmin keeps its own files: accepted inventory, captures, runs, built programs."""

from __future__ import annotations

import os
from pathlib import Path

from hpcadmin.errors import StoreError
from hpcadmin.site import Site


def state_dir(site: Site) -> Path:
    """$HPCADMIN_DIR, else [run] dir of the site's file, else ~/hpcadmin; absolute, not created here."""
    named = os.environ.get("HPCADMIN_DIR") or site.run_dir or "~/hpcadmin"
    return Path(os.path.abspath(Path(named).expanduser()))  # noqa: PTH100  (links stay as the nodes see them)


def runs_dir(site: Site) -> Path:
    return state_dir(site) / "runs"


def bin_dir(site: Site) -> Path:
    return state_dir(site) / "bin"


def inventory_file(site: Site) -> Path:
    return state_dir(site) / "inventory.json"


def make_private(folder: Path) -> Path:
    """`folder` with its parents, readable by its owner alone. Raises StoreError in one line."""
    try:
        for path in [*reversed([p for p in folder.parents if not p.exists()]), folder]:     # mkdir's mode is the last's
            path.mkdir(exist_ok=True, mode=0o700)
    except OSError as exc:
        raise StoreError(f"cannot be created: {exc.strerror}", where=str(folder),
                         hint="[run] dir in site.toml or HPCADMIN_DIR names another place") from exc
    return folder
