#!/usr/bin/env python3
"""A sweep's own thinking for a large cluster: ledger read and folded, decisions, pairs of a night. No Slurm.

python benchmarks/sweep.py [--nodes N] [--entries N]

20 health checks a node, one node in 500 bad; the ledger holds pairs of the last nights, of which one in 1,000 or each
has failed.
"""

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import count, islice
from pathlib import Path
from typing import TypeVar

TOP = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TOP))

from hpcadmin.site_sweep import SweepSite  # noqa: E402
from hpcadmin.slurm.node_records import NodeRecord  # noqa: E402
from hpcadmin.slurm.states import node_state  # noqa: E402
from hpcadmin.sweep.decide import decide  # noqa: E402
from hpcadmin.sweep.ledger import fold  # noqa: E402
from hpcadmin.sweep.ledger_file import LedgerFile, read_ledger  # noqa: E402
from hpcadmin.sweep.model import Entry, Kind, Look, Result, Seen, night_of  # noqa: E402
from hpcadmin.sweep.rotate import rotation  # noqa: E402

DAY_S = 86400.0
NOW = 1_800_000_000.0
CHECKS = 20
T = TypeVar("T")


def entries(names: list[str], number: int, bad_one_in: int) -> list[Entry]:
    """Pairs of nights in a row, the last of them the night before; all within the days for which a strike counts."""
    found = list(islice(((night, pair) for night in count() for pair in rotation(names).pairs_of(night)), number))
    nights = found[-1][0] + 1
    step_s = min(DAY_S, 13 * DAY_S / nights)
    when = [NOW - (nights - night) * step_s for night, _ in found]
    return [Entry("look", when[i], f"r{night}", night_of(when[i]), node=a, partner=b, checks=("test/ib_write_bw",),
                  kinds=("network",), result="good" if i % bad_one_in else "bad", measured=when[i])
            for i, (night, (a, b)) in enumerate(found)]


def row(label: str, what: Callable[[], T]) -> T:
    wall, cpu = time.perf_counter(), time.process_time()
    found = what()
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"| {label} | {time.perf_counter() - wall:.2f} | {time.process_time() - cpu:.2f} | {mib:.0f} |", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--entries", type=int, default=100_000)
    args = parser.parse_args()
    names = [f"node{i:05d}" for i in range(args.nodes)]
    nodes = tuple(NodeRecord(name, node_state("IDLE")) for name in names)
    looks = tuple(Look(f"health/check{k}", name, Result.GOOD if i % 500 or k else Result.BAD, Kind.NODE, NOW)
                  for i, name in enumerate(names) for k in range(CHECKS))
    print("| step | s | CPU s | MiB so far |\n|---|---:|---:|---:|")
    row("pairs of a night", lambda: rotation(names).pairs_of(3))
    with tempfile.TemporaryDirectory() as folder:
        book = LedgerFile(Path(folder))
        book.write(*entries(names, args.entries, 1000))
        book.close()
        known = row("ledger read", lambda: read_ledger(Path(folder)))
    history = row("ledger folded", lambda: fold(known))
    seen = Seen(nodes, looks)
    row("decided, one pair in 1,000 bad", lambda: decide(seen, SweepSite(), history, NOW, "run"))
    history = fold(entries(names, args.entries, 1))
    row("decided, each pair bad", lambda: decide(seen, SweepSite(), history, NOW, "run"))


if __name__ == "__main__":
    main()
