"""How many mutations of sound outputs got which verdict, by kind of damage and family.

    python tests/corruption_report.py [FAMILY] >tests/corruption.md
"""

from __future__ import annotations

import sys
from datetime import datetime, timezone

import corruption
from corruption import Counts
from corruption_digits import digits
from corruption_families import FAMILIES

from hpcadmin.check import Status

HEAD = """# Damaged outputs and their verdicts

Written on {date} by `python tests/corruption_report.py`. Of each sound output (samples of our checks, and sound
captures where the corpus lies beside the project) each kind of damage was made in many places, the text was parsed
and judged by limits that the sound output just reaches. Structural damage must never pass: `tests/test_corruption.py`
asserts that none does, and that each kind is there. A changed digit is judged by hand beside
(`corruption_digits.py`): where the row still agrees with itself and reaches its limits it passes, else not. Noise
changes no verdict; with nvidia-smi, whose outputs hold nothing of other programs, it may be an ERROR."""
SEEN = (Status.PASS, Status.WARN, Status.UNJUDGED, Status.ERROR, Status.FAIL)


def table(title: str, counts: Counts) -> str:
    lines = [f"## {title}", "", f"| mutation | {' | '.join(s.value for s in SEEN)} |", f"|---|{'---:|' * len(SEEN)}"]
    for kind in dict.fromkeys(kind for kind, _ in counts):
        lines.append(f"| {kind} | {' | '.join(f'{counts[kind, s.value]:,}' for s in SEEN)} |")
    total = [sum(n for (_, status), n in counts.items() if status == s.value) for s in SEEN]
    return "\n".join([*lines, f"| all {sum(total):,} | {' | '.join(f'{n:,}' for n in total)} |"])


def main(part: str) -> None:
    print(HEAD.format(date=datetime.now(timezone.utc).date()))
    whole: Counts = Counts()
    for family in FAMILIES:
        if part not in family.name:
            continue
        counts: Counts = Counts()
        least = 10**9
        for case in family.cases():
            found = corruption.tally(family, case)[0]
            least = min(least, found.total())
            counts += found
            for damage in corruption.noise(case):
                counts[f"noise: {damage.kind}", case.verdict(damage.text).value] += 1
            for text, good in digits(family, case):
                counts[f"digit changed, {'still good' if good else 'bad'} by hand", case.verdict(text).value] += 1
        for damage in corruption.ten_megabytes(family.cases()[0]):
            counts[f"noise: {damage.kind}", family.cases()[0].verdict(damage.text).value] += 1
        whole += counts
        print()
        size = f"{len(family.cases())} sound outputs, at least {least} structural mutations each"
        print(table(f"{family.name}: {size}", counts))
        for kind, why in family.lacks.items():
            print(f"\nNot there: {kind}; {why}.")
    print()
    print(table("All", whole))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "")
