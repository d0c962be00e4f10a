"""Lines of Slurm's daemons that say that something is wrong, without those that every first start has."""

from __future__ import annotations

import re
from collections.abc import Iterable

_STAMP = re.compile(r"\A(?:\[[^\]]{0,60}\] ?)?(?:slurm(?:ctld|d)(?:-[\w.-]{1,100})?: )?(?:\[[^\]]{0,60}\] ?)?")
_LEVEL = re.compile(r"\A(?:error|fatal|warning|WARNING): ")
# A cluster that has never run has no state; what is left out of the copy, or is not there in a proof's root.
_USUAL = re.compile(
    r"state file|Trying backup state|may be lost|MailProg is invalid|No memory enforcing mechanism|"
    r"state save file|Setting node \S+ state to INVAL|_slurm_rpc_node_registration node=|"
    r"Database settings not recommended|CPU frequency|Unable to resolve|_xgetaddrinfo|agent/is_node_resp|"
    r"cgroup/v1 plugin is deprecated|slurm_set_addr|sack|Node ping|not responding|assoc_mgr|"
    r"priority/multifactor: .*accounting|"
    # Of a slurmd that the proof has ended, and of nodes that there are none of here.
    r"slurm_(?:receive|send|bufs|persist|open|conn|unpack|msg)|socket error|timed out|Zero Bytes|[Uu]nreachable|"
    r"Connection (?:refused|reset)|"
    # Of addresses that are all on one interface here.
    r"Node registration response identity mismatch|"
    r"High latency|_fwd_tree|very large processing|Communication connection|Duplicate jobid|batch job complete")


def plain(line: str) -> str:
    """Without time and daemon: "error: …"."""
    return _STAMP.sub("", line, count=1)


def complaints(lines: Iterable[str]) -> tuple[str, ...]:
    """Error, fatal and warning lines, each once, in their order."""
    texts = (plain(line) for line in lines)
    return tuple(dict.fromkeys(text for text in texts if _LEVEL.match(text) and not _USUAL.search(text)))


def ended_by(lines: Iterable[str]) -> str:
    """The daemon's last words: its fatal line, else its last error; "" for none."""
    texts = [plain(line) for line in lines]
    fatal = next((text for text in reversed(texts) if text.startswith("fatal: ")), "")
    return fatal or next((text for text in reversed(texts) if text.startswith("error: ") and not _USUAL.search(text)),
                         "")


_NODE = re.compile(r"\b(?:node[ =]|NodeNames?=)([\w.-]{1,100}?)(?=[:.,)]?(?:\s|$))")


def node_of(text: str) -> str:
    """The node that a message of slurmctld is about; "" where it names none."""
    match = _NODE.search(text)
    return match[1] if match else ""
