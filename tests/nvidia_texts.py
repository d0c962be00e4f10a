"""Made-up NVIDIA GPUs, and what nvidia-smi prints of them in each of its formats, written from the formats' facts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from hpcadmin.model import Gpu, MigDevice

# Name, MiB, device id, NVLinks, rate of one, MIG, NVSwitch fabric: boards of all ages.
BOARDS = (
    ("NVIDIA GB200", 189471, "2941", 18, "53.125", True, True),
    ("NVIDIA H100 80GB HBM3", 81559, "2330", 18, "26.562", True, True),
    ("NVIDIA A100-SXM4-40GB", 40960, "20b0", 12, "25", True, False),
    ("Tesla V100-SXM2-16GB", 16160, "1db1", 6, "25.781", False, False),
    ("NVIDIA GeForce RTX 4090", 24564, "2684", 0, "", False, False),
    ("NVIDIA GB10", None, "2e12", 0, "", False, False),
    ("NVIDIA A100 80GB PCIe", 81920, "20b5", 12, "25", True, False),
    ("NVIDIA L40S", 46068, "26b9", 0, "", False, False),
)


@dataclass(frozen=True)
class Made:
    """GPUs of one node, as nvidia-smi orders them: by bus. links: of each GPU, None for one that is down."""

    driver: str
    cuda: str
    gpus: tuple[Gpu, ...]
    links: tuple[str | None, ...] = ()


@st.composite
def made(draw: st.DrawFn, most: int = 8) -> Made:
    board = draw(st.sampled_from(BOARDS))
    name, memory, device, count, rate, can_mig, fabric = board
    size = draw(st.integers(1, most))
    buses = sorted(draw(st.lists(st.tuples(st.sampled_from((0, 1, 0xf, 0x10, 0x10000)), st.integers(1, 254)),
                                 min_size=size, max_size=size, unique=True)))
    minors = draw(st.permutations(range(size)))
    gpus = []
    for index, (domain, bus) in enumerate(buses):
        pci = f"{domain:04x}:{bus:02x}:00.0"
        state = draw(st.sampled_from(("Enabled", "Disabled"))) if can_mig else ""
        migs = tuple(MigDevice(n, draw(st.sampled_from(("1g.10gb", "2g.20gb", "3g.40gb"))),
                               f"MIG-{index:08x}-0000-5000-8000-{n:012x}", n + 1, 0, 9856)
                     for n in range(draw(st.integers(1, 3)))) if state == "Enabled" else ()
        ecc = draw(st.sampled_from(("Enabled", "Disabled", "")))
        gpus.append(Gpu(
            "nvidia", index, name, f"GPU-{index:08x}-1111-4222-8333-{bus:012x}", f"16530{index:08d}", pci,
            minors[index], "", memory, vbios="96.00.74.00.0D", pcie_gen=draw(st.integers(1, 6)),
            pcie_width=draw(st.sampled_from((1, 4, 8, 16))),
            pcie_gen_max=6, pcie_width_max=16, ecc=ecc, persistence=draw(st.sampled_from(("Enabled", "Disabled"))),
            power_limit_w=draw(st.sampled_from((250.0, 700.0, 1200.5, None))), power_limit_max_w=1200.5,
            mig=state, mig_pending=state, mig_devices=migs,
            compute_mode=draw(st.sampled_from(("Default", "Exclusive_Process", "Prohibited"))),
            fabric_state="Completed" if fabric else "", fabric_status="Success" if fabric else "",
            fabric_cluster_uuid="8f6c1a2b-0000-4000-8000-0123456789ab" if fabric else "",
            fabric_clique="32766" if fabric else "",
            part_number="692-2G520-0200-000", pci_id=f"10de:{device}",
        ))
    links = tuple(draw(st.sampled_from((rate, rate, rate, None))) for _ in range(count))
    driver = draw(st.sampled_from(("470.82.01", "535.161.08", "570.133.20", "610.57.04")))
    return Made(driver, "12.8", tuple(gpus), links)


def bus_id(gpu: Gpu) -> str:
    domain, rest = gpu.pci.split(":", 1)
    return f"{int(domain, 16):08X}:{rest.upper()}"


def _mib(number: int | None) -> str:
    return "N/A" if number is None else f"{number} MiB"


def _watts(number: float | None) -> str:
    return "N/A" if number is None else f"{number:.2f} W"


Field = tuple[str, str, "str | Sequence[Field]"]


def fields(gpu: Gpu) -> list[Field]:
    """(label of -q, tag of -x, value or the fields below it); "" for what the other form does not have."""
    na = "N/A"
    ecc = gpu.ecc or na
    mig = [("Current", "current_mig", gpu.mig or na), ("Pending", "pending_mig", gpu.mig_pending or na)]
    return [
        ("Product Name", "product_name", gpu.model), ("Persistence Mode", "persistence_mode", gpu.persistence),
        ("MIG Mode", "mig_mode", mig),
        ("", "mig_devices", [("", "mig_device", _mig(one)) for one in gpu.mig_devices] or "None"),
        *[("MIG Device", "", _mig(one)) for one in gpu.mig_devices],
        ("Accounting Mode", "accounting_mode", "Disabled"),
        ("Driver Model", "driver_model", [("Current", "current_dm", na), ("Pending", "pending_dm", na)]),
        ("Serial Number", "serial", gpu.serial), ("GPU UUID", "uuid", gpu.uuid),
        ("Minor Number", "minor_number", str(gpu.minor)), ("VBIOS Version", "vbios_version", gpu.vbios),
        ("Board Part Number", "board_part_number", gpu.part_number),
        ("GPU Virtualization Mode", "gpu_virtualization_mode", [
            ("Virtualization Mode", "virtualization_mode", "None")]),
        ("PCI", "pci", [
            ("Bus", "pci_bus", "0x01"), ("Device Id", "pci_device_id", f"0x{gpu.pci_id[5:].upper()}10DE"),
            ("Bus Id", "pci_bus_id", bus_id(gpu)),
            ("GPU Link Info", "pci_gpu_link_info", [
                ("PCIe Generation", "pcie_gen", [("Max", "max_link_gen", str(gpu.pcie_gen_max)),
                                                 ("Current", "current_link_gen", str(gpu.pcie_gen))]),
                ("Link Width", "link_widths", [("Max", "max_link_width", f"{gpu.pcie_width_max}x"),
                                               ("Current", "current_link_width", f"{gpu.pcie_width}x")])])]),
        ("FB Memory Usage", "fb_memory_usage", [("Total", "total", _mib(gpu.memory_mib)), ("Used", "used", "1 MiB")]),
        ("BAR1 Memory Usage", "bar1_memory_usage", [("Total", "total", "131072 MiB"), ("Used", "used", "1 MiB")]),
        ("Compute Mode", "compute_mode", gpu.compute_mode),
        ("ECC Mode", "ecc_mode", [("Current", "current_ecc", ecc), ("Pending", "pending_ecc", ecc)]),
        ("Remapped Rows", "remapped_rows", "N/A"),
        ("GPU Power Readings", "gpu_power_readings", [
            ("Current Power Limit", "current_power_limit", _watts(gpu.power_limit_w)),
            ("Max Power Limit", "max_power_limit", _watts(gpu.power_limit_max_w))]),
        ("Module Power Readings", "module_power_readings", [
            ("Current Power Limit", "current_power_limit", "2800.00 W")]),
        ("Fabric", "fabric", [
            ("State", "state", gpu.fabric_state or na), ("Status", "status", gpu.fabric_status or na),
            ("CliqueId", "cliqueId", gpu.fabric_clique or na),
            ("ClusterUUID", "clusterUuid", gpu.fabric_cluster_uuid or na)]),
        ("Processes", "", "None"),
    ]


def _mig(one: MigDevice) -> list[Field]:
    return [("Index", "index", str(one.index)), ("GPU Instance ID", "gpu_instance_id", str(one.gpu_instance)),
            ("Compute Instance ID", "compute_instance_id", str(one.compute_instance)),
            ("Device Attributes", "device_attributes", [("Shared", "shared", [
                ("Multiprocessor count", "multiprocessor_count", "14")])]),
            ("FB Memory Usage", "fb_memory_usage", [("Total", "total", _mib(one.memory_mib))])]


def _text(rows: Sequence[Field], depth: int) -> list[str]:
    lines = []
    for label, _, value in rows:
        name = "    " * depth + label
        if label and isinstance(value, str):
            lines.append(f"{name:<42}: {value}")
        elif label:
            lines += [name, *_text(value, depth + 1)]
    return lines


def _tags(rows: Sequence[Field], depth: int) -> list[str]:
    lines = []
    for _, tag, value in rows:
        space = "\t" * depth
        if tag and isinstance(value, str):
            lines.append(f"{space}<{tag}>{value}</{tag}>")
        elif tag:
            lines += [f"{space}<{tag}>", *_tags(value, depth + 1), f"{space}</{tag}>"]
    return lines


def as_xml(node: Made) -> str:
    lines = ['<?xml version="1.0" ?>', '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">', "<nvidia_smi_log>",
             f"\t<driver_version>{node.driver}</driver_version>", f"\t<cuda_version>{node.cuda}</cuda_version>",
             f"\t<attached_gpus>{len(node.gpus)}</attached_gpus>"]
    for gpu in node.gpus:
        lines += [f'\t<gpu id="{bus_id(gpu)}">', *_tags(fields(gpu), 2), "\t</gpu>", ""]
    return "\n".join([*lines, "</nvidia_smi_log>"]) + "\n"


def as_q(node: Made) -> str:
    lines = ["", "==============NVSMI LOG==============", "", f"{'Timestamp':<42}: Wed Jul 31 11:22:39 2024",
             f"{'Driver Version':<42}: {node.driver}", f"{'CUDA Version':<42}: {node.cuda}", "",
             f"{'Attached GPUs':<42}: {len(node.gpus)}"]
    for gpu in node.gpus:
        lines += [f"GPU {bus_id(gpu)}", *_text(fields(gpu), 1), ""]
    return "\n".join(lines) + "\n"


def as_list(node: Made) -> str:
    lines = []
    for gpu in node.gpus:
        lines.append(f"GPU {gpu.index}: {gpu.model} (UUID: {gpu.uuid})")
        lines += [f"  MIG {one.profile:<12}Device {one.index:>2}: (UUID: {one.uuid})" for one in gpu.mig_devices]
    return "\n".join(lines) + "\n"


COLUMNS = ("index", "name", "uuid", "pci.bus_id", "memory.total", "driver_version", "vbios_version", "compute_mode",
           "power.limit", "pcie.link.width.max", "mig.mode.current")


def as_csv(node: Made, columns: Sequence[str], *, header: bool = True, units: bool = True) -> str:
    unit = {"memory.total": "MiB", "power.limit": "W"}
    lines = [", ".join(f"{name} [{unit[name]}]" if name in unit else name for name in columns)] if header else [
        f"$ nvidia-smi --query-gpu={','.join(columns)} --format=csv,noheader"]
    for gpu in node.gpus:
        values = {
            "index": str(gpu.index), "name": gpu.model, "uuid": gpu.uuid, "pci.bus_id": bus_id(gpu),
            "memory.total": "[N/A]" if gpu.memory_mib is None else f"{gpu.memory_mib}{' MiB' if units else ''}",
            "driver_version": node.driver, "vbios_version": gpu.vbios, "compute_mode": gpu.compute_mode,
            "power.limit": "[N/A]" if gpu.power_limit_w is None else f"{gpu.power_limit_w:.2f}{' W' if units else ''}",
            "pcie.link.width.max": str(gpu.pcie_width_max), "mig.mode.current": gpu.mig or "[N/A]"}
        lines.append(", ".join(values[name] for name in columns))
    return "\n".join(lines) + "\n"


def as_table(node: Made, *, old: bool = False) -> str:
    """old: before driver 450, two lines a GPU and names of 19 characters."""
    room, wide = (19, 31) if old else (27, 41)
    rule = f"+{'-' * wide}+{'-' * (22 if old else 24)}+{'-' * 22}+"
    lines = ["Mon Jan 20 10:18:26 2025", rule.replace("-+-", "---"),
             f"| NVIDIA-SMI {node.driver}   Driver Version: {node.driver}   CUDA Version: {node.cuda}     |",
             f"|{rule[1:-1]}|",
             "| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |",
             "| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |",
             f"|{rule[1:-1].replace('-', '=')}|"]
    modes = {"Default": "Default", "Exclusive_Process": "E. Process", "Prohibited": "Prohibited"}
    for gpu in node.gpus:
        name = gpu.model if len(gpu.model) <= room else gpu.model[:room - 3].rstrip() + "..."
        usage = "N/A" if gpu.memory_mib is None else f"1MiB / {gpu.memory_mib}MiB"
        power = "N/A" if gpu.power_limit_w is None else f"{gpu.power_limit_w:.0f}W"
        ecc = {"Enabled": "0", "Disabled": "Off", "": "N/A"}[gpu.ecc]
        state = {"Enabled": "On", "Disabled": "Off"}[gpu.persistence]
        address = bus_id(gpu) if not old else bus_id(gpu)[-12:] if gpu.pci.startswith("0000:") else bus_id(gpu)
        lines += [f"| {gpu.index:3d}  {name:<{room}} {state:>5}  | {address} Off | {ecc:>20} |",
                  f"| N/A   27C    P0    72W / {power:>5} | {usage:>20} |      0% {modes[gpu.compute_mode]:>12} |"]
        lines += [] if old else [f"| {'':30} | {'':20} | {gpu.mig or 'N/A':>20} |"]
        lines.append(rule)
    if not old:
        lines += _mig_table(node)
    return "\n".join([*lines, "", "+------+", "| Processes:                           GPU Memory |", "|======|",
                      "|  No running processes found                     |", "+------+"]) + "\n"


def _mig_table(node: Made) -> list[str]:
    migs = [(gpu, one) for gpu in node.gpus for one in gpu.mig_devices]
    lines = ["", "+------+", "| MIG devices:                |",
             "| GPU  GI  CI  MIG |         Memory-Usage |        Vol|",
             "|      ID  ID  Dev |           BAR1-Usage | SM     Unc|",
             "|==================+======================+===========|"] if migs else []
    for gpu, one in migs:
        lines += [f"|{gpu.index:3d}  {one.gpu_instance:3d}  {one.compute_instance:2d}  {one.index:2d}  "
                  f"|   11MiB / {one.memory_mib}MiB  | 14      0 |  1   0    1    0    0 |",
                  f"| {'':16} |      0MiB / 32767MiB |           |", "+--------+-----+"]
    return lines


def as_nvlink(node: Made) -> str:
    lines = []
    for gpu in node.gpus:
        lines.append(f"GPU {gpu.index}: {gpu.model} (UUID: {gpu.uuid})")
        if node.links and not any(node.links):
            lines.append("NVML: Unable to retrieve NVLink information as all links are inActive")
        elif not node.links:
            lines.append("Device does not have or support Nvlink")
        else:
            lines += [f"\t Link {n}: {f'{rate} GB/s' if rate else '<inactive>'}" for n, rate in enumerate(node.links)]
    return "\n".join(lines) + "\n"


def as_proc(node: Made) -> str:
    return "".join(
        f"Model: \t\t {gpu.model}\nIRQ:   \t\t {100 + (gpu.index or 0)}\nGPU UUID: \t {gpu.uuid}\n"
        f"Video BIOS: \t {gpu.vbios}\nBus Location: \t {gpu.pci}\nDevice Minor: \t {gpu.minor}\nGPU Excluded:\t No\n"
        for gpu in node.gpus)


def without_profiles(gpu: Gpu) -> Gpu:
    """As -q knows it."""
    return replace(gpu, mig_devices=tuple(replace(one, profile="", uuid="") for one in gpu.mig_devices))
