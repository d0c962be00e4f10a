#!/usr/bin/env python3
"""conf render and conf check of a large cluster, unlike groups of nodes under a three-level fabric, as a table.

    python benchmarks/conf.py [NODES [GROUPS]]

`render` and `check` are the pure functions on an inventory in memory; the commands beside them also load the inventory
(hardly more than what configuration needs) and read or write the files. Each is a process of its own; memory is its
largest.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from hpcadmin.conf.check.finding import Situation
from hpcadmin.conf.check.run import check
from hpcadmin.conf.existing.read import configure
from hpcadmin.conf.render import RenderOptions, render
from hpcadmin.inventory import save
from hpcadmin.model import Core, Cpu, Fabric, FabricDevice, Gpu, Group, Inventory, Nic, Node, NumaNode, SwitchPort
from hpcadmin.site import parse_site
from hpcadmin.toml_text import parse_toml

PORTS = 40          # nodes a leaf
LEAVES = 16         # leaves a pod; as many spines
SITE = '[cluster]\nname = "large"\ncontrollers = ["head"]\n[slurm]\nversion = "25.11"\n'


def cpu(cores: int) -> Cpu:
    listed = tuple(Core(i // cores, i // cores, (i, i + 2 * cores)) for i in range(2 * cores))
    numa = tuple(NumaNode(n, tuple(c for core in listed if core.numa == n for c in core.cpus), 1000) for n in (0, 1))
    return Cpu("a CPU", "x86_64", 2, cores, 2, listed, numa)


def node(name: str, group: int, kind: Cpu, number: int) -> Node:
    """One group in four has no GPU; the others have 8 or 4 of several models."""
    count = (0, 8, 8, 4)[group % 4]
    model = ("NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA A100-SXM4-80GB")[group % 3]
    near = (kind.numa[0].cpus, kind.numa[1].cpus)
    gpus = tuple(Gpu("nvidia", i, model, f"GPU-{name}-{i}", f"{number:08d}{i}", f"0000:{0x10 + 16 * i:02x}:00.0", i,
                     f"/dev/nvidia{i}", 81559, numa=2 * i // count, local_cpus=near[2 * i // count])
                 for i in range(count))
    links = tuple(tuple("X" if i == j else "NV18" for j in range(count)) for i in range(count))
    nic = Nic("mlx5_0", "mlx5_0", 1, link_layer="InfiniBand", state="ACTIVE", rate_gbps=400.0, guid=f"{number:016x}")
    return Node(name, hostname=name, cpu=kind, memory_mib=512_000 + 1_000 * group, gpus=gpus, gpu_links=links,
                nics=(nic,), slurm_version="25.11.1")


def fabric(names: list[str]) -> Fabric:
    leaves = [names[i:i + PORTS] for i in range(0, len(names), PORTS)]
    pods = [range(i, min(i + LEAVES, len(leaves))) for i in range(0, len(leaves), LEAVES)]
    found = []
    for number, members in enumerate(leaves):
        spines = [f"spine-{number // LEAVES + 1:02d}-{k + 1:02d}" for k in range(LEAVES)]
        ports = [SwitchPort(i + 1, f"{name} mlx5_0", peer_port=1) for i, name in enumerate(members)]
        ports += [SwitchPort(PORTS + k + 1, spine, peer_port=number % LEAVES + 1) for k, spine in enumerate(spines)]
        found.append(FabricDevice(f"leaf-{number + 1:03d}", "switch", f"{number:016x}", level=1, ports=tuple(ports)))
        found += [FabricDevice(f"{name} mlx5_0", "ca", host=name, device="mlx5_0",
                               ports=(SwitchPort(1, f"leaf-{number + 1:03d}", peer_port=i + 1),))
                  for i, name in enumerate(members)]
    for pod, members in enumerate(pods):
        for k in range(LEAVES):
            below = [SwitchPort(n % LEAVES + 1, f"leaf-{n + 1:03d}", peer_port=PORTS + k + 1) for n in members]
            above = [SwitchPort(LEAVES + c + 1, f"core-{c + 1:02d}", peer_port=pod * LEAVES + k + 1) for c in range(4)]
            found.append(FabricDevice(f"spine-{pod + 1:02d}-{k + 1:02d}", "switch", f"{pod:08x}{k:08x}", level=2,
                                      ports=(*below, *above)))
    for c in range(4):
        ports = tuple(SwitchPort(p * LEAVES + k + 1, f"spine-{p + 1:02d}-{k + 1:02d}", peer_port=LEAVES + c + 1)
                      for p in range(len(pods)) for k in range(LEAVES))
        found.append(FabricDevice(f"core-{c + 1:02d}", "switch", f"{c:016x}", level=3, ports=ports))
    return Fabric("infiniband", tuple(found))


def made(nodes: int, groups: int) -> Inventory:
    kinds = [cpu(24 + group) for group in range(groups)]
    per = -(-nodes // groups)
    found = [node(f"n{i + 1:05d}", i // per, kinds[i // per], i) for i in range(nodes)]
    listed = tuple(Group(f"g{g}", tuple(n.name for n in found[g * per:(g + 1) * per])) for g in range(groups))
    return Inventory(tuple(found), listed, fabrics=(fabric([n.name for n in found]),))


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def pure(what: str, nodes: int, groups: int) -> None:
    site = parse_site(parse_toml(SITE.encode(), "site.toml"), "site.toml")
    inventory = made(nodes, groups)
    before = peak_mib()
    begin = time.perf_counter()
    result = render(inventory, site, RenderOptions())
    took = time.perf_counter() - begin
    assert not result.problems, result.problems[:3]
    if what == "check":
        begin = time.perf_counter()
        conf = configure(result.files)
        findings = check(Situation(conf, ((25, 11), (26, 5)), inventory, site=site))
        took = time.perf_counter() - begin
        wrong = [f for f in findings if f.severity.name != "NOTE"]
        assert not wrong, wrong[:3]
    print(json.dumps({"s": took, "mib": peak_mib(), "before": before, "lines": sum(
        text.count("\n") for text in result.files.values())}))


def command(*argv: str) -> tuple[float, float]:
    begin = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", (
        "import resource, sys\nfrom hpcadmin.cli import run\nstatus = run(sys.argv[1:])\n"
        "print('PEAK', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, status, file=sys.stderr)"), *argv],
        capture_output=True, text=True, check=True)
    took = time.perf_counter() - begin
    _, peak, status = done.stderr.strip().splitlines()[-1].split()
    assert status == "0", done.stdout[-500:] + done.stderr[-500:]
    return took, int(peak) / 1024


def main() -> None:
    if sys.argv[1:2] in (["render"], ["check"]):
        pure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
        return
    nodes, groups = (int(sys.argv[1]) if len(sys.argv) > 1 else 10_000), (int(sys.argv[2]) if len(sys.argv) > 2 else 40)
    print(f"| {nodes:,} nodes in {groups} groups | s | largest MiB |\n|---|---:|---:|")
    for what in ("render", "check"):
        told = json.loads(subprocess.run([sys.executable, __file__, what, str(nodes), str(groups)], check=True,
                                         capture_output=True, text=True).stdout)
        print(f"| {what} ({told['lines']:,} lines; {told['before']:.0f} MiB before) | {told['s']:.2f} | "
              f"{told['mib']:.0f} |")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "site.toml").write_text(SITE)
        save(path / "inventory.json", replace(made(nodes, groups), created="2026-11-30T00:00:00+00:00"))
        common = ("--site", str(path / "site.toml"), "conf")
        for name, words in (("conf render -o", ("render", "-o", str(path / "conf"))),
                            ("conf check", ("check", str(path / "conf")))):
            took, peak = command(*common, words[0], "--inventory", str(path / "inventory.json"), *words[1:])
            print(f"| `hpcadmin {name}` | {took:.2f} | {peak:.0f} |")


if __name__ == "__main__":
    main()
