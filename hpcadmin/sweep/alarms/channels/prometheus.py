"""Prometheus: a file for the textfile collector of node_exporter, replaced in one step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hpcadmin.errors import StoreError
from hpcadmin.files import write_atomic
from hpcadmin.sweep.alarms.metrics import render
from hpcadmin.sweep.alarms.model import AlarmError, Channel, State


@dataclass(frozen=True)
class Settings:
    file: str = "/var/lib/prometheus/node-exporter/hpcadmin.prom"


def show(settings: Settings, state: State, _timeout_s: float) -> None:
    """The name that it is written under first does not end in .prom: node_exporter never reads half a file."""
    try:
        write_atomic(Path(settings.file), render(state), mode=0o644)
    except StoreError as exc:
        raise AlarmError(exc.what, where=settings.file, hint="the folder must be there, and writable") from exc


def problem(settings: Settings) -> tuple[str, str] | None:
    if not settings.file.startswith("/") or not settings.file.endswith(".prom"):
        return "file", "must be the whole path of a file that ends in .prom"
    return None


CHANNEL = Channel(Settings, show=show, problem=problem)
