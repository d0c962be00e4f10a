"""Jobs get the GPUs, cores and devices that the configuration says, and no GPU of another job.

On each node two jobs run at one time, as users submit them: one with one GPU and one with the others (with no GPU
where the node has one only). Each says which GPUs Slurm gave it, which device files it may open, and on which CPUs it
may run. Device files are opened for reading and closed again; what denies a GPU to other jobs is ConstrainDevices in
cgroup.conf.

Measured for each job: `visible_gpus` (how many its environment names; expected: as many as asked for), `open_devices`
(device files that it may open; expected: those of its GPUs, in PCI bus order as gres.conf has them) and `cores`
(expected: near its GPUs, as the inventory knows them). For the node: `shared_gpus` (expected: 0) and `given_gpus`, the
GPUs that one of the jobs got (expected: all of the node).
"""

from __future__ import annotations

from collections.abc import Sequence

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


def steps(context: Context) -> tuple[Step, ...]:
    files = context.nodes[0].gpu_files if context.nodes else ()
    counts = (1, max(0, len(files) - 1))
    return tuple(Step(argv=("/bin/sh", "-c", SCRIPT, "gpu_binding", str(count), *files), role=Role.JOB, timeout_s=30.0,
                      name=f"job with {_gpus(count)}", job=JobRequest(max(1, count), count))
                 for count in counts)


def _gpus(count: int) -> str:
    return f"{count} GPU{'s' if count != 1 else ''}"


class _Job:
    """What one job told."""

    def __init__(self, output: Output, node: NodeView) -> None:
        told = _told(output.text, node.gpu_files)
        if told["node"] not in ("-", node.name):
            raise ParseError(f"the job ran on {lib.shown(told['node'])}, not on {node.name}")
        self.asked = lib.integer(told["asked"], "GPUs asked for", most=1024)
        self.given = lib.id_list(told["given"], "GPUs given") if told["given"] != "-" else ()
        self.visible = [word for word in told["visible"].split(",") if word] if told["visible"] != "-" else []
        self.cpus = frozenset(lib.id_list(told["cpus"], "CPUs"))
        self.open = [file for file in node.gpu_files if told[f"device {file}"] in ANSWERS]
        self.broken = {f: told[f"device {f}"] for f in node.gpu_files
                       if told[f"device {f}"] not in (*ANSWERS[:2], "Operation not permitted", "Permission denied")}

    def measured(self, node: NodeView, number: int) -> list[Measurement]:
        subject = Subject((node.name,), f"job {number}: {_gpus(self.asked)}")
        mine = [node.gpu_files[i] for i in self.given if i < len(node.gpu_files)]
        if len(mine) != len(self.given) or len(mine) != self.asked:
            raise ParseError(f"the job that asked for {_gpus(self.asked)} was given GPUs "
                             f"{','.join(map(str, self.given)) or 'none'} of {len(node.gpu_files)}")
        warnings = tuple(f"{file}: {lib.shown(answer)}" for file, answer in self.broken.items())
        found = [
            Measurement("visible_gpus", len(self.visible), subject=subject, expected=self.asked),
            Measurement("open_devices", " ".join(self.open) or "none", subject=subject, warnings=warnings,
                        expected=" ".join(sorted(mine, key=node.gpu_files.index)) or "none"),
        ]
        near = {cpu for i in self.given for cpu in node.gpu_cpus[i]} if node.gpu_cpus and mine else set()
        if near:
            far = sorted(self.cpus - near)
            found.append(Measurement("cores", f"CPUs {lib.fold(far)} are far" if far else "near", subject=subject,
                                     expected="near"))
        return found


def parse(outputs: Sequence[Output], context: Context) -> list[Measurement]:
    node = context.nodes[0] if context.nodes else NodeView("")
    if not node.gpu_files:
        raise ParseError("the device files of the node's GPUs are not known", hint="run hpcadmin discover")
    jobs = [_Job(output, node) for output in lib.require(outputs, count=2)]
    if sorted(job.asked for job in jobs) != sorted((1, len(node.gpu_files) - 1)):
        raise ParseError("not the outputs of the two jobs")
    found = [m for number, job in enumerate(jobs, 1) for m in job.measured(node, number)]
    both = set(jobs[0].open) & set(jobs[1].open)
    either = set(jobs[0].open) | set(jobs[1].open)
    subject = Subject((node.name,))
    return [*found, Measurement("shared_gpus", len(both), subject=subject, expected=0),
            Measurement("given_gpus", len(either), subject=subject, expected=len(node.gpu_files))]


def _told(text: str, files: Sequence[str]) -> dict[str, str]:
    lines = [line for line in lib.lines_of(text) if line]
    if lines.count("# hpcadmin gpu_binding 1") != 1 or lines.count("# end gpu_binding") != 1:
        raise ParseError("not one whole output of gpu_binding", hint="cut off, or several runs mixed")
    lib.no_fatal_lines(lines)
    keys = ("asked", "node", "given", "visible", "cpus", *(f"device {file}" for file in files))
    told: dict[str, str] = {}
    for line in lines:
        key, colon, value = line.partition(": ")
        if colon and key in keys:
            if key in told:
                raise ParseError(f"{key} is told twice")
            told[key] = value.strip()
    missing = [key for key in keys if not told.get(key)]
    if missing:
        raise ParseError(f"{', '.join(missing)} not told")
    return told


CHECK = Check(
    name="gpu_binding", title="Jobs get their own GPUs, the cores near them, and nothing else", scope=Scope.NODE,
    needs=("gpu",), steps=steps, parse=parse, seconds=5.0, doc=__doc__ or "",
)
