"""hpcadmin in fast motion: `python fast_motion.py STORY ARGUMENT…`. STORY is a JSON file: real moments, and the moment
of the story that each of them was. From one to the next both clocks go alike.

One mapping, at every place where a moment comes in: this process's clock, the results of nodes, the runs of suites, and
Slurm's boot times. What goes out (ledger, alarms) is of the story then. KILL=ACT:before|after in the environment ends
this process with SIGKILL before, or after, Slurm is asked to do that to the first node.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

REAL, STORY = zip(*json.loads(Path(sys.argv.pop(1)).read_text()), strict=True)
_now = time.time


def story(moment: float) -> float:
    last = max((n for n, real in enumerate(REAL) if real <= moment), default=0)
    return float(STORY[last] + moment - REAL[last])


time.time = lambda: story(_now())       # for those who keep it as a default: the sweep and its alarms, nobody else

from hpcadmin.slurm.node_control import NodeControl  # noqa: E402
from hpcadmin.slurm.node_records import NodeRecord  # noqa: E402
from hpcadmin.sweep import guard, night, sources, undo, ways  # noqa: E402, F401
from hpcadmin.sweep.alarms import tell  # noqa: E402, F401
from hpcadmin.sweep.model import Look  # noqa: E402

time.time = _now
_asked, _parsed, _moment = NodeControl._asked, sources.parse_health, sources._moment


def asked(self: NodeControl, *what: str) -> tuple[NodeRecord, ...]:
    return tuple(replace(record, boot_time=None if record.boot_time is None else story(record.boot_time))
                 for record in _asked(self, *what))


def parsed(text: str, node: str, now: float, most_s: float) -> list[Look]:
    try:
        tree = json.loads(text)
        tree["time"] = story(tree["time"])
        text = json.dumps(tree)
    except (ValueError, KeyError, TypeError):
        pass                            # the sweep's own words for it
    return _parsed(text, node, now, most_s)


def moment(text: str) -> float | None:
    found = _moment(text)
    return None if found is None else story(found)


def killed(name: str, when: str) -> None:
    """The door of that name kills its caller."""
    real: Callable[..., Any] = getattr(NodeControl, name)

    def door(self: NodeControl, *words: str) -> None:
        if when == "after":
            real(self, *words)
        os.kill(os.getpid(), signal.SIGKILL)
    setattr(NodeControl, name, door)


NodeControl._asked = asked  # type: ignore[method-assign]
sources.parse_health = ways.parse_health = parsed
sources._moment = moment
if os.environ.get("KILL"):
    killed(*os.environ["KILL"].split(":"))

if __name__ == "__main__":
    from hpcadmin.cli import main
    sys.exit(main())
