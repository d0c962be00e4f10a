"""conf check foretells what the real daemons of each version answer to the same files."""

from __future__ import annotations

from looped import looped
from oracle_cases import CASES, Case, Version, conf, severity
from oracle_machines import inventory
from oracle_more import MORE, STRICTER, UNSEEN

from hpcadmin.conf.check.finding import Finding, Severity, Situation
from hpcadmin.conf.check.run import judge
from hpcadmin.conf.existing.read import configure

ASKED = [(case, version) for case in (*CASES, *MORE) if case.name not in UNSEEN for version in case.expected]
# The cases are about nodes and gres: their bare settings are judged elsewhere.
APART = ("cgroup", "settings", "partitions", "files")
MILDER = ("DRIFT", "DEPRECATED")         # what no daemon sees, and what it takes as it is meant


def found(case: Case, version: Version) -> list[Finding]:
    situation = Situation(configure(conf(case)), (version,), inventory(case))
    return [f for f in judge(situation, leave=APART, strict=True).findings if f.severity is not Severity.NOTE]


@looped(("case", "version"), ASKED, ids=[f"{c.name}-{v[0]}.{v[1]:02}" for c, v in ASKED])
def test_the_worst_finding_is_what_slurm_does(case: Case, version: Version) -> None:
    findings = found(case, version)
    worst = findings[0].severity.value if findings else ""
    wanted = severity(case, version)
    told = [(f.severity.value, f.rule, f.what) for f in findings]
    if case.name in STRICTER:
        assert worst in ("FATAL", "INVALID"), told
    else:
        assert worst == wanted or (wanted == "WRONG" and worst in MILDER), told
    if wanted:
        assert findings[0].place is not None
