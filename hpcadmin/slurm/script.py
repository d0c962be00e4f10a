"""The text of a batch script: functions that every job has (job.sh), then what this job runs. Pure.

The script is kept with the run, holds everything it needs, and can be started by hand with sbatch.
"""

from __future__ import annotations

import base64
import gzip
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import join as quoted
from shlex import quote

from hpcadmin.check import JobRequest, Role, Step
from hpcadmin.errors import UsageError
from hpcadmin.hosts import fold
from hpcadmin.plan import MEET_S
from hpcadmin.rundata import PlannedJob, PlannedTest, Stage
from hpcadmin.site_tools import MPIRUN

_FUNCTIONS = Path(__file__).with_name("job.sh")
_PLAIN = re.compile(r"[A-Za-z0-9_./,:=@+\[\]-]+")
# With Slurm's own choice, a tree, ranks leave MPI_Init before others are ready: on a busy machine with several ranks a
# node every second start of an Open MPI program ended in a segmentation fault (22.05.8), none in a hundred with a ring.
PMIX_FENCE = "export SLURM_PMIX_FENCE=ring"
# While a slurmstepd starts its tasks it has put off root's rights and refuses the credential of another's first message
# ("Munge decode failed: Unauthorized credential"), and the ring never closes: 5 of 150 starts on four nodes hung in
# MPI_Init (22.05.8), none of 200 when the ranks begin a little later than all slurmstepds.
PMIX_LATER = """LATER='sleep 0.3; exec "$@"'"""
ANYWHERE = "anywhere"   # in the place of the node of a job that Slurm chose the nodes of
MOST_SCRIPT = 1 << 20   # characters of a script that is handed to Slurm
TAKEN_BY_SLURM = 4 << 20        # slurm.conf(5): max_script_size, where a site has set no other
MARK = "mark"           # in a job's folder: by which its nodes know it
STEP_SLACK_S = 5        # for the start of a step, beyond the time that its command gets


@dataclass(frozen=True)
class JobOptions:
    """What is asked of sbatch and srun, beyond nodes and time."""

    comment: str
    name: str = "hpcadmin"
    partition: str = ""
    account: str = ""
    qos: str = ""
    reservation: str = ""
    nice: int = 0                   # the job's priority is lowered by so much; negative ones need Slurm's rights
    priority: int = 0               # 0: Slurm's own
    gpus_per_node: int = 0
    exclude: tuple[str, ...] = ()   # nodes that a job, whose nodes Slurm chooses, is not to get
    mpi: str = "pmix"               # srun --mpi=, or "mpirun"
    mpirun: str = MPIRUN            # the program
    overlap: bool = True            # srun --overlap: 20.11 and later
    node_dir: str = ""              # where each node makes a folder of its own; "": they share the run folder
    programs: tuple[tuple[str, bytes], ...] = ()    # of ours, that come with the script to such nodes
    modules_init: str = ""          # file that a shell sources for `module`; "": where it usually is
    module_paths: tuple[str, ...] = ()


def render(job: PlannedJob, tests: Mapping[str, PlannedTest], options: JobOptions, folder: Path,
           *, token: str = "") -> str:
    """The script of a job whose files lie in `folder`. token: what the file MARK there holds, by which nodes know it;
    no other job has the same."""
    parts = ["#!/bin/sh", *_directives(job, options, folder), ""]
    parts += [*_places(options, folder, token),
              f"SRUN={quote(' '.join(_srun(options)))}",
              f"PLAIN={quote('--mpi=none --cpu-bind=none --kill-on-bad-exit=0 --wait=0 --ntasks-per-node=1')}",
              *([PMIX_FENCE, PMIX_LATER] if options.mpi.startswith("pmix") else []), *_modules(options), "",
              _FUNCTIONS.read_text(encoding="utf-8"), "# what each node runs by itself", *_on_nodes(job, tests), ""]
    for number, stage in enumerate(job.stages, 1):
        halt = [f"halt {number}"] if number > 1 else []
        parts += [f"# {number}. {_comment(stage.name)}", *halt, *_stage(number, stage, tests, options), ""]
    return _placed("\n".join([*parts, "finish", ""]), options, token)


