"""Slurm through its commands: argv lists, explicit formats, a clean environment, a time-out for each."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcadmin.errors import HpcadminError, SlurmError, UsageError
from hpcadmin.slurm.client import NoAnswerError, Partition, SlurmNode
from hpcadmin.slurm.states import Job, node_state
from hpcadmin.text import printable

TIMEOUT_S = 60.0
MOST_SHOWN = 8              # jobs that vanished from the queue at one time and are asked for one by one
MAX_OUTPUT = 256 * 1024 * 1024
_KEEP = frozenset({"SLURM_CONF", "SLURM_CONF_SERVER"})
# Settings of a user, or of a job that we were started in, must not change what our commands do or print.
_DROP = ("SLURM_", "SBATCH_", "SQUEUE_", "SINFO_", "SACCT_", "SALLOC_", "SCONTROL_", "SCANCEL_", "SRUN_", "SDIAG_",
         "SSTAT_", "SACCTMGR_", "SPRIO_", "PMI_", "PMIX_", "OMPI_COMM_", "OMPI_UNIVERSE_", "PRTE_")


def clean_environment(environment: Mapping[str, str]) -> dict[str, str]:
    kept = {k: v for k, v in environment.items() if k in _KEEP or not k.startswith(_DROP)}
    return {**kept, "LC_ALL": "C"}


@dataclass(frozen=True)
class Answer:
    status: int
    out: str
    err: str


class CommandLine:
    """The command-line back end."""

    def __init__(self, environment: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S) -> None:
        self._environment = clean_environment(os.environ if environment is None else environment)
        self._timeout_s = timeout_s

    def version(self) -> str:
        answer = self._run("sinfo", "--version")
        match = re.search(r"\b(\d+\.\d+(?:\.\d+)?\S*)", answer.out)
        if match is None:
            raise SlurmError(f"tells no version: {printable(answer.out.strip(), limit=80)!r}", where="sinfo --version")
        return match[1]

    def nodes(self) -> tuple[SlurmNode, ...]:
        return parse_nodes(self._run("scontrol", "--all", "--oneliner", "show", "nodes").out)

    def show(self, what: str, *options: str) -> str:
        """What `scontrol show` prints of everything of that kind, hidden or not."""
        return self._run("scontrol", "--all", *options, "show", what).out

    def accounting(self, *words: str) -> str:
        """What sacctmgr prints, fields between bars."""
        return self._run("sacctmgr", "-P", *words).out

    def partitions(self) -> tuple[Partition, ...]:
        return parse_partitions(self._run("scontrol", "--all", "--oneliner", "show", "partitions").out)

    def topology(self) -> bool:
        leaves = re.findall(r"^(?:BlockName=|SwitchName=(?!.*\sSwitches=[^\s(]))", self.topology_text(), re.MULTILINE)
        return len(leaves) > 1

    def topology_text(self) -> str:
        return self._run("scontrol", "show", "topology", allow=r"No topology information|no topology").out

    def starts_containers(self) -> bool:
        return "--container-image=" in self._run("srun", "--help").out

    def submit(self, script: Path, *, comment: str) -> int:
        try:
            answer = self._run("sbatch", "--parsable", str(script))
        except SlurmError:
            # The controller may have taken the job although its answer never came.
            with contextlib.suppress(HpcadminError):
                found = [job for job in self.find(comment) if job.comment == comment]    # not job 10 for job 1
                if found:
                    return max(job.id for job in found)
            raise
        first = answer.out.strip().split("\n")[-1].split(";")[0]
        if not first.isdigit():
            raise SlurmError(f"answered {printable(answer.out.strip(), limit=100)!r} instead of a job id",
                             where="sbatch")
        return int(first)

    def jobs(self, ids: Sequence[int]) -> dict[int, Job]:
        if not ids:
            return {}
        found = {job.id: job for job in self._queue("-j", ",".join(map(str, ids)))}
        gone = [number for number in ids if number not in found]
        for number in gone[:MOST_SHOWN]:            # one query each
            found[number] = self._shown(number)
        unknown = [number for number in gone if number not in found or not found[number].state]
        if unknown:
            found.update(self._accounted(unknown))
        return {number: found.get(number) or Job(number) for number in ids}

    def find(self, comment: str) -> tuple[Job, ...]:
        return tuple(job for job in self._queue("-u", str(os.getuid())) if job.comment.startswith(comment))

    def cancel(self, ids: Sequence[int]) -> None:
        if ids:
            self._run("scancel", *map(str, ids), allow=r"Invalid job id|already completing|already completed")

    def _queue(self, *which: str) -> list[Job]:
        # --local: else 22.05 asks for the federation each time, one message of three.
        answer = self._run("squeue", "-h", "-a", "--local", "-t", "all", "-o", "%i|%T|%r|%N|%k", *which,
                           allow=r"Invalid job id")
        return list(_queue_lines(answer.out)) if answer.status == 0 else []

    def _shown(self, number: int) -> Job:
        """A job that squeue does not list: scontrol may still know how it ended."""
        answer = self._run("scontrol", "--local", "--oneliner", "show", "job", str(number), allow=r"Invalid job id")
        fields = key_values(answer.out) if answer.status == 0 else {}
        return Job(number, fields.get("JobState", ""), fields.get("Reason", ""), fields.get("NodeList", ""),
                   fields.get("ExitCode", ""), fields.get("Comment", ""))

    def _accounted(self, ids: Sequence[int]) -> dict[int, Job]:
        """What accounting keeps of jobs that slurmctld has forgotten (MinJobAge), in one query; {} without accounting,
        and while slurmdbd does not answer: what the jobs left behind decides then."""
        with contextlib.suppress(SlurmError):
            return parse_accounted(self._run("sacct", "-X", "-n", "-P", "-o", "JobIDRaw,State,ExitCode,NodeList", "-j",
                                             ",".join(map(str, ids))).out)
        return {}

    def _run(self, *argv: str, allow: str = "") -> Answer:
        """The answer of a command that succeeded, or whose error `allow` matches; else the error in one line."""
        conf = self._environment.get("SLURM_CONF", "")
        if conf and not Path(conf).exists():        # Slurm's commands would wait a minute for it
            raise SlurmError("there is no such file", where=conf, hint="SLURM_CONF in the environment names it as "
                             "slurm.conf")
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self._environment,
                start_new_session=True)     # Ctrl-C is for us: a submission in progress must end in a known way
        except FileNotFoundError as exc:
            raise SlurmError("is not installed here, or not in PATH", where=argv[0],
                             hint="run this where Slurm's commands work") from exc
        except OSError as exc:
            raise SlurmError(f"cannot be started: {exc.strerror}", where=argv[0]) from exc
        try:
            out, err = process.communicate(timeout=self._timeout_s)
        except subprocess.TimeoutExpired as exc:
            raise NoAnswerError(f"did not answer within {self._timeout_s:g} s", where=argv[0],
                                hint="is slurmctld overloaded or frozen?") from exc
        finally:
            if process.poll() is None:          # with what a wrapper has started: it would keep the pipes open
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
        answer = Answer(process.returncode, out[:MAX_OUTPUT].decode("utf-8", "replace"),
                        err[:65536].decode("utf-8", "replace"))
        if answer.status != 0 and not (allow and re.search(allow, answer.err)):
            raise refused(argv[0], answer)
        return answer


# What Slurm prints when it refuses -> what it means, the class (and so the exit status), what to do.
_REFUSALS: tuple[tuple[str, str, type[HpcadminError], str], ...] = (
    (r"Unable to contact slurm controller|Connection refused|Unable to contact slurmctld|Socket timed out"
     r"|Zero Bytes were transmitted|Transport endpoint is not connected|Unexpected message received"
     r"|Communication connection failure|in backup mode|in standby|Message receive failure"
     # Where it has no word of its own, Slurm prints that of the errno: a controller that dies while it is asked.
     r"|Connection reset by peer|Broken pipe|Connection timed out|No route to host|Network is (?:unreachable|down)"
     r"|Host is down|Software caused connection abort|Transport endpoint is already connected",
     "the Slurm controller does not answer", NoAnswerError, "is slurmctld running? try: scontrol ping"),
    (r"Could not establish a configuration source|[Uu]nable to (?:process|stat) (?:configuration )?file"
     r"|s_p_parse_file|failed to fetch config",
     "Slurm's commands find no usable slurm.conf here", SlurmError, "run this on a node of the cluster"),
    (r"Invalid partition name specified|[Pp]artition \S+ not found", "there is no such partition", UsageError,
     "--partition or [slurm] partition in site.toml"),
    (r"Required partition not available", "the partition is inactive or drained", SlurmError, "sinfo shows it"),
    (r"[Ii]nvalid account or account/partition", "the account is not valid here", UsageError,
     "--account or [slurm] account in site.toml"),
    (r"Invalid qos specification", "the QOS is not valid here", UsageError, "--qos or [slurm] qos in site.toml"),
    (r"Requested reservation is invalid|reservation (?:name )?(?:is )?invalid", "there is no such reservation",
     UsageError, "--reservation or [slurm] reservation in site.toml"),
    (r"Access/permission denied|User's group not permitted|not permitted to use this (?:partition|account)"
     r"|Invalid user id|Root (?:user )?(?:jobs )?(?:are )?not (?:permitted|allowed)|DisableRootJobs",
     "this user may not submit such jobs", SlurmError, "ask for the right, or use another account or partition"),
    (r"Requested node configuration is not available|Invalid node name specified|More processors requested than",
     "no node can satisfy the request", SlurmError, "compare with scontrol show node"),
    (r"Requested time limit is invalid|Job violates accounting/QOS policy|Node count specification invalid",
     "the limits of the partition, account or QOS forbid the job", SlurmError, "--time-limit, --partition, --qos"),
    (r"Invalid credential|Munge|munge|authentication", "authentication with the controller failed", SlurmError,
     "is munged running here, with the cluster's key?"),
)


def refused(command: str, answer: Answer) -> HpcadminError:
    """The error for a command that failed: its meaning where it is known, and Slurm's own words."""
    words = [line.strip() for line in (answer.err or answer.out).splitlines() if line.strip()]
    last = words[-1] if words else ""
    said = next((w for w in reversed(words) if re.search("error|fatal|unrecognized", w, re.I)), last)
    told = printable(said, limit=300)
    for pattern, meaning, kind, hint in _REFUSALS:
        match = re.search(pattern, answer.err)
        if match:
            line = next((w for w in words if match[0] in w), told)
            return kind(f"{meaning}: {printable(line, limit=300)}", where=command, hint=hint)
    return SlurmError(told or f"failed with exit status {answer.status} and said nothing", where=command)


