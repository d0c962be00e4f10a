"""Putting a cluster's files before a Slurm: one set of namespaces, which are gone afterwards, whatever happens."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import ipaddress
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from hpcadmin.conf.keys import NODE_PARAMETERS
from hpcadmin.lab import cgroups
from hpcadmin.lab.enter import tool
from hpcadmin.proof.parts import Answer, Cluster, NodeAnswer, NodeRun, Slurm

CONF = "/etc/slurm"
FOLDERS = (CONF, "/var/log/slurm", "/var/spool", "/var/lib/slurm", "/var/log", "/run/slurm")
# Documentation networks: the first is on lo, the second leads nowhere, so that nobody is waited for.
HERE, NOWHERE = "192.0.2.{}", "198.51.100.1"
START_S = 60.0
PREFIX = "hpcadmin-proof-"


def ask(slurm: Slurm, cluster: Cluster) -> Answer:
    """What slurmctld and slurmd of that Slurm say to these files. Never raises for what the files are."""
    began = time.monotonic()
    sweep()
    with _stopped_by_signals():
        work, held = _work()
        folders: tuple[str, ...] = ()
        try:
            folders = groups(work.name) if cluster.keep_cgroups else ()
            (work / "root").mkdir()
            (work / "spec.json").write_text(json.dumps(spec(slurm, cluster, folders)), encoding="utf-8")
            limit = START_S + sum(node.seconds + 25.0 + 30.0 * len(node.jobs) for node in cluster.nodes)
            lines, problem = _run(work, limit)
            return _answer(slurm, lines, problem, time.monotonic() - began)
        finally:
            remove_groups(folders)
            shutil.rmtree(work, ignore_errors=True)
            os.close(held)


@contextlib.contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """SIGTERM and a lost terminal end a proof as Ctrl-C does: nothing is left."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, _: object) -> None:
        raise KeyboardInterrupt(number)

    old = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _work() -> tuple[Path, int]:
    """A new folder, and the descriptor by which it is held as long as the proof lasts."""
    while True:
        work = Path(tempfile.mkdtemp(prefix=PREFIX))
        held = os.open(work / "held", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        fcntl.flock(held, fcntl.LOCK_EX)
        if (work / "held").exists():         # else another proof has just swept it away
            return work, held
        os.close(held)


def groups(name: str) -> tuple[str, ...]:
    """Control groups for the daemons of a proof; () where they cannot be made."""
    folders = cgroups.lab_folders(name)
    if cgroups.make(folders, ["daemons"]):
        return folders
    remove_groups(folders)
    return ()


def sweep() -> None:
    """What proofs left that were killed: nobody holds their folder any more."""
    for work in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            if not stat.S_ISDIR(work.lstat().st_mode) or work.lstat().st_uid != os.geteuid():
                continue
            held = os.open(work / "held", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove_groups(cgroups.lab_folders(work.name))
            shutil.rmtree(work, ignore_errors=True)
        except OSError:
            continue                         # another proof that runs now
        finally:
            os.close(held)


def _is_number(address: str) -> bool:
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return False
    return True


def spec(slurm: Slurm, cluster: Cluster, folders: tuple[str, ...]) -> dict[str, Any]:
    """What hpcadmin.proof.inside is told."""
    addresses = {node.name: node.address or HERE.format(10 + place % 240)
                 for place, node in enumerate(cluster.nodes)}
    numbers = [address for address in cluster.controller_addresses if _is_number(address)]
    called = [cluster.controller, *(name for name in cluster.controller_addresses if name not in numbers)]
    own = list(dict.fromkeys([*(numbers or (HERE.format(1),)), *addresses.values()]))
    hosts = ["127.0.0.1 localhost", *(f"{own[0]} {name}" for name in called),
             *(f"{address} {name}" for name, address in addresses.items() if name != cluster.controller),
             *(f"{addresses[node.name]} {node.alias}" for node in cluster.nodes if node.alias),
             *(f"{NOWHERE} {name}" for name in cluster.hosts if name not in addresses and name not in called)]
    texts = {f"{CONF}/{name}": text for name, text in cluster.files.items()} | dict(cluster.elsewhere)
    texts["/etc/hosts"] = "\n".join(hosts) + "\n"
    paths = dict.fromkeys(FOLDERS, "") | dict(cluster.folders)
    return {
        "root": slurm.root, "sbin": slurm.sbin, "conf": f"{CONF}/slurm.conf", "hostname": cluster.controller,
        "addresses": [f"{address}/32" if ":" not in address else f"{address}/128" for address in own],
        "folders": list(paths.items()), "files": texts, "cgroups": list(folders), "munge_socket": cluster.munge_socket,
        "tmp": cluster.tmp, "nodes": [_node_spec(node, cluster, slurm) for node in cluster.nodes],
    }


def _node_spec(node: NodeRun, cluster: Cluster, slurm: Slurm) -> dict[str, Any]:
    hardware = node.hardware
    parameters = hardware.parameters if slurm.version >= NODE_PARAMETERS else ""
    return {
        "name": node.name, "seconds": node.seconds, "jobs": list(node.jobs), "wait_for_files": node.wait_for_files,
        "synthetic": hardware.synthetic, "xml": hardware.xml, "detected": hardware.detected,
        "driver": [list(entry) for entry in hardware.driver],
        "tmp_mib": hardware.tmp_mib,
        "devices": [[d.path, d.major, d.minor] for d in hardware.devices], "gres": cluster.with_gres,
        "fresh": list(cluster.fresh),
        "measure": [f"--parameters={parameters}"] if parameters else [],
    }


def _run(work: Path, limit: float) -> tuple[list[str], str]:
    """The lines that the first process wrote, and what went wrong around it."""
    argv = [tool("unshare") or "unshare", "-m", "-n", "-u", "-i", "-p", "-f", "--kill-child", sys.executable, "-m",
            "hpcadmin.proof.inside", str(work / "root"), str(work / "spec.json")]
    source = str(Path(__file__).resolve().parents[2])
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": source, "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env,
                               text=True, errors="replace", cwd="/", start_new_session=True, preexec_fn=_die_too)  # noqa: PLW1509
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        return out.splitlines(), f"the daemons did not answer within {limit:.0f} s"
    finally:
        # --kill-child: the first process of the namespaces, and with it all others, ends with unshare.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode != 0:
        said = (err.strip().splitlines() or [f"status {process.returncode}"])[-1]
        return out.splitlines(), f"the namespaces could not be made: {said}"
    return out.splitlines(), ""


def _die_too() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


def _answer(slurm: Slurm, lines: list[str], problem: str, seconds: float) -> Answer:
    nodes: list[NodeAnswer] = []
    log: list[str] = []
    started = False
    for line in lines:
        said = json.loads(line)
        if "problem" in said:
            problem = problem or said["problem"]
        elif "node" in said:
            nodes.append(_node_answer(said["node"]))
        else:
            log, started = [*said["ctld"]["log"].splitlines()], said["ctld"]["started"]
    log += [line for node in nodes for line in node.controller]
    return Answer(slurm, tuple(nodes), tuple(log), started, problem, seconds)


def _node_answer(said: Mapping[str, Any]) -> NodeAnswer:
    return NodeAnswer(
        said["name"], fields(said["node"]), slurmd_fields(said["slurmd"]), said["measured"], said["gres"],
        tuple(said["log"].splitlines()), tuple(said["controller"].splitlines()), tuple(said["jobs"]), said["ended"],
        said["late"])


def fields(text: str) -> dict[str, str]:
    """Key=Value words of scontrol's one-line output; Reason is all until its time."""
    found = dict(word.split("=", 1) for word in text.split() if "=" in word)
    if " Reason=" in text:
        found["Reason"] = text.partition(" Reason=")[2].partition(" [")[0].strip()
    return found


def slurmd_fields(text: str) -> dict[str, str]:
    """`scontrol show slurmd`: "Actual cores per socket = 56"."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip().casefold(): value.strip() for key, _, value in pairs}


def remove_groups(folders: tuple[str, ...]) -> None:
    """The control groups of a proof, deepest first; their processes are gone."""
    for folder in folders:
        # os.walk passes over what goes away meanwhile: daemons take away groups of their own.
        for path, _, _ in os.walk(folder, topdown=False):
            _remove(Path(path))


def _remove(path: Path) -> None:
    for _ in range(20):
        try:
            path.rmdir()
        except FileNotFoundError:
            return
        except OSError:                      # the kernel takes a moment to end what was killed
            time.sleep(0.05)
        else:
            return