def in_two(text: str, body: Path) -> tuple[str, str]:
    """A script that Slurm takes, and what it starts from the file `body`; "" where it is small enough by itself. Slurm
    refuses scripts of more than 4 MiB (max_script_size), and keeps each of them in slurmctld's state."""
    if len(text) <= MOST_SCRIPT:
        return text, ""
    head = [line for line in text[:65536].split("\n") if line.startswith("#SBATCH ")]
    return "\n".join(["#!/bin/sh", *head, "", "# The job is larger than Slurm takes scripts.",
                      f'exec /bin/sh {quote(str(body))} "$@"', ""]), text


def packed(text: str, node_dir: str) -> str:
    """A script that Slurm takes and that holds a larger one, for nodes that see no file of ours; unchanged where it is
    small enough by itself."""
    if len(text) <= MOST_SCRIPT:
        return text
    head = [line for line in text[:65536].split("\n") if line.startswith("#SBATCH ")]
    body = base64.encodebytes(gzip.compress(text.encode("utf-8", "surrogateescape"), 9, mtime=0)).decode("ascii")
    whole = "\n".join(["#!/bin/sh", *head, "", "# The job is larger than Slurm takes scripts.", "umask 077",
                       f"BODY=$(mktemp {quote(node_dir.rstrip('/') + '/hpcadmin-packed-XXXXXXXXXX')}) || exit 73",
                       """sed '1,/^#PACKED$/d' "$0" | base64 -d | gzip -dc >"$BODY" || exit 73""",
                       'exec /bin/sh "$BODY" "$@"', "exit", "#PACKED", body])
    if len(whole) > TAKEN_BY_SLURM:
        raise UsageError(f"the job's script has {len(whole) >> 20} MiB, more than Slurm takes of a job whose "
                         "nodes share no folder", hint="fewer nodes or checks in one run, or --pairs with fewer rounds")
    return whole


def render_own(job: PlannedJob, test: PlannedTest, options: JobOptions, folder: Path, meets: Sequence[Path],
               *, token: str = "") -> str:
    """The script of a job that is one step of a test, and starts it when the jobs in the folders `meets` have begun."""
    step = test.steps[job.step or 0]
    count = len(step.nodes) or (step.job.anywhere if step.job else 1)
    wanted = step.job or JobRequest()
    words = ["--mpi=none", "--kill-on-bad-exit=0", "-N", str(count), "-n", str(count),
             "--ntasks-per-node=1", "-c", str(wanted.cpus), *_image(step)]
    place = step.nodes[0] if step.nodes else ANYWHERE
    parts = ["#!/bin/sh", *_own_directives(job, step, options, folder), "", *_places(options, folder, token),
             f"SRUN={quote(' '.join(_srun(options)))}", *_modules(options), "",
             _FUNCTIONS.read_text(encoding="utf-8"), f"meet {MEET_S} {quoted([str(path) for path in meets])}".rstrip(),
             f"own {test.id} {job.step} {place} {_seconds(step.timeout_s)} {_with(step)}srun $SRUN {quoted(words)} "
             f"{_within(step)}{_argv(step)}", "finish", ""]
    return _placed("\n".join(parts), options, token)


def _own_directives(job: PlannedJob, step: Step, options: JobOptions, folder: Path) -> list[str]:
    wanted = step.job or JobRequest()
    asked = {
        **_common(options, folder), "nodes": str(len(step.nodes) or wanted.anywhere),
        "nodelist": fold(step.nodes) if step.nodes else "", "exclude": fold(options.exclude) if options.exclude else "",
        "ntasks-per-node": "1", "cpus-per-task": str(wanted.cpus),
        "time": str(job.time_limit_min), "gres": f"gpu:{wanted.gpus}" if wanted.gpus else "",
        # Else Slurm may take cores far from the GPU when those near it are taken.
        "gres-flags": "enforce-binding" if wanted.gpus and wanted.near_gpus else "", "mem": f"{wanted.memory_mib}M",
    }
    return [f"#SBATCH --{key}={_value(key, text)}" for key, text in asked.items() if text] + ["#SBATCH --no-requeue"]


