"""Answers of sacctmgr made up for tests of availability."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from hpcadmin import records
from hpcadmin.slurm.events import EVENT_HEAD, Answers

CONFIG = "SlurmDBD configuration:\nPurgeEventAfter        = NONE\nTrackSlurmctldDown     = Yes\n"
# (node, from, to, state, StateRaw, reason)
Row = tuple[str, str, str, str, int, str]


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp())


def full(text: str) -> str:
    return datetime.fromisoformat(text).isoformat() if text != "Unknown" else text


def made_events(nodes: str, since: str, until: str, rows: Sequence[Row], *, outages: Sequence[tuple[str, str]] = (),
                reservations: Sequence[tuple[str, str, str, str]] = (), config: str = CONFIG) -> Answers:
    """outages of slurmctld: from, to. reservations: nodes, from, to, name; all for maintenance."""
    cluster = [f"made||{full(since)}|Unknown||0||{nodes}",
               *(f"made||{full(a)}|{full(b)}||1||" for a, b in outages)]
    ordered = sorted(rows, key=lambda row: (row[0], full(row[1])))
    return Answers(
        at(until), "24.11.5", "\n".join([EVENT_HEAD, *cluster, ""]),
        "\n".join([EVENT_HEAD, *(f"made|{n}|{full(a)}|{full(b)}|{state}|{raw}|root(0)|"
                                 for n, a, b, state, raw, _ in ordered), ""]),
        "\n".join(["NodeName|TimeStart|Reason", *(f"{n}|{full(a)}|{why}" for n, a, _, _, _, why in ordered), ""]),
        "\n".join(["ID|TimeStart|TimeEnd|Flags|NodeName", *(
            f"{i}|{full(a)}|{full(b)}|MAINT,SPEC_NODES|{n}" for i, (n, a, b, _) in enumerate(reservations, 1)), ""]),
        "\n".join(["ID|TimeStart|Name", *(
            f"{i}|{full(a)}|{name}" for i, (_, a, _, name) in enumerate(reservations, 1)), ""]),
        config, "Cluster|ControlHost|ControlPort\nmade|10.0.0.1|6817\n", 0, at(until))


def keep(answers: Answers, path: Path) -> Path:
    path.write_text(records.dumps(answers))
    return path
