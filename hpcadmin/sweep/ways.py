"""Ways to a node's health other than a folder of results: a step on idle nodes through Slurm, and ssh."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hpcadmin.errors import HpcadminError
from hpcadmin.hosts import fold
from hpcadmin.remote.base import CommandResult, Remote, fan_out
from hpcadmin.run_nodes import Rules, select
from hpcadmin.slurm.client import Client, SlurmNode
from hpcadmin.sweep.model import Look
from hpcadmin.sweep.sources import MAX_FOLDER_BYTES, MAX_HEALTH_BYTES, Looks, parse_health
from hpcadmin.text import printable

STATUSES = (0, 1, 3)            # of hpcadmin-health: good, bad, unknown
TRIES = 3                       # that nodes may become busy between the look and the job
IMMEDIATE_S = 10
START_S = 30.0                  # that srun and slurmctld take beside the checks
DRAINED = "Slurm: starts nothing on a drained node; [sweep] health_via with ssh, or health_dir, tells of it"
_LABEL = re.compile(r" *(\d+): ?")
_NAMED = re.compile(r"on node (\S+?)[:,]? ")


def json_of(text: str) -> str:
    """What is between the first and the last brace: a login shell may greet, a tool may warn."""
    first, last = text.find("{"), text.rfind("}")
    return text[first:last + 1] if 0 <= first < last else ""


def one_result(result: CommandResult, node: str, now: float, most_s: float) -> list[Look]:
    """The looks in what one node answered. ValueError with why there are none."""
    if result.error:
        raise ValueError(result.error)
    if result.exit_status not in STATUSES:
        said = printable(" ".join(result.text.split()), limit=120)
        raise ValueError(f"hpcadmin-health ended with {result.exit_status}{f': {said}' if said else ''}")
    return answered(result.text, node, now, most_s)


def answered(text: str, node: str, now: float, most_s: float) -> list[Look]:
    tree = json_of(text)
    if not tree and text.strip():
        raise ValueError(f"it says no result: {printable(' '.join(text.split()), limit=120)}")
    return parse_health(tree, node, now, most_s)


@dataclass(frozen=True)
class SshHealth:
    """The health command on each node over ssh, at most `parallel` at once."""

    remote: Callable[[], Remote]        # made when it is needed: what it imports takes half a second
    command: tuple[str, ...]
    parallel: int
    seconds_s: float                    # of one node
    hours: float                        # the command may only tell what was found before
    clock: Callable[[], float] = time.time

    def looks(self, nodes: Sequence[str], now: float) -> Looks:
        try:
            remote = self.remote()
        except HpcadminError as exc:
            return Looks(unmeasured=dict.fromkeys(nodes, f"ssh: {exc}"))
        overall = self.seconds_s * (2 + len(nodes) / max(1, self.parallel))
        answers = fan_out(remote, list(nodes), lambda node: for_node(self.command, node), parallel=self.parallel,
                          timeout_s=self.seconds_s, overall_s=overall, limit=MAX_HEALTH_BYTES)
        close = getattr(remote, "close", None)
        if close is not None:
            close()
        found: list[Look] = []
        unmeasured: dict[str, str] = {}
        after = max(now, self.clock())
        for node in nodes:
            try:
                found += one_result(answers[node], node, after, self.hours * 3600)
            except ValueError as exc:
                unmeasured[node] = printable(f"ssh: {exc}", limit=200)
        return Looks(tuple(found), unmeasured)


def for_node(command: Sequence[str], node: str) -> list[str]:
    return [word.replace("{node}", node) for word in command]


@dataclass(frozen=True)
class Wish:
    """How the job is submitted; "" as Slurm has it."""

    partition: str = ""
    account: str = ""
    qos: str = ""
    nice: int = 0


@dataclass(frozen=True)
class SlurmHealth:
    """One job of one task on each idle node, all at once: it begins at once or not at all, never waits in the queue,
    and is over in a minute. Nodes with jobs of users are left: a step in somebody's job would be charged to it."""

    client: Client
    local: Remote
    command: tuple[str, ...]
    wish: Wish
    seconds_s: float
    hours: float
    clock: Callable[[], float] = time.time

    def looks(self, nodes: Sequence[str], now: float) -> Looks:
        wanted = set(nodes)
        unmeasured = dict.fromkeys(nodes, "Slurm: not idle")
        found: list[Look] = []
        try:
            for _ in range(TRIES):
                known = self.client.nodes()
                unmeasured.update((node.name, DRAINED) for node in known if node.name in unmeasured
                                  and "DRAIN" in node.state.flags)
                idle = [node for node in self._idle(known) if node in wanted]
                if not idle:
                    break
                texts, silent, busy = self._asked(idle)
                after = max(now, self.clock())
                for node in [*texts, *silent]:
                    wanted.discard(node)
                    unmeasured.pop(node, None)
                for node, why in silent.items():
                    unmeasured[node] = printable(f"Slurm: {why}", limit=200)
                for node, text in texts.items():
                    try:
                        found += answered(text, node, after, self.hours * 3600)
                    except ValueError as exc:
                        unmeasured[node] = printable(f"Slurm: {exc}", limit=200)
                if not busy:
                    break
                unmeasured.update((node, printable(f"Slurm: {busy}", limit=200)) for node in wanted)
        except HpcadminError as exc:
            unmeasured.update((node, printable(f"Slurm: {exc}", limit=200)) for node in wanted)
        return Looks(tuple(found), unmeasured)

    def _idle(self, nodes: tuple[SlurmNode, ...]) -> list[str]:
        chosen = select(nodes, self.client.partitions(), self.wish.partition, "", Rules(only_idle=True))
        return [node.name for node in chosen.nodes]

    def _asked(self, nodes: Sequence[str]) -> tuple[Mapping[str, str], Mapping[str, str], str]:
        """(node -> what it printed, node -> why it said nothing, why the job could not be had). A node that srun cannot
        start on ends the whole job: it is named, and the others are asked anew."""
        name = f"hpcadmin-health-{secrets.token_hex(4)}"
        result = self.local.run("", self._argv(name, nodes), timeout_s=IMMEDIATE_S + self.seconds_s + START_S,
                                limit=MAX_FOLDER_BYTES)
        if result.exit_status is None:
            self.local.run("", ("scancel", f"--name={name}"), timeout_s=START_S)
        every, told = _by_node(result.text)
        texts = {node: text for node, text in every.items() if node in nodes}
        lost = {node: told for node in _NAMED.findall(f"{told} ") if node in nodes and node not in texts}
        if not texts and not lost:
            return {}, {}, result.error or told or f"srun ended with {result.exit_status}"
        rest = {node: result.error or told or "no answer" for node in nodes if node not in texts and node not in lost}
        if lost:
            return texts, lost, "srun ended early" if rest else ""
        return texts, rest, ""

    def _argv(self, name: str, nodes: Sequence[str]) -> list[str]:
        wish = self.wish
        asked = [f"--{key}={value}" for key, value in (("partition", wish.partition), ("account", wish.account),
                                                       ("qos", wish.qos)) if value]
        return ["srun", f"--nodelist={fold(list(nodes))}", f"--nodes={len(nodes)}", f"--ntasks={len(nodes)}",
                "--ntasks-per-node=1", f"--immediate={IMMEDIATE_S}", f"--time={max(1, round(self.seconds_s / 60) + 1)}",
                f"--job-name={name}", "--label", "--no-kill", "--kill-on-bad-exit=0", "--input=none", "--mpi=none",
                "--chdir=/", f"--nice={wish.nice}", *asked, "sh", "-c",
                'echo "hpcadmin-node $SLURMD_NODENAME"; exec "$@"', "hpcadmin", *self.command]


def _by_node(text: str) -> tuple[dict[str, str], str]:
    """node -> its lines, by the label that srun puts before each; and what srun itself said, as one line. Of two that
    say that they are the same node neither counts."""
    tasks: dict[str, list[str]] = {}
    said: list[str] = []
    for line in text.splitlines():
        match = _LABEL.match(line)
        if match:
            tasks.setdefault(match[1], []).append(line[match.end():])
        elif line.strip():
            said.append(line.strip())
    found: dict[str, list[str]] = {}
    for lines in tasks.values():
        word, _, node = lines[0].partition(" ")
        if word == "hpcadmin-node" and len(lines) > 1:
            found.setdefault(node.strip(), []).append("\n".join(lines[1:]))
    once = {node: texts[0] for node, texts in found.items() if len(texts) == 1}
    return once, printable("; ".join(said[:6]), limit=300)
