"""How the programs of nccl-tests are started, over each layout, so that their output proves what they used.

All GPUs of each node take part, one rank a GPU; over rails one GPU a node with the port near it: CUDA_VISIBLE_DEVICES
names the GPU, NCCL_IB_HCA the port, and the rank list and NCCL's own words show that they were taken.

NCCL_DEBUG=INFO makes NCCL tell the transport of every channel: of all ranks where these are not too many, else of one
rank on some of the nodes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from hpcadmin.check import Context, Layout, Measurement, ParseError, Reading, Role, Step
from hpcadmin.checklib.nccl_run import Collective, Rank

LAYOUTS = (Layout.ALL, Layout.NODE, Layout.PAIRS, Layout.RAILS, Layout.GROUPS, Layout.LEAVES)
SIMULATED = (1 << 18, 1 << 20)
UNPROVEN = "RDMA is expected here, and the output does not prove what was used"
_DEBUG_RANKS = 256          # more ranks would print more about their channels than anybody reads
_DEBUG_NODES = 64
_TELLS = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET", "NCCL_DEBUG_FILE": "/dev/stderr"}
_ONE_TELLS = ('if [ "${SLURM_LOCALID:-0}" = 0 ] && [ $((${SLURM_NODEID:-0} % $1)) -eq 0 ]; then '
              + " ".join(f"{k}={v}; export {k};" for k, v in _TELLS.items()) + ' fi; shift; exec "$@"')
_RDMA = ("IB", "RoCE", "OFI", "EFA", "CXI", "VERBS")
_USING = re.compile(r"NET/IB\s?: Using (.{1,4000})")
_DEVICE = re.compile(r"\[\d{1,3}\]([\w.-]{1,64}):(\d{1,3})/")


def sizes_of(context: Context) -> tuple[int, int]:
    if context.simulated:
        return SIMULATED
    return context.param_int("min_bytes", 1 << 20), context.param_int("max_bytes", 1 << 33)


def tasks_of(context: Context) -> int:
    """Ranks on each node: one over rails, else as many as the node with the fewest GPUs has."""
    return 1 if context.layout is Layout.RAILS else _fewest(context)


def _fewest(context: Context) -> int:
    return min((n.gpus for n in context.nodes if n.gpus), default=1)


def steps_of(context: Context, of: Collective) -> tuple[Step, ...]:
    least, most = sizes_of(context)
    argv = (context.tools[of.program], "-b", str(least), "-e", str(most), "-f", "2", "-g", "1",
            *(("-n", "5") if context.simulated else ()))
    tasks, count = tasks_of(context), len(context.nodes)
    # To stderr: on stdout a line of NCCL may fall into a row of the table, which is printed in pieces.
    every = 0 if context.simulated or tasks * count < 2 else 1 if tasks * count <= _DEBUG_RANKS else max(
        2, -(-count // _DEBUG_NODES))
    env = {**(_TELLS if every == 1 else {}), **_only(context)}
    under = ("/bin/sh", "-c", _ONE_TELLS, "sh", str(every)) if every > 1 else ()
    gpus = _fewest(context) if context.layout is Layout.RAILS else 1       # of all GPUs there, one is chosen by name
    return (Step(argv=argv, role=Role.RANKS, tasks_per_node=tasks, gpus_per_task=gpus, env=env, under=under,
                 timeout_s=300.0),)


def _only(context: Context) -> dict[str, str]:
    """Of a rail: its GPU, and its port."""
    found = {}
    if context.layout is Layout.RAILS and context.gpu is not None:
        amd = any(re.search(r"AMD|Instinct|\bMI\d", n.gpu_model) for n in context.nodes)
        found = {"HIP_VISIBLE_DEVICES" if amd else "CUDA_VISIBLE_DEVICES": str(context.gpu)}
        if not amd:
            found["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    if context.layout is Layout.RAILS and context.ports:
        found["NCCL_IB_HCA"] = f"={context.ports[0].device}:{context.ports[0].port}"
    return found


# --- what the output must show of it


def as_planned(ranks: Sequence[Rank], text: str, context: Context) -> None:
    """Refuses a run over a rail that used another GPU or another port."""
    if context.layout is not Layout.RAILS:
        return
    for node in context.nodes:
        known = node.gpu_pci[context.gpu] if context.gpu is not None and context.gpu < len(node.gpu_pci) else ""
        mine = [r for r in ranks if r.host.split(".")[0] == (node.hostname or node.name).split(".")[0]]
        for rank in mine:
            if known and rank.pci and bus(rank.pci) not in (None, bus(known)):
                raise ParseError(f"{node.name} used the GPU at {rank.pci}, not GPU {context.gpu} at {known}")
    wanted = {(p.device, str(p.port)) for p in context.ports}
    others = sorted(used(text) - wanted) if wanted else []
    if others:
        raise ParseError(f"NCCL used port {'/'.join(others[0])}, not only {context.ports[0].name}")


def used(text: str) -> set[tuple[str, str]]:
    """The ports that NCCL says it uses."""
    return {(m[1], m[2]) for line in _USING.finditer(text) for m in _DEVICE.finditer(line[1])}


def bus(address: str) -> int | None:
    """The bus of a PCI address as the rank list has it (0x1b, 0000:1b:00) or as lspci does."""
    word = address.strip().lower()
    parts = word.split(":")
    number = parts[-2] if len(parts) > 1 else word.removeprefix("0x")
    return int(number, 16) if re.fullmatch("[0-9a-f]{1,4}", number) else None


def medium(reading: Reading, context: Context) -> list[Measurement]:
    """RDMA where all nodes have a port for it that is up: sockets are then a fault, whatever the bandwidth. NVLink
    between nodes is as good."""
    told = reading.transport or ""
    if not context.rdma_expected or not (told.startswith((*_RDMA, "TCP")) or "MNNVL" in told):
        return []
    right = not told.startswith("TCP")
    return [Measurement("transport", "RDMA" if right else told, subject=context.subject, expected="RDMA",
                        transport=told)]


def unproven(reading: Reading, context: Context) -> Iterable[str]:
    """Where RDMA must be used and nothing is told: the best verdict is WARN."""
    if context.rdma_expected and not medium(reading, context):
        yield UNPROVEN
