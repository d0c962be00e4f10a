"""Jobs get the GPUs, cores and devices that the configuration says, and no GPU of another job.

On each node two jobs run at one time, as users submit them: one with one GPU and one with the others (with no GPU
where the node has one only). Each says which GPUs Slurm gave it, which device files it may open, and on which CPUs it
may run. Device files are opened for reading and closed again; what denies a GPU to other jobs is ConstrainDevices in
cgroup.conf. With the parameter jobs = "each" every GPU gets a job of its own: more jobs, and the cores of each GPU are
proven, not only those of one.

Measured for each job, and where to look when it is not as expected:
  visible_gpus  how many different GPUs its environment names; expected: as many as it asked for. Flags= in gres.conf
                (nvidia_gpu_env, amd_gpu_env), TaskProlog, what the user's shell sets.
  open_devices  device files of GPUs that it may open; expected: those of the GPUs that Slurm gave it. More: in
                cgroup.conf ConstrainDevices=yes, in slurm.conf TaskPlugin=task/cgroup and
                ProctrackType=proctrack/cgroup. Others: File= and the order of the lines in gres.conf, which is to be
                that of the PCI bus (where GPUs are of several models, the order is not judged).
  cores         whether its CPUs are all near its GPUs; expected: near. Cores= in gres.conf, which are Slurm's numbers
                of cores and not the kernel's numbers of CPUs; ConstrainCores=yes in cgroup.conf, task/affinity in
                TaskPlugin. Not judged where the inventory does not know which CPUs are near a GPU.
Measured for the node:
  shared_gpus   device files that more than one job may open; expected: 0. ConstrainDevices, as above.
  shared_cpus   CPUs that more than one job may run on; expected: 0. ConstrainCores and TaskPlugin, as above.
  given_gpus    how many different GPUs Slurm gave the jobs; expected: all of the node. Gres= in slurm.conf.

The jobs ask for one core each and, where GPUs are near some CPUs only, for --gres-flags=enforce-binding. Slurm then
takes a core on each socket that the GPUs are near, and on every socket where gres.conf has no Cores=. GPUs cut into MIG
devices are not tested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from hpcadmin import checklib as lib
from hpcadmin.check import (
    Check,
    Context,
    JobRequest,
    Measurement,
    NodeView,
    Output,
    ParseError,
    Role,
    Scope,
    Step,
    Subject,
)

SCRIPT = r"""
PATH=/usr/bin:/bin:/usr/sbin:/sbin LC_ALL=C
export PATH LC_ALL
say() { printf '%s: %s\n' "$1" "$2"; }
echo '# hpcadmin gpu_binding 1'
say asked "$1"
shift
say node "${SLURMD_NODENAME:--}"
say given "${SLURM_STEP_GPUS:-${SLURM_JOB_GPUS:--}}"
say visible "${CUDA_VISIBLE_DEVICES:-${ROCR_VISIBLE_DEVICES:-${ZE_AFFINITY_MASK:--}}}"
say cpus "$(sed -n 's/^Cpus_allowed_list:[[:space:]]*//p' /proc/self/status)"
for file in "$@"; do
    if told=$({ : <"$file"; } 2>&1); then told=open; fi
    say "device $file" "$(printf %s "$told" | tr '\n' ' ' | sed 's/.*: //')"
