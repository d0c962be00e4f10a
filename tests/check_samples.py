"""Sample outputs of checks: tests/samples/NAME/CASE.out with CASE.json, which says how it was run and what is right.

CASE.json: context (nodes, params, …), role, node, exit_status, timed_out, server (file of the other side), others
(files of the other outputs), and either `measurements` (only the fields that differ from their defaults) or `error` (a
part of the ParseError's text).
`python tests/check_samples.py` writes the measurements of samples that have neither: read them before you commit them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from hpcadmin import records
from hpcadmin.check import Context, Measurement, NodeView, Output, Role
from hpcadmin.registry import load_checks

SAMPLES = Path(__file__).parent / "samples"


@dataclass(frozen=True)
class Sample:
    path: Path
    wanted: dict[str, Any]

    @property
    def check(self) -> str:
        return self.path.parent.name

    @cached_property
    def text(self) -> str:
        # newline="": CRLF and lone CR stay as they are
        with self.path.open(encoding="utf-8", errors="replace", newline="") as stream:
            return stream.read()

    @cached_property
    def context(self) -> Context:
        given = dict(self.wanted.get("context", {}))
        nodes = tuple(records.from_plain(NodeView, n, where=str(self.path)) for n in given.pop("nodes", ()))
        return Context(nodes=nodes, **given)

    def outputs(self, text: str | None = None) -> list[Output]:
        w = self.wanted
        found = [Output(self.text if text is None else text, exit_status=w.get("exit_status", 0),
                        role=Role(w.get("role", "each")), node=w.get("node", ""), timed_out=w.get("timed_out", False))]
        if "server" in w:
            other = (self.path.parent / w["server"]).read_text(encoding="utf-8", errors="replace")
            found.insert(0, Output(other, exit_status=w.get("server_status", 0), role=Role.SERVER))
        found += [Output((self.path.parent / name).read_text(encoding="utf-8"), role=Role(w.get("role", "each")))
                  for name in w.get("others", ())]
        return found

    def parse(self, text: str | None = None) -> list[Measurement]:
        return load_checks()[self.check].parse(self.outputs(text), self.context)


def all_samples(checks: str = "*") -> list[Sample]:
    """checks: a shell pattern of names."""
    paths = sorted(SAMPLES.glob(f"{checks}/*.out"))
    return [Sample(path, json.loads(path.with_suffix(".json").read_text())) for path in paths
            if path.with_suffix(".json").exists()]


def sound_samples(checks: str = "*") -> list[Sample]:
    return [s for s in all_samples(checks) if "error" not in s.wanted and s.wanted.get("exit_status", 0) == 0]


_DEFAULTS = {f.name: f.default for f in fields(Measurement)}


def plain(measurements: Sequence[Measurement]) -> list[dict[str, Any]]:
    """Measurements as JSON, without what is as by default."""
    found = []
    for m in measurements:
        item = {k: v for k, v in records.to_plain(m).items() if v != _DEFAULTS.get(k, ...) and v not in ("", [])}
        item["subject"] = str(m.subject)
        if not item["subject"]:
            del item["subject"]
        found.append(item)
    return found


def main() -> None:
    for sample in all_samples():
        if "error" in sample.wanted or "measurements" in sample.wanted:
            continue
        lines = ",\n  ".join(json.dumps(m) for m in plain(sample.parse()))
        head = json.dumps(sample.wanted, indent=1)[:-2] + "," if sample.wanted else "{"
        sample.path.with_suffix(".json").write_text(f'{head}\n "measurements": [\n  {lines}\n ]\n}}\n')
        sys.stdout.write(f"{sample.path}\n")


if __name__ == "__main__":
    main()
