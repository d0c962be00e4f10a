"""Real faults on a lab's node, and their healing."""

from __future__ import annotations

import signal
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcadmin.errors import LabError, UsageError
from hpcadmin.lab import journal, machine, network, stop
from hpcadmin.lab.conftext import settings
from hpcadmin.lab.enter import network_tool, run_on
from hpcadmin.lab.journal import Host, Lab, alive, identify
from hpcadmin.lab.processes import processes, program, run_state
from hpcadmin.lab.slurmwait import node_states
from hpcadmin.lab.start import start_host

if TYPE_CHECKING:      # the profiles are read only where a fault is about hardware
    from hpcadmin.lab.hardware import Profile

FAULT_FILE = "/run/hpcadmin/faults"
_SIMULATED = ("gpu ", "port ")      # faults of simulated hardware


@dataclass(frozen=True)
class Fault:
    """What is to happen to a node; heal ends whatever happened before."""

    rate: str = ""
    kill_slurmd: bool = False
    down: bool = False
    freeze: bool = False
    gpu: int | None = None
    gpu_fault: str = ""             # "lost" or "slow"
    port: str = ""                  # RDMA device
    port_fault: str = ""            # "down", "slow" or "errors"
    heal: bool = False

    def texts(self) -> list[str]:
        """As the journal and `lab status` name them."""
        named = [(bool(self.rate), f"rate {self.rate}"), (self.kill_slurmd, "slurmd killed"), (self.freeze, "frozen"),
                 (self.gpu is not None, f"gpu {self.gpu} {self.gpu_fault}"),
                 (bool(self.port), f"port {self.port} {self.port_fault}"), (self.down, "down")]
        return [text for wanted, text in named if wanted]


def fault(lab_name: str, node: str, what: Fault) -> Lab:
    """Make the faults (or heal all) of a node. Raises UsageError, or LabError when the lab cannot do it."""
    machine.require_root()
    _check(what)
    lab = journal.load(lab_name)
    host = lab.host(node)
    if host.role != "node":
        raise UsageError(f"{node} is not a node of lab {lab_name}", hint=f"{lab.nodes[0].name}, …")
    with journal.locked(lab_name, wait_s=30.0) as mine:
        if not mine:
            raise LabError(f"lab {lab_name} is being started, changed or ended by another process")
        lab = journal.load(lab_name)
        if lab.phase != "up":
            raise LabError(f"lab {lab_name} was left half made", hint=f"hpcadmin lab down --name {lab_name}")
        return _heal(lab, lab.host(node)) if what.heal else _make(lab, lab.host(node), what)


def _check(what: Fault) -> None:
    if what.heal and what.texts():
        raise UsageError("--heal goes with no other fault")
    if not what.heal and not what.texts():
        raise UsageError("no fault named", hint="--rate, --kill-slurmd, --down, --freeze, --gpu N lost|slow, "
                         "--port DEVICE down|slow|errors, --heal")
    if what.rate:
        network.tbf_arguments(what.rate)


def _make(lab: Lab, host: Host, what: Fault) -> Lab:
    if not alive(host.process):
        raise LabError(f"{host.name} is down", hint=f"hpcadmin lab fault {host.name} --heal")
    if what.gpu is not None:
        _check_gpu(host, what.gpu)
    if what.port:
        _check_port(host, what.port)
    # Written down first: after a crash in between, --heal undoes also what was not made.
    kept = [old for old in lab.faults.get(host.name, ()) if old not in what.texts()
            and not (what.rate and old.startswith("rate "))
            and not old.startswith((f"gpu {what.gpu} ", f"port {what.port} "))]
    lab = lab.with_faults(host.name, (*kept, *what.texts()))
    journal.save(lab)
    if what.rate:
        _set_rate(lab, host, network.tbf_arguments(what.rate))
    if what.gpu is not None or what.port:
        _tell_simulation(lab, host)
    if what.kill_slurmd:
        _kill_slurmd(host)
    if what.freeze:
        _freeze(host)
    if what.down and host.process:
        stop.kill(host.process, signal.SIGKILL)
        if stop.wait_gone([host.process], 20.0):
            raise LabError("its processes do not end", where=host.name)
    return lab


def _set_rate(lab: Lab, host: Host, arguments: list[str]) -> None:
    for where, interface in ((host, "eth0"), (lab.switch, network.port_name(host.port))):
        network_tool(where, ["tc", "qdisc", "replace", "dev", interface, "root", *arguments])


def _profile(host: Host, what: str) -> Profile:
    """The hardware that a node pretends to have; what: which of it is asked for."""
    if not host.hardware:
        raise UsageError(f"{host.name} has no simulated {what}", hint="lab up --hardware PROFILE gives nodes some")
    from hpcadmin.lab import hardware  # noqa: PLC0415
    return hardware.load_profile(host.hardware)


