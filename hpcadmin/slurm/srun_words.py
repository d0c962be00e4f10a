"""What Slurm prints into a step's output when it, and not the program, is why the step did not end. Pure."""

from __future__ import annotations

import re

from hpcadmin.text import printable

# The controller was away or busy, or the job was just being ended. Not: a request that can never be granted.
_NOT_NOW = (rb"Socket timed out|Unable to contact|Zero Bytes|Connection refused|Transport endpoint|Communication "
            rb"connection failure|Message receive failure|Connection reset by peer|Broken pipe|Connection timed out|"
            rb"No route to host|Network is (?:unreachable|down)|Host is down|in standby|backup mode|"
            rb"already completing or completed|Invalid job id|Job is pending|Requested nodes are busy|"
            rb"Memory required by task is not available|Expired")
_NEVER = re.compile(rb"^srun: error: (Unable to confirm allocation[^\n]{0,300}|Unable to create step[^\n]{0,200}(?:"
                    + _NOT_NOW + rb")[^\n]{0,200})", re.MULTILINE)
# A program that fails has "CANCELLED AT" too, for --kill-on-bad-exit; the cause is only told where it is another one.
_CUT = re.compile(rb"^(?:slurmstepd(?:-[^\s:]{0,255})?|srun): error: \*\*\* ((?:STEP|JOB) [^\n]{0,200} CANCELLED AT "
                  rb"[^\n]{0,60} DUE TO [^\n*]{1,100})", re.MULTILINE)
ENDS = 65536        # bytes of an output's end that are looked at


def not_its_own(status: int | None, flags: frozenset[str], body: bytes) -> str:
    """Slurm's line that says so, "" when the output is the program's own. A program may print such a line itself: then
    its test is lost, and tried again, and never good."""
    if status == 0 or flags & {"timeout", "truncated", "stopped", "nostart"}:
        return ""
    end = body[-ENDS:]
    match = _CUT.search(end) or _NEVER.search(end)
    return printable(match[1].decode("utf-8", "replace").strip(), limit=300) if match else ""


def never_started(text: str) -> bool:
    """Whether srun says that steps were not begun because of the controller."""
    return _NEVER.search(text.encode("utf-8", "replace")) is not None
