"""Reports on a run. A new format is a new module in this folder with `FORMAT = ReportFormat(...)`."""

from __future__ import annotations

import importlib
import pkgutil

from hpcadmin.report.base import Options, ReportFormat, terminal_options

__all__ = ["Options", "ReportFormat", "formats", "terminal_options"]


def formats() -> dict[str, ReportFormat]:
    """All formats by name: every module of this folder that has a FORMAT. What is heavy is imported when rendering."""
    found = {}
    for info in pkgutil.iter_modules(__path__):
        made = getattr(importlib.import_module(f"{__name__}.{info.name}"), "FORMAT", None)
        if isinstance(made, ReportFormat):
            found[made.name] = made
    return dict(sorted(found.items()))
