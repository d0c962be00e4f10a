"""A capture to a Node: every section parsed by its fact, the results joined, what is missing or odd said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hpcadmin.errors import ParseError
from hpcadmin.facts import _cpu, _gpu, _host, _nic, _other_gpus
from hpcadmin.facts._capture import Capture, split_capture
from hpcadmin.facts._probe import facts
from hpcadmin.model import Cpu, Node, PciDevice
from hpcadmin.text import fold_ids, printable

# Facts whose tool or file may be missing on a sound node.
_OPTIONAL = frozenset({"addresses", "amd_smi", "dmi", "drm", "hwloc", "ibstat", "ibv_devinfo", "lldp", "lscpu", "lspci",
                       "numa", "nvidia_list", "nvidia_nvlink", "nvidia_smi", "nvidia_topo", "rocm_smi",
                       "slurmd"}) | _host.OPTIONAL
# Facts that nvidia-smi answers: one sentence about it is enough.
_SMI = ("nvidia_smi", "nvidia_list", "nvidia_topo", "nvidia_nvlink")


class _Reader:
    """The values of a capture's sections; problems are collected on the way, and never end it."""

    def __init__(self, capture: Capture) -> None:
        self.capture = capture
        self.problems: list[str] = []
        self.unknown: list[str] = []

    def absent(self, name: str) -> bool:
        section = self.capture.sections.get(name)
        return section is not None and section.absent and not section.truncated

    def text(self, name: str) -> str:
        section = self.capture.sections.get(name)
        return section.text if section else ""

    def value(self, name: str) -> Any:
        """The parsed value; None when it is unknown, for whatever reason."""
        section = self.capture.sections.get(name)
        if section is None:
            if self.capture.complete and name not in _OPTIONAL:
                self.problem(name, "was not asked by the probe that made this capture")
            return None
        if section.absent and name in _OPTIONAL:
            return None
        if section.truncated:
            # The section in which an incomplete capture ends is named once, for the whole capture.
            if self.capture.last != name:
                self.problem(name, "its output was cut off at the limit")
            return None
        if section.absent:
            self.problem(name, "there is no such thing on the node")
            return None
        if section.timed_out:
            self.problem(name, "did not answer in time")
            return None
        try:
            return facts()[name].parse(section.text)
        except ParseError as exc:
            complaint = section.stderr.strip().split("\n")[0] if not section.text.strip() else ""
            self.problem(name, f"{exc.what}{': ' + complaint if complaint else ''}")
            return None

    def problem(self, name: str, what: str) -> None:
        if name in _SMI[1:] and any(p.startswith("nvidia_smi:") for p in self.problems):
            return
        self.problems.append(printable(f"{name}: {what}", limit=300))


def read_capture(text: str, name: str, token: str = "") -> Node:
    """The node that a capture describes. Raises ParseError when it is no capture at all; a bad section becomes one of
    `problems`, and what it would have told one of `unknown`."""
    capture = split_capture(text, name, token)
    reader = _Reader(capture)
    if not capture.complete:
        reader.problems.append(f"the capture is cut off{' in ' + capture.last if capture.last else ''}: "
                               "the node did not answer to the end")
    simulated = reader.value("simulated")
    if simulated is None:
        reader.unknown.append("simulated")
    kernel, dmi, slurmd = reader.value("kernel"), reader.value("dmi") or {}, reader.value("slurmd")
    cpu = _read_cpu(reader, slurmd, bool(simulated))
    memory = _known(reader, "meminfo", "memory")
    gpu_facts = _read_gpu_facts(reader)
    gpus = _gpu.join(gpu_facts)
    gpu_links = _gpu.links(gpu_facts, gpus)
    interfaces, rdma = _known(reader, "net", "nics"), _read_rdma(reader)
    verbs, neighbours = reader.value("ibv_devinfo") or (), reader.value("lldp") or ()
    addresses, system, tools, captured = (reader.value(name) for name in ("addresses", "os_release", "tools", "time"))
    driver = (gpu_facts.smi.driver if gpu_facts.smi else "") or (gpu_facts.proc.driver if gpu_facts.proc else "") or (
        gpu_facts.others.driver if gpu_facts.others else "")
    host = _host.fields(reader.value)
    unknown = [*reader.unknown, *gpu_facts.unknown, *(["serial"] if not dmi.get("product_serial") else []),
               *host.pop("unknown")]
    problems = [*reader.problems, *gpu_facts.problems, *host.pop("problems")]
    return Node(
        name=name, hostname=kernel.hostname if kernel else "", addresses=addresses or (), cpu=cpu, memory_mib=memory,
        gpus=gpus, gpu_links=gpu_links, pci=gpu_facts.pci or (), neighbours=neighbours,
        nics=_nic.join(rdma or (), interfaces or (), gpu_facts.pci or (), verbs),
        vendor=dmi.get("sys_vendor", ""), product=dmi.get("product_name", ""), serial=dmi.get("product_serial", ""),
        bios=dmi.get("bios_version", ""), os=system or "", kernel=kernel.release if kernel else "",
        gpu_driver="" if driver == "none" else driver, slurm_version=slurmd.version if slurmd else "",
        tools=tools or {}, simulated=simulated or "", unknown=tuple(dict.fromkeys(unknown)),
        problems=tuple(dict.fromkeys(problems)), captured=captured or "", **host,
    )