def away_dir(node_dir: str, token: str) -> str:
    """The folder that a job makes on each of its nodes where they share none."""
    return f"{node_dir.rstrip('/')}/hpcadmin-{token}" if node_dir else ""


def _places(options: JobOptions, folder: Path, token: str) -> list[str]:
    away = away_dir(options.node_dir, token)
    if away:
        return [f"AWAY={quote(away)}", "SELF=$AWAY/script OUT=$AWAY MARK='' WANT=''", *_programs(options)]
    return ["AWAY=''", f"SELF={quote(str(folder / 'script'))}", f"OUT={quote(str(folder))}",
            f"MARK={quote(str(folder / MARK))}", f"WANT={quote(token)}"]


def programs_dir(node_dir: str) -> str:
    """Where programs of ours lie on nodes that share no folder, as long as it is not known by which job's script."""
    return f"{away_dir(node_dir, 'JOB')}/bin"


def _placed(text: str, options: JobOptions, token: str) -> str:
    """With the paths of our programs as they are on the nodes of this job."""
    return text.replace(programs_dir(options.node_dir), f"{away_dir(options.node_dir, token)}/bin") if (
        options.programs) else text


def _programs(options: JobOptions) -> list[str]:
    """A function that writes them out on a node."""
    lines = ['programs() { mkdir -m 700 "$AWAY" "$AWAY/bin" 2>/dev/null; [ -O "$AWAY/bin" ] || return 1']
    for name, raw in options.programs:
        text = base64.encodebytes(gzip.compress(raw, 9, mtime=0)).decode("ascii")
        path = f'"$AWAY/bin/"{quote(name)}'
        lines += [f"base64 -d <<'END' | gzip -dc >{path} && chmod 700 {path} || return 1", f"{text}END"]
    return [*lines, "}"] if options.programs else ["programs() { :; }"]


def _comment(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)


def _directives(job: PlannedJob, options: JobOptions, folder: Path) -> list[str]:
    wanted = {
        **_common(options, folder),
        "nodes": str(len(job.nodes)), "nodelist": fold(job.nodes), "time": str(job.time_limit_min),
        "gres": f"gpu:{options.gpus_per_node}" if options.gpus_per_node else "", "mem": "0",
    }
    flags = ["#SBATCH --exclusive", "#SBATCH --no-requeue", "#SBATCH --no-kill"]
    return [f"#SBATCH --{key}={_value(key, text)}" for key, text in wanted.items() if text] + flags


def _common(options: JobOptions, folder: Path) -> dict[str, str]:
    return {"job-name": options.name, "comment": options.comment, "partition": options.partition,
            "account": options.account, "qos": options.qos, "reservation": options.reservation,
            "nice": str(options.nice) if options.nice else "",
            "priority": str(options.priority) if options.priority else "",
            "chdir": "/" if options.node_dir else str(folder),
            "output": "/dev/null" if options.node_dir else str(folder / "slurm.out").replace("%", "%%")}


def _value(key: str, text: str) -> str:
    """A value as sbatch reads it from a script."""
    if _PLAIN.fullmatch(text):
        return text
    if not text.isprintable() or any(c in text for c in "\"\\"):
        raise UsageError(f"{text!r} cannot be given to Slurm as {key}")
    return f'"{text}"'


def _srun(options: JobOptions) -> list[str]:
    return ["--overlap"] if options.overlap else []


def _later(step: Step, options: JobOptions) -> str:
    return 'sh -c "$LATER" sh ' if options.mpi.startswith("pmix") and len(step.nodes) > 1 else ""


def _argv(step: Step) -> str:
    return _variables(step) + quoted(step.argv)


def _variables(step: Step) -> str:
    return f"{quoted(['env', *(f'{k}={v}' for k, v in sorted(step.env.items()))])} " if step.env else ""