def _check_gpu(host: Host, gpu: int) -> None:
    known = [one.index for one in _profile(host, "GPUs").gpus]
    if gpu not in known:
        raise UsageError(f"{host.name} has no GPU {gpu}", hint=f"it has {', '.join(map(str, known)) or 'none'}")


def _check_port(host: Host, port: str) -> None:
    known = [nic.name for nic in _profile(host, "ports").nics]
    if port not in known:
        raise UsageError(f"{host.name} has no RDMA device {port}", hint=f"it has {', '.join(known) or 'none'}")


def _tell_simulation(lab: Lab, host: Host) -> None:
    """The simulation's tools read the faults of their node from a file; its /sys is changed from here."""
    from hpcadmin.lab import hardware  # noqa: PLC0415
    lines = [text for text in lab.faults.get(host.name, ()) if text.startswith(_SIMULATED)]
    done = run_on(lab, host, ["sh", "-c", f"mkdir -p /run/hpcadmin && cat > {FAULT_FILE} && chmod 644 {FAULT_FILE}"],
                  stdin="".join(f"{line}\n" for line in lines if line.startswith("gpu ")))
    if done.returncode != 0:
        raise LabError(f"{FAULT_FILE}: {done.stderr.strip()[:200]}", where=host.name)
    hardware.apply_faults(hardware.load_profile(host.hardware), lab.dir / "hardware" / host.name, lines)


def _kill_slurmd(host: Host) -> None:
    for pid in processes(host):
        process = identify(pid)
        if process and program(pid) == "slurmd":
            stop.kill(process, signal.SIGKILL)
            stop.wait_gone([process], 5.0)


def _freeze(host: Host) -> None:
    """Stop every process; those born meanwhile in the next turn."""
    for _ in range(50):
        running = [pid for pid in processes(host) if run_state(pid) not in ("T", "t", "Z", "X", "")]
        if not running:
            return
        _signal_all(running, signal.SIGSTOP)
        time.sleep(0.02)
    raise LabError("not all of its processes could be stopped", where=host.name)


def _signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        process = identify(pid)
        if process:
            stop.kill(process, number)


def _heal(lab: Lab, host: Host) -> Lab:
    had = lab.faults.get(host.name, ())
    if not alive(host.process):
        lab = start_host(lab, host)
        host = lab.host(host.name)
    else:
        _signal_all([pid for pid in processes(host) if run_state(pid) == "T"], signal.SIGCONT)
        if any(text.startswith("rate ") for text in had):
            _clear_rate(lab, host)
    if host.hardware and any(text.startswith(_SIMULATED) for text in had):
        _tell_simulation(lab.with_faults(host.name, ()), host)
    if "slurmd" not in [program(pid) for pid in processes(host)]:
        done = run_on(lab, host, ["sh", "/etc/hpcadmin/lab/boot.sh", "slurmd"])
        if done.returncode != 0:
            raise LabError(f"slurmd: {done.stderr.strip()[:200]}", where=host.name)
    if any(not text.startswith(("rate ", *_SIMULATED)) for text in had) or had == ():
        _back_to_work(lab, host)
    lab = lab.with_faults(host.name, ())
    journal.save(lab)
    return lab


def _clear_rate(lab: Lab, host: Host) -> None:
    for where, interface in ((host, "eth0"), (lab.switch, network.port_name(host.port))):
        network_tool(where, ["tc", "qdisc", "replace", "dev", interface, "root", "noqueue"])


def _slurmd_answers(lab: Lab, host: Host) -> bool:
    """Slurm may not have noticed that slurmd was gone: its word alone does not say that it is back."""
    conf = lab.dir / "slurm/slurm.conf"
    port = settings(conf.read_text(errors="replace")).get("slurmdport", "6818")
    try:
        socket.create_connection((host.address, int(port) if port.isdigit() else 6818), timeout=2).close()
    except OSError:
        return False
    return True


def _back_to_work(lab: Lab, host: Host, timeout_s: float = 60.0) -> None:
    """Until Slurm has the node again. DOWN came from our fault and is ended; a drain is an admin's, and stays."""
    deadline = time.monotonic() + timeout_s
    state, asked = "", 0.0
    while time.monotonic() < deadline:
        state = node_states(lab).get(host.name, ("", ""))[0]
        if state and not state.endswith("*") and not state.startswith(("down", "unk")) and _slurmd_answers(lab, host):
            return
        if state.startswith("down") and time.monotonic() - asked > 2.0:
            asked = time.monotonic()
            run_on(lab, lab.head, ["scontrol", "update", f"NodeName={host.name}", "State=RESUME"])
        time.sleep(0.1)
    raise LabError(f"Slurm still says {state or 'nothing'}", where=host.name)