def _known(reader: _Reader, fact: str, part: str) -> Any:
    value = reader.value(fact)
    if value is None:
        reader.unknown.append(part)
    return value


def _read_cpu(reader: _Reader, slurmd: Any, simulated: bool) -> Cpu:
    topology, numa, lscpu = reader.value("cpu_topology"), reader.value("numa") or (), reader.value("lscpu")
    if topology is not None:
        cpu = _cpu.from_topology(topology, numa, reader.problems)
        if not cpu.cores:
            reader.unknown.append("cpu.cores")
    elif lscpu is not None:
        cpu = _cpu.from_lscpu(lscpu)
        reader.unknown.append("cpu.cores")
    else:
        reader.unknown.append("cpu")
        return Cpu()
    if lscpu is not None:
        cpu = Cpu(**{**cpu.__dict__, "model": lscpu.model, "architecture": lscpu.architecture})
    # Simulated hardware is in /sys alone: what asks the machine itself must differ.
    if not simulated:
        _cpu.check_counts(cpu, lscpu, slurmd, reader.problems)
        seen = reader.value("hwloc")
        if seen is not None and not seen.limited and cpu.cores:
            # Of NUMA nodes without CPUs hwloc hides some.
            _cpu.join({"the kernel": replace(cpu, numa=()), "hwloc": replace(seen.cpu, numa=())}, reader.problems)
        allowed = reader.value("cpuset")
        if allowed is not None and topology is not None and not set(allowed).issuperset(topology.online):
            reader.problems.append(f"captured inside a job or container: only CPUs {fold_ids(allowed)} of "
                                   f"{fold_ids(topology.online)} are allowed")
    return cpu


def _read_gpu_facts(reader: _Reader) -> _gpu.GpuFacts:
    pci = reader.value("pci")
    if pci is None:
        reader.unknown.append("pci")
    else:
        names = {device.address: device.full_name for device in reader.value("lspci") or ()}
        pci = tuple(replace(device, name=names.get(device.address, "")) for device in pci)
    smi = reader.value("nvidia_smi")
    found = _gpu.GpuFacts(
        smi=smi, smi_absent=reader.absent("nvidia_smi"), pci=pci, proc=reader.value("nvidia_proc"),
        listed=reader.value("nvidia_list"),
    )
    found.others = _read_other_gpus(reader, pci)
    # Without GPUs topo -m has nothing to show, and says so in many ways.
    if smi is not None and len(smi.gpus) > 0:
        found.topo, found.nvlinks = reader.value("nvidia_topo"), reader.value("nvidia_nvlink")
    return found


def _read_other_gpus(reader: _Reader, pci: tuple[PciDevice, ...] | None) -> _other_gpus.Joined:
    """AMD's and Intel's. Their tools are asked about nothing where the kernel shows no such GPU."""
    drm = reader.value("drm")
    amd = any(gpu.vendor == "amd" for gpu in drm.gpus) if drm else any(d.vendor_id == "1002" for d in pci or ())
    tools = [smi for name in ("rocm_smi", "amd_smi") if amd and (smi := reader.value(name)) is not None]
    return _other_gpus.join(drm, tools, pci)


def _read_rdma(reader: _Reader) -> Any:
    """() is "no RDMA device"; None, with "rdma" unknown, when nothing readable says so."""
    devices = reader.value("infiniband")
    if devices == () and "CA '" in reader.text("ibstat"):
        return reader.value("ibstat") or ()
    if devices is None:
        reader.unknown.append("rdma")
    return devices
