"""What conf check found, for people and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcadmin.errors import EXIT_FAILED, EXIT_INCOMPLETE, EXIT_OK, EXIT_UNREACHABLE

if TYPE_CHECKING:
    from hpcadmin.conf.check.finding import Finding
    from hpcadmin.conf.check.run import Result
    from hpcadmin.conf.keys import Version


@dataclass(frozen=True)
class Checked:
    """What was judged, and how. incomplete: what could not be read or was not there; notes: what was not compared;
    unreachable: why slurmctld could not be asked, which is one of `incomplete`."""

    result: Result
    incomplete: tuple[str, ...]
    notes: tuple[str, ...]
    versions: tuple[Version, ...]
    files: tuple[str, ...]
    unreachable: str = ""

    @property
    def status(self) -> int:
        """Findings before all else; an absent slurmctld where nothing else is wrong or missing."""
        if self.result.failed:
            return EXIT_FAILED
        if any(what != self.unreachable for what in self.incomplete):
            return EXIT_INCOMPLETE
        return EXIT_UNREACHABLE if self.unreachable else EXIT_OK


def shown(done: Checked) -> str:
    from hpcadmin.text import plural, printable
    lines = []
    for finding in done.result.findings:
        lines += _lines(finding)
    for rule, number in done.result.ignored:
        lines.append(printable(f"left out: {rule} ({plural(number, 'finding')})"))
    for what in done.incomplete:
        lines.append(printable(f"incomplete: {what}"))
    for what in done.notes:
        lines.append(printable(f"note: {what}"))
    return "\n".join([*lines, printable(summary(done))]) + "\n"


def _lines(finding: Finding) -> list[str]:
    from hpcadmin.conf.names import slurm_list
    from hpcadmin.text import printable
    where = f"{finding.place}: " if finding.place else ""
    lines = [printable(f"{where}{finding.severity.value}: {finding.what} [{finding.rule}]", limit=1000)]
    if finding.means:
        lines.append(printable(f"    {finding.means}", limit=1000))
    about = []
    if finding.nodes:
        about.append(f"nodes {slurm_list(finding.nodes)}")
    if finding.versions:
        about.append(f"Slurm {_versions(finding.versions)}")
    if finding.more:
        about.append(f"also {_places(finding)}")
    if about:
        lines.append(printable(f"    {'; '.join(about)}", limit=1000))
    for number, text in enumerate(finding.right[:20]):
        lines.append(printable(f"    {'right:' if not number else '      '} {text}", limit=4000))
    if len(finding.right) > 20:
        lines.append(f"           and {len(finding.right) - 20} more lines (--json has them)")
    return lines


def _places(finding: Finding) -> str:
    """lines 4-10 of the same file, gres.conf lines 3,5 of another."""
    from hpcadmin.text import fold_ids
    files: dict[str, list[int]] = {}
    for place in finding.more:
        files.setdefault(place.file, []).append(place.line)
    own = finding.place.file if finding.place else ""
    return ", ".join(f"{'' if file == own else file + ' '}line{'s' if len(lines) > 1 else ''} {fold_ids(lines)}"
                     for file, lines in files.items())


def _versions(versions: Sequence[Version]) -> str:
    """24.11 to 26.05 for versions that follow on each other."""
    from hpcadmin.conf.keys import VERSIONS, show
    ordered = sorted(set(versions))
    at = [VERSIONS.index(v) for v in ordered if v in VERSIONS]
    if len(at) == len(ordered) > 2 and at == list(range(at[0], at[0] + len(at))):
        return f"{show(ordered[0])} to {show(ordered[-1])}"
    return ", ".join(show(v) for v in ordered)


def summary(done: Checked) -> str:
    from hpcadmin.conf.check.finding import Severity
    from hpcadmin.text import plural
    counts = {severity: sum(1 for f in done.result.findings if f.severity is severity) for severity in Severity}
    found = ", ".join(f"{number} {severity.value}" for severity, number in counts.items() if number)
    if not done.files:
        return "nothing was judged"
    state = found or ("nothing found" if done.incomplete else "nothing wrong")
    ending = "; incomplete" if done.incomplete else ""
    return f"{state} in {plural(len(done.files), 'file')}, judged for Slurm {_versions(done.versions)}{ending}"


def as_plain(done: Checked, proof: Mapping[str, object] | None = None) -> str:
    from hpcadmin.conf.keys import show
    return json.dumps({
        "findings": [{
            "severity": f.severity.value, "rule": f.rule, "what": f.what, "means": f.means, "right": list(f.right),
            "file": f.place.file if f.place else None, "line": f.place.line if f.place else None,
            "also": [str(place) for place in f.more], "nodes": list(f.nodes),
            "versions": [show(v) for v in (f.versions or done.versions)]} for f in done.result.findings],
        "left_out": [{"rule": rule, "findings": number} for rule, number in done.result.ignored],
        "incomplete": list(done.incomplete), "notes": list(done.notes), "files": list(done.files),
        "versions": [show(v) for v in done.versions], "failed": done.result.failed,
        **({} if proof is None else {"proof": proof})}, indent=2)