def parse_accounted(text: str) -> dict[int, Job]:
    """Of sacct -X -n -P -o JobIDRaw,State,ExitCode,NodeList; of a job that was requeued the last line counts."""
    found = {}
    for line in text.splitlines():
        number, *rest = line.split("|")
        if number.isdigit() and len(rest) == 3 and rest[0]:
            nodes = "" if rest[2] == "None assigned" else rest[2]
            found[int(number)] = Job(int(number), rest[0], "", nodes, rest[1])
    return found


def _queue_lines(text: str) -> Iterator[Job]:
    for line in text.splitlines():
        number, *rest = line.split("|", 4)
        if number.isdigit() and len(rest) == 4:
            yield Job(int(number), state=rest[0], reason=rest[1], nodes=rest[2],
                      comment="" if rest[3] == "(null)" else rest[3])


_KEY = re.compile(r"(?:^|(?<=\s))([A-Z][A-Za-z0-9_:/]*)=")


def key_values(line: str) -> dict[str, str]:
    """Key=value words of scontrol -o; a value reaches to the next key, so blanks in it stay. The first of a key
    counts: what users may write (Reason, Comment, Extra) comes after what Slurm writes."""
    found: dict[str, str] = {}
    places = list(_KEY.finditer(line))
    ends = [place.start() for place in places[1:]] + [len(line)]
    for place, end in zip(places, ends, strict=bool(places)):
        found.setdefault(place[1], line[place.end():end].strip())
    return found


