"""Which back end speaks to Slurm: [slurm] backend of the site's file, and what works here."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib.machinery import PathFinder
from pathlib import Path

from hpcadmin.errors import SiteError
from hpcadmin.site import Site
from hpcadmin.slurm.client import Client
from hpcadmin.slurm.command_line import TIMEOUT_S, CommandLine
from hpcadmin.slurm.pyslurm_backend import Pyslurm, PyslurmBackend
from hpcadmin.toml_text import locate

BACKENDS = ("auto", "command", "pyslurm")


def to_stderr(text: str) -> None:
    print(f"hpcadmin: warning: {text}", file=sys.stderr)


def choose(site: Site, warn: Callable[[str], None] = to_stderr, *, timeout_s: float = TIMEOUT_S) -> Client:
    """auto: pyslurm where it is installed and of the cluster's version. A pyslurm that was wanted, or is there and
    cannot be used, is told in one line; the commands do it then."""
    backend = site.slurm.backend
    if backend not in BACKENDS:
        raise SiteError(f"[slurm] backend is {backend!r}", where=locate(site.source, "slurm.backend"),
                        hint=f"one of {', '.join(BACKENDS)}")
    commands = CommandLine()
    conf = os.environ.get("SLURM_CONF", "")
    if backend == "command" or (conf and not Path(conf).exists()):     # the commands say so; libslurm waits a minute
        return commands
    folder = installed()
    if folder is None:
        if backend == "pyslurm":
            warn(f"pyslurm is not used, Slurm's commands are: it is not installed for {sys.executable}")
        return commands
    client = PyslurmBackend(commands, Pyslurm(folder, timeout_s=timeout_s), warn)
    return client if client.start() else commands


def installed() -> Path | None:
    """The folder that pyslurm is in, found without an import. A folder of that name without a module is not it."""
    spec = PathFinder.find_spec("pyslurm")
    if spec is None or not spec.has_location or not spec.origin:
        return None
    origin = Path(spec.origin)
    return origin.parent.parent if spec.submodule_search_locations else origin.parent