done
echo '# end gpu_binding'
"""
# What open(2) answers where the file may be opened and the device behind it has something to say.
ANSWERS = ("open", "No such device or address", "No such device", "Device or resource busy", "Input/output error")
DENIED = "Operation not permitted"      # what a cgroup answers; a file's own mode answers "Permission denied"
NOTHING = ("-", "NoDevFiles", "-1")     # in place of GPUs that a job can see
MANY_JOBS = {"two", "each"}

_DEVICES = "cgroup.conf ConstrainDevices=yes, slurm.conf TaskPlugin=task/cgroup and ProctrackType=proctrack/cgroup"
_CPUS = "cgroup.conf ConstrainCores=yes, slurm.conf TaskPlugin=task/cgroup,task/affinity"


def steps(context: Context) -> tuple[Step, ...]:
    node = context.nodes[0] if context.nodes else NodeView("")
    if node.gpus and not node.gpu_files:
        raise ParseError(node.gpu_files_why or "the device files of its GPUs are not known", where=node.name,
                         hint="hpcadmin discover shows what is missing")
    # Where all CPUs are near all GPUs, nothing needs to be asked for: a job that asks takes a core on every socket, and
    # virtual machines often have as many sockets as CPUs.
    some = any(len(cpus) < (node.cpus or 0) for cpus in node.gpu_cpus)
    # One core each: more may not be free, nor be near the GPUs.
    return tuple(Step(argv=("/bin/sh", "-c", SCRIPT, "gpu_binding", str(count), *node.gpu_files), role=Role.JOB,
                      timeout_s=30.0, name=f"job with {_gpus(count)}", job=JobRequest(1, count, near_gpus=some))
                 for count in _counts(len(node.gpu_files), context))


def _counts(gpus: int, context: Context) -> tuple[int, ...]:
    """How many GPUs each job asks for."""
    how = context.param_str("jobs", "two")
    if how not in MANY_JOBS:
        raise ParseError(f"jobs is {lib.shown(how)!r}", hint='"two" or "each"')
    return (1,) * gpus if how == "each" and gpus > 1 else (1, max(0, gpus - 1))


def _gpus(count: int) -> str:
    return f"{count} GPU{'s' if count != 1 else ''}"


class _Job:
    """What one job told."""

    def __init__(self, output: Output, node: NodeView) -> None:
        told = _told(output.text, node.gpu_files)
        if told["node"] != node.name:
            raise ParseError(f"the job ran on {lib.shown(told['node'])}, not on {node.name}")
        self.asked = lib.integer(told["asked"], "GPUs asked for", most=1024)
        self.given = lib.id_list(told["given"], "GPUs given") if told["given"] != "-" else ()
        names = [] if told["visible"] in NOTHING else told["visible"].split(",")
        self.visible = {word.strip() for word in names if word.strip()}
        self.cpus = frozenset(lib.id_list(told["cpus"], "CPUs"))
        self.answers = {file: told[f"device {file}"] for file in node.gpu_files}
        self.open = [file for file, answer in self.answers.items() if answer in ANSWERS]
        if any(i >= len(node.gpu_files) for i in self.given) or len(set(self.given)) != self.asked:
            raise ParseError(f"the job that asked for {_gpus(self.asked)} was given GPUs "
                             f"{lib.fold(self.given) or 'none'} of {len(node.gpu_files)}",
                             hint="is the inventory older than slurm.conf?")
        self.mine = [node.gpu_files[i] for i in sorted(set(self.given))]
        # Which GPUs it has: what it alone may open says so better than Slurm's numbers, whose order may be wrong.
        kept = len(self.open) == self.asked
        self.has = [i for i, f in enumerate(node.gpu_files) if f in self.open] if kept else sorted(set(self.given))
        if kept and "," in node.gpu_model:      # Slurm numbers GPUs of several models by model, not by the bus
            self.mine = self.open

    def measured(self, node: NodeView, number: int) -> list[Measurement]:
        subject = Subject((node.name,), f"job {number}: {_gpus(self.asked)}")
        found = [
            _measurement("visible_gpus", len(self.visible), self.asked, subject, "gres.conf Flags=, TaskProlog",
                         *self._misnamed()),
            _measurement("open_devices", " ".join(self.open) or "none", " ".join(self.mine) or "none", subject,
                         self._look_at(), *self._strange()),
        ]
        if self.has and not node.gpu_cpus:
            found.append(Measurement("cores", "not judged", subject=subject, key=False, warnings=(
                "which CPUs are near its GPUs is not known",)))
        elif self.has:
            far = sorted(self.cpus - {cpu for i in self.has for cpu in node.gpu_cpus[i]})
            found.append(_measurement("cores", f"CPUs {lib.fold(far)} are far" if far else "near", "near", subject,
                                      f"gres.conf Cores= (Slurm's numbers of cores, not the kernel's CPUs), {_CPUS}"))
        return found

    def _look_at(self) -> str:
        if set(self.open) > set(self.mine):
            return _DEVICES
        if any(self.answers[file] not in (*ANSWERS, DENIED) for file in self.mine):
            return "the device files themselves"
        return "gres.conf File= and the order of its lines, which is to be that of the PCI bus"

    def _misnamed(self) -> Iterable[str]:
        """Its environment names GPUs by numbers: its own 0, 1, … under ConstrainDevices, else those of the node."""
        numbers = {int(word) for word in self.visible if word.isascii() and word.isdigit() and len(word) < 6}
        right = (set(self.given), set(range(len(self.given))))
        if len(numbers) != len(self.visible) or numbers in right:
            numbers = set()
        if numbers:
            yield f"its environment names GPUs {lib.fold(numbers)}, Slurm gave it {lib.fold(self.given) or 'none'}"

    def _strange(self) -> Iterable[str]:
        """Answers that prove neither that the job has the device nor that Slurm denies it."""
        for file, answer in self.answers.items():
            if answer not in (*ANSWERS[:2], DENIED):
                yield f"{file}: {lib.shown(answer)}" + (
                    " (by its owner and mode, not by Slurm)" if answer == "Permission denied" else "")


def _measurement(name: str, value: int | str, expected: int | str, subject: Subject, look_at: str,
                 *warnings: str) -> Measurement:
    return Measurement(name, value, subject=subject, expected=expected,
                       warnings=warnings if value == expected else (f"look at {look_at}", *warnings))


def parse(outputs: Sequence[Output], context: Context) -> list[Measurement]:
    if not context.nodes:
        raise ParseError("an output of one job says nothing by itself",
                         hint="it is read together with that of the node's other job and the inventory: "
                         "hpcadmin validate --suite conf")
    node = context.nodes[0]
    if not node.gpu_files:
        raise ParseError("the device files of the node's GPUs are not known", hint="run hpcadmin discover")
    counts = _counts(len(node.gpu_files), context)
    jobs = [_Job(output, node) for output in lib.require(outputs, count=len(counts))]
    if sorted(job.asked for job in jobs) != sorted(counts):
        raise ParseError("not the outputs of the node's jobs")
    subject = Subject((node.name,))
    given = {i for job in jobs for i in job.given}
    return [
        *(m for number, job in enumerate(jobs, 1) for m in job.measured(node, number)),
        _measurement("shared_gpus", _shared(job.open for job in jobs), 0, subject, _DEVICES),
        _measurement("shared_cpus", _shared(job.cpus for job in jobs), 0, subject, _CPUS),
        _measurement("given_gpus", len(given), len(node.gpu_files), subject, "slurm.conf Gres=, gres.conf"),
    ]


def _shared(groups: Iterable[Iterable[object]]) -> int:
    """How many things are in more than one group."""
    counts = Counter(thing for group in groups for thing in set(group))
    return sum(count > 1 for count in counts.values())


def _told(text: str, files: Sequence[str]) -> dict[str, str]:
    lines = lib.own_output(text, "gpu_binding")
    lib.no_fatal_lines(lines)
    keys = ("asked", "node", "given", "visible", "cpus", *(f"device {file}" for file in files))
    told = lib.told_once(lines, keys, ": ")
    missing = [key for key in keys if not told.get(key)]
    if missing:
        raise ParseError(f"{', '.join(missing)} not told")
    return told


CHECK = Check(
    name="gpu_binding", title="Jobs get their own GPUs, the cores near them, and nothing else", scope=Scope.NODE,
    needs=("gpu",), params={"jobs": "two"}, steps=steps, parse=parse, seconds=5.0, doc=__doc__ or "",
)
