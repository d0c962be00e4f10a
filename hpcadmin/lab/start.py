"""Starting a lab: look first, write the journal, make the hosts, wait until Slurm says that all nodes are idle."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from hpcadmin.errors import LabError, UsageError
from hpcadmin.lab import build, cgroups, journal, machine, network, slurmwait, spawn, stop
from hpcadmin.lab.enter import network_tool, tool
from hpcadmin.lab.journal import Host, Lab
from hpcadmin.lab.options import Options
from hpcadmin.lab.slurmlog import complaints
from hpcadmin.text import plural

Progress = Callable[[str], None]


def up(options: Options | None = None, *, progress: Progress = lambda text: None) -> Lab:
    """Start a lab. Raises UsageError or LabError in one line, and leaves nothing behind when it does."""
    options = options or Options()
    lab = plan(options)
    machine.require_root()
    machine.require_overlay()
    machine.require_tools(lab.base, lab.accounting)
    machine.require_free(lab.name, lab.net, lab.interface)
    lab = replace(lab, uid=machine.free_uid(machine.base_accounts(lab.base)))
    _make_folder(lab)
    with journal.locked(lab.name) as mine:
        if not mine:
            raise LabError(f"lab {lab.name} is being started or ended by another process")
        try:
            journal.save(lab)
            lab = _start(lab, progress)
        except BaseException:
            stop.tear_down(journal.load(lab.name))
            raise
    return lab


def plan(options: Options) -> Lab:
    """The lab that the options describe; nothing is touched. Raises UsageError."""
    network.check_name(options.name)
    names = network.node_names(options.nodes)
    addresses = network.plan_addresses(options.net, options.nodes)
    for node in options.hardware_nodes:
        if node not in names:
            raise UsageError(f"--hardware-node {node}: no such node", hint=f"the lab has {names[0]} to {names[-1]}")
    for profile in sorted({options.hardware, *options.hardware_nodes.values()} - {""}):
        build.check_profile(profile)
    if options.conf:
        build.read_conf(Path(options.conf))
    base = os.path.realpath(options.base)
    if base != "/" and not Path(base, "etc").is_dir():
        raise UsageError(f"--base {options.base} is not a root file system", hint="debootstrap makes one")
    if ":" in base or "," in base:
        raise UsageError(f"--base {options.base}: overlayfs cannot take ':' or ',' in a path")
    hosts = [Host("switch", journal.SWITCH), Host("head", "head", addresses.head, port=0)]
    hosts += [Host(name, "node", address, port=number, hardware=options.hardware_nodes.get(name, options.hardware))
              for number, (name, address) in enumerate(zip(names, addresses.nodes, strict=True), 1)]
    notes = [note for note in [machine.own_paths(base)[1]] if note]
    if options.conf and Path(options.conf, "slurmdbd.conf").exists():
        notes.append(f"{options.conf}/slurmdbd.conf is not used: the lab's database has its own")
    return Lab(
        name=options.name, net=addresses.net, prefix=addresses.prefix, interface=network.interface_name(options.name),
        machine_address=addresses.machine, user=options.user, uid=0, hosts=tuple(hosts), base=base,
        conf=os.path.realpath(options.conf) if options.conf else "", accounting=options.accounting, notes=tuple(notes),
        cgroups=cgroups.lab_folders(options.name),
        shared=os.path.realpath(options.shared) if options.shared else str(journal.lab_dir(options.name) / "shared"),
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"))


def _make_folder(lab: Lab) -> None:
    journal.ROOT.mkdir(mode=0o755, exist_ok=True)
    lab.dir.mkdir(mode=0o755, exist_ok=True)     # what a crash before the journal left is empty
    (lab.dir / stop.STOP_MARK).unlink(missing_ok=True)
    for name in ("root", "shared", "log"):
        (lab.dir / name).mkdir(mode=0o755, exist_ok=True)
    if not Path(lab.shared).is_dir():
        raise UsageError(f"--shared {lab.shared} is not a folder")


def _check_stop(lab: Lab) -> None:
    if (lab.dir / stop.STOP_MARK).exists():
        raise LabError(f"lab {lab.name} was ended while it was being started")


def _start(lab: Lab, progress: Progress) -> Lab:
    if not cgroups.make(lab.cgroups, [h.name for h in [lab.head, *lab.nodes]]):
        for folder in lab.cgroups:
            stop.remove_cgroup(Path(folder))
        lab = replace(lab, cgroups=())
    progress("keys and configuration")
    prepared = build.prepare(lab)
    progress(f"namespaces for the head and {plural(len(lab.nodes), 'node')}")
    switch = spawn.spawn("switch", spawn.switch_main)
    children = [switch]
    try:
        lab = lab.with_process("switch", switch.process)
        for host in [lab.head, *lab.nodes]:
            spec = build.host_spec(lab, host, prepared)
            child = spawn.spawn(host.name, spawn.host_main(spec), str(Path(spec.log_dir) / "boot.log"))
            children.append(child)
            lab = lab.with_process(host.name, child.process)
        journal.save(lab)
        ports = [(h.port, h.process.pid) for h in [lab.head, *lab.nodes] if h.process]
        network_tool(lab.switch, ["ip", "-batch", "-"], stdin=network.switch_batch(lab.interface, os.getpid(), ports))
        _connect_machine(lab)
        for child in children:
            child.release()
        progress("services")
        spawn.wait_ready(children[1:], timeout_s=60, stop=lambda: _check_stop(lab))
    finally:
        for child in children:
            child.close()
    progress("Slurm")
    slurmwait.wait_idle(lab, [n.name for n in lab.nodes], timeout_s=60, stop=lambda: _check_stop(lab))
    # With files of ours there is nothing to complain about; with an admin's, each complaint is worth a line.
    said = complaints(lab) if lab.conf else []
    lab = replace(lab, phase="up", notes=(*lab.notes, *said))
    journal.save(lab)
    return lab


def _connect_machine(lab: Lab) -> None:
    done = subprocess.run([tool("ip"), "-batch", "-"], text=True, capture_output=True, check=False, timeout=20,
                          input=network.host_batch(lab.machine_address, lab.prefix, lab.interface))
    if done.returncode != 0:
        raise LabError(f"ip: {done.stderr.strip().splitlines()[0] if done.stderr.strip() else 'failed'}",
                       where=lab.interface)


def start_host(lab: Lab, host: Host) -> Lab:
    """Start a host that has ended, with a new cable to the switch."""
    spec = build.host_spec(lab, host, build.load_prepared(lab))
    cgroups.make(lab.cgroups, [host.name])
    child = spawn.spawn(host.name, spawn.host_main(spec), str(Path(spec.log_dir) / "boot.log"))
    try:
        lab = lab.with_process(host.name, child.process)
        journal.save(lab)
        port = network.port_name(host.port)
        # The old cable ends with the old network namespace, but the kernel takes its time.
        with contextlib.suppress(LabError):
            network_tool(lab.switch, ["ip", "link", "del", port])
        network_tool(lab.switch, ["ip", "-batch", "-"], stdin=network.port_batch(host.port, child.process.pid))
        child.release()
        spawn.wait_ready([child], timeout_s=60, stop=lambda: _check_stop(lab))
    except BaseException:
        stop.kill(child.process, signal.SIGKILL)
        raise
    finally:
        child.close()
    return lab