def parse_nodes(text: str) -> tuple[SlurmNode, ...]:
    """Raises SlurmError when a line is not a node."""
    nodes = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("No nodes"):
            continue
        fields = key_values(line)
        if "NodeName" not in fields or "State" not in fields:
            raise SlurmError(f"unreadable line: {printable(line, limit=120)!r}", where="scontrol show nodes")
        nodes.append(SlurmNode(
            name=fields["NodeName"], state=node_state(fields["State"]), hostname=fields.get("NodeHostName", ""),
            partitions=tuple(p for p in fields.get("Partitions", "").split(",") if p),
            reason=_reason(line), gres=_null(fields.get("Gres", "")), cpus=_number(fields.get("CPUTot", "")),
            memory_mib=_number(fields.get("RealMemory", "")),
        ))
    return tuple(nodes)


def _reason(line: str) -> str:
    """The reason as people wrote it, without the user and time that Slurm puts behind it: the last key of the line."""
    _, found, text = line.partition(" Reason=")
    if not found:
        return ""
    return re.sub(r"\s*\[[^\[\]]*@[^\[\]]*\].*$", "", text).strip()


def parse_partitions(text: str) -> tuple[Partition, ...]:
    found = []
    for line in text.splitlines():
        fields = key_values(line)
        if "PartitionName" in fields:
            found.append(Partition(
                name=fields["PartitionName"].rstrip("*"), state=fields.get("State", ""),
                default=fields.get("Default", "") == "YES", max_time_min=minutes(fields.get("MaxTime", "")),
                # OverSubscribe to 25.11, Exclusive from 26.05 (both tried)
                whole_nodes="EXCLUSIVE" in fields.get("OverSubscribe", "").upper()
                or "NODE" in fields.get("Exclusive", "").upper().split(",")))
    return tuple(found)


def minutes(text: str) -> int | None:
    """Slurm's D-HH:MM:SS as minutes; None for UNLIMITED and what is not a time."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text.strip())
    if match is None:
        return None
    days, first, second = (int(x) if x else 0 for x in match.groups()[:3])
    if match[1] is not None:
        return days * 1440 + first * 60 + second
    return first * 60 + second if match[4] is not None else first


def _null(text: str) -> str:
    return "" if text in ("(null)", "N/A") else text


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() and int(text) < 4294967294 else None
