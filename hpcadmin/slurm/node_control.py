"""What a sweep asks of Slurm and tells it: all nodes, one node, drain, undrain, comment. Slurm's commands, no shell."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpcadmin.errors import SlurmError, UsageError
from hpcadmin.hosts import fold, is_node_name
from hpcadmin.slurm.client import version_tuple
from hpcadmin.slurm.command_line import Answer, CommandLine, refused
from hpcadmin.slurm.node_records import NodeRecord, parse_json, parse_text
from hpcadmin.text import printable

JSON_SINCE = (23, 2)


class NodeControl(CommandLine):
    """JSON where scontrol has it: in its text a comment may look like something else."""

    _json: bool | None = None

    def all_nodes(self) -> tuple[NodeRecord, ...]:
        """In one query. SlurmError, or NoAnswerError, when they cannot be had."""
        return self._asked("nodes")

    def one_node(self, name: str) -> NodeRecord | None:
        """As it is now; None: there is no such node (any more)."""
        found = {record.name: record for record in self._asked("node", _safe(name))}
        return found.get(name)

    def drain(self, name: str, reason: str) -> None:
        self._update(name, "state=drain", f"reason={reason}")

    def undrain(self, name: str) -> None:
        """Takes the drain away and nothing else: resume would also bring back a node that is down."""
        self._update(name, "state=undrain")

    def comment(self, name: str, text: str) -> None:
        self._update(name, f"comment={text}")

    def reserve(self, name: str, nodes: Sequence[str], user: str, minutes: int) -> None:
        """Keep these nodes for that user's jobs, beginning now. What runs on them runs on."""
        self._asked_to("scontrol", "create", "reservation", f"ReservationName={_word(name)}", "StartTime=now",
                       f"Duration={minutes}", f"Users={_word(user)}", "Flags=IGNORE_JOBS",
                       f"Nodes={fold([_safe(node) for node in nodes])}")

    def unreserve(self, name: str) -> None:
        """One that is not there any more is no error."""
        self._run("scontrol", "delete", f"ReservationName={_word(name)}",
                  allow=r"not found|[Rr]eservation.*invalid|Requested reservation is invalid")

    def reserved(self, name: str) -> bool:
        """Whether there is that reservation."""
        answer = self._run("scontrol", "--oneliner", "show", "reservation", allow=r"No reservations")
        return re.search(rf"^ReservationName={re.escape(_word(name))}\s", answer.out, re.MULTILINE) is not None

    def _update(self, name: str, *what: str) -> None:
        self._asked_to("scontrol", "update", f"nodename={_safe(name)}", *what)

    def _asked_to(self, *argv: str) -> None:
        answer = self._run(*argv, allow=_DENIED)
        if answer.status != 0:
            raise SlurmError(f"this user may not change nodes: {printable(answer.err.strip(), limit=200)}",
                             where="scontrol", hint="it needs Slurm's level Operator: sacctmgr show user")

    def _asked(self, *what: str) -> tuple[NodeRecord, ...]:
        if self._json is None:
            self._json = version_tuple(self.version()) >= JSON_SINCE
        if self._json:
            answer = self._run("scontrol", "--all", "--json", "show", *what, allow=_NONE + "|JSON|plugin|serializer")
            if answer.status == 0 or _no_such(answer):
                return () if _no_such(answer) else parse_json(answer.out)
            self._json = False              # built without
        answer = self._run("scontrol", "--all", "--oneliner", "show", *what, allow=_NONE)
        if _no_such(answer):
            return ()
        if answer.status != 0:
            raise refused("scontrol", answer)
        return parse_text(answer.out)


_DENIED = r"Access/permission denied|Invalid user id"
# 22.05 says it on the standard output alone, and nothing on the other.
_NONE = r"not found|\A\s*\Z"


def _no_such(answer: Answer) -> bool:
    return re.search(r"\ANode \S+ not found", (answer.err or answer.out).strip()) is not None


def _word(name: str) -> str:
    """The name of a reservation or a user: no list of them."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,100}", name):
        raise UsageError(f"{name!r} is no plain name")
    return name


def _safe(name: str) -> str:
    """One node's name: no list of them, and no option."""
    if not is_node_name(name):
        raise UsageError(f"{name!r} is not the name of a node")
    return name