def _modules(options: JobOptions) -> list[str]:
    return [f"MODULES_INIT={quote(options.modules_init)}", f"MODULE_PATHS={quote(':'.join(options.module_paths))}"]


def _with(step: Step) -> str:
    """What loads the step's modules and then starts the rest of the line: there, or in the driver for all its tasks,
    because srun gives them its environment."""
    way = step.way
    if not way.modules and not way.folders:
        return ""
    words = [str(len(way.folders)), *way.folders, str(len(way.modules)), *way.modules]
    return f'sh "$SELF" with {quoted(words)} '


def _within(step: Step) -> str:
    """What starts the rest of the line: bound, and in the step's container; pyxis is an option of srun."""
    under = f"{quoted(step.under)} " if step.under else ""
    return under + (f'sh "$SELF" within {quote(step.way.image)} ' if step.way.image and step.way.by != "pyxis" else "")


def _image(step: Step) -> list[str]:
    return [f"--container-image={step.way.image}"] if step.way.image and step.way.by == "pyxis" else []


def _started(step: Step) -> str:
    """A step's command as a node starts it."""
    return f"{_with(step)}{_within(step)}{_argv(step)}"


def _seconds(value: float) -> int:
    return max(1, math.ceil(value))


# --- tests that a node runs by itself ---------------------------------------------------------------------------


def _by_itself(stage: Stage, tests: Mapping[str, PlannedTest]) -> bool:
    """Not in a container of pyxis, which an srun of its own must start."""
    return stage.kind == "nodes" and all(s.role is Role.EACH and not _image(s) for i in stage.tests
                                         for s in tests[i].steps)


def _of_nodes(stage: Stage, tests: Mapping[str, PlannedTest]) -> dict[str, list[str]]:
    """Node -> its tests of the stage, in order."""
    found: dict[str, list[str]] = {}
    for test in stage.tests:
        for node in dict.fromkeys(tests[test].subject.nodes):
            found.setdefault(node, []).append(test)
    return found


def _on_nodes(job: PlannedJob, tests: Mapping[str, PlannedTest]) -> list[str]:
    """For each stage one function a list of commands, and the node's test ids as its arguments: nodes that run the
    same share the text."""
    functions: dict[str, str] = {}
    branches: list[str] = []
    for number, stage in enumerate(job.stages, 1):
        if _by_itself(stage, tests):
            of_nodes = _of_nodes(stage, tests)
            for node in job.nodes:
                ids = of_nodes.get(node, [])
                body = "\n".join(f'    one "${{{place}}}" {n} {_seconds(step.timeout_s)} {_started(step)}'
                                 for place, i in enumerate(ids, 1) for n, step in enumerate(tests[i].steps))
                if ids:
                    name = functions.setdefault(body, f"node_tests_{len(functions) + 1}")
                    branches.append(f"{number}:{node}) {name} {' '.join(ids)} ;;")
    if not branches:
        return []
    texts = [f"{name}() {{\n{body}\n}}" for body, name in functions.items()]
    return [*texts, 'if [ "${1:-}" = node ]; then', 'case $2:$SLURMD_NODENAME in', *branches,
            '*) echo "hpcadmin: $SLURMD_NODENAME has nothing to do in stage $2" >&2 ;;', "esac", "wrote",
            "exit 0", "fi"]


# --- stages in the driver ---------------------------------------------------------------------------------------


def _stage(number: int, stage: Stage, tests: Mapping[str, PlannedTest], options: JobOptions) -> list[str]:
    members = [tests[i] for i in stage.tests]
    if _by_itself(stage, tests):
        of_nodes = _of_nodes(stage, tests)
        most = max(sum(_seconds(s.timeout_s) + STEP_SLACK_S + 1 for i in ids for s in tests[i].steps)
                   for ids in of_nodes.values())
        return [f"by_node {number} {most + 20} {len(of_nodes)} {quote(fold(of_nodes))}"]
    lines: list[str] = []
    for test in members:
        body = [f"    {line}" for line in (f"on {test.id} {quote(_nodes_of(test))}", *_test(test, options))]
        lines += ["{", *body, f"    ended {test.id}", f"}} & together {test.id}"]
    return [*lines, "collect"]


