"""Settings of slurm.conf that are legal alone and do not go together."""

from __future__ import annotations

from collections.abc import Iterator

from hpcadmin.conf.check.finding import Finding, Rule, Severity, Situation
from hpcadmin.conf.check.force import setting
from hpcadmin.conf.combinations import Clash, clashes
from hpcadmin.conf.keys import Version


def together(situation: Situation) -> Iterator[Finding]:
    if not situation.whole:
        return
    settings = {key: value.text for key, value in situation.conf.settings.items()}
    found: dict[Clash, list[Version]] = {}
    for version in situation.asked:
        for clash in clashes(settings, version):
            found.setdefault(clash, []).append(version)
    for clash, versions in found.items():
        value = setting(situation, clash.key)
        yield Finding(Severity.FATAL if clash.fatal else Severity.WRONG, clash.what,
                      "slurmctld does not start" if clash.fatal else "an error line in each log, and it is not heeded",
                      (clash.right,), value.place if value is not None else None, (),
                      () if len(versions) == len(situation.asked) else tuple(versions))


RULES: tuple[Rule, ...] = (together,)