def _nodes_of(test: PlannedTest) -> str:
    names = dict.fromkeys(node for step in test.steps for node in step.nodes)
    return fold(names) if len(names) > 4 else ",".join(names)


def _test(test: PlannedTest, options: JobOptions) -> list[str]:
    lines: list[str] = []
    server = False
    for number, step in enumerate(test.steps):
        limit, where = _seconds(step.timeout_s), quote(fold(step.nodes))
        head = f"{test.id} {number}"
        if step.role is not Role.RANKS:
            image = step.way.image if _image(step) else ""
            lines += [f"IMAGE={quote(image)}"] if image or any(line.startswith("IMAGE=") for line in lines) else []
        if step.role is Role.RANKS:
            lines += _pmix_nodes(where, options)
            lines.append(f"ranks {head} {step.nodes[0]} {limit + STEP_SLACK_S} {_with(step)}"
                         f"{_launcher(step, options, f'{test.id}.{number}')}{_within(step)}{_argv(step)}")
        elif step.role is Role.SERVER:
            ready = step.ready
            port = f"{ready.port:04x}" if ready and ready.port is not None else "-"
            text = (ready.text or "") if ready else ""
            lines.append(f"serve {head} {step.nodes[0]} {limit} {_seconds(ready.timeout_s if ready else 1)} {port} "
                         f"{quote(text)} {_started(step)}")
            server = True
        elif step.role is Role.CLIENT:
            lines.append(f"client {head} {step.nodes[0]} {limit} {_started(step)}")
        else:
            lines.append(f"each {head} {limit} {len(step.nodes)} {where} {_started(step)}")
    return [*lines, "unserve"] if server else lines


def _launcher(step: Step, options: JobOptions, name: str) -> str:
    """What starts the ranks of a parallel program. mpirun is to see the suite's variables too: some are its own."""
    if options.mpi != MPIRUN:
        return f"srun $SRUN -J {name} {quoted(_parallel(step, options))} {_later(step, options)}"
    words = [options.mpirun, str(step.tasks_per_node), ",".join(step.nodes)]
    return f'{_variables(step)}sh "$SELF" mpirun {quoted(words)} '


def _pmix_nodes(where: str, options: JobOptions) -> list[str]:
    """Slurm's PMIx plug-in numbers the nodes of a step but looks their names up in the job's list (22.05.8): in a step
    that leaves out the job's first nodes, messages go to hosts that are not in it, and MPI_Init may hang (14 of 80
    starts on the second and third node of four; none of 160 with the step's nodes in place of the job's)."""
    return [f"export SLURM_JOB_NODELIST={where} SLURM_NODELIST={where}"] if options.mpi.startswith("pmix") else []


def _parallel(step: Step, options: JobOptions) -> list[str]:
    """srun's options for a parallel program. -w does not decide the order of ranks: they come in the order that
    slurm.conf has the nodes in."""
    count = len(step.nodes)
    words = [f"--mpi={options.mpi}", "--kill-on-bad-exit=1", "-N", str(count),
             "-n", str(count * step.tasks_per_node), f"--ntasks-per-node={step.tasks_per_node}", "-w", fold(step.nodes)]
    if step.gpus_per_task:
        # All tasks of a node see all these GPUs: they reach each other over NVLink only then. Not --gpu-bind=none:
        # with it, 22.05 leaves CUDA_VISIBLE_DEVICES empty.
        words.append(f"--gres=gpu:{step.gpus_per_task * step.tasks_per_node}")
    return [*words, *_image(step)]


def expected_frames(tests: Sequence[PlannedTest]) -> dict[str, list[tuple[int, str, str]]]:
    """Test -> the frames (step, role, node) that its steps leave."""
    return {t.id: [(n, s.role.value, node) for n, s in enumerate(t.steps)
                   for node in (s.nodes if s.role is Role.EACH else s.nodes[:1] or (ANYWHERE,))] for t in tests}
