"""The first process of a proof's namespaces: builds the root, starts munged, slurmctld and one slurmd after another.

Run as `unshare -m -n -u -i -p -f --kill-child python -m hpcadmin.proof.inside WORK SPEC`. Everything ends with this
process. It writes one JSON object a line: {"problem"}, {"ctld"}, {"node"}. After pivot_root there is no Python library
any more: what is used is imported before.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from hpcadmin.lab import syscalls as sc
from hpcadmin.proof import space

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LOG_BYTES = 1_000_000
STEP_S = 0.04
DAEMON_S = 20.0                          # for slurmctld to answer
TOOL_S = 10.0
_FINAL = ("IDLE", "MIXED", "ALLOCATED", "DOWN", "INVALID_REG", "DRAIN", "FAIL")
Spec = Mapping[str, Any]


def main(argv: Sequence[str]) -> int:
    work, spec_path = Path(argv[1]), Path(argv[2])
    spec: Spec = json.loads(spec_path.read_text(encoding="utf-8"))
    try:
        _network(spec["addresses"])
        owners = dict(spec["folders"])
        space.build(work, Path(spec["root"] or "/"), list(owners), spec["files"],
                    cgroup_folders=tuple(spec["cgroups"]), hostname=spec["hostname"])
        for path, owner in owners.items():
            _give(path, owner)
        run(spec)
    except (OSError, subprocess.SubprocessError) as exc:
        tell({"problem": str(exc)})
    return 0


def tell(what: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def _network(addresses: Sequence[str]) -> None:
    batch = "link set lo up\n" + "".join(f"address add {address} dev lo\n" for address in addresses)
    done = subprocess.run(["ip", "-batch", "-"], input=batch, text=True, capture_output=True, check=False, timeout=20)
    if done.returncode != 0:
        raise OSError(5, f"ip: {done.stderr.strip()[:200] or 'failed'}")


def _give(path: str, owner: str) -> None:
    if owner:
        entry = next((line.split(":") for line in Path("/etc/passwd").read_text().splitlines()
                      if line.startswith(f"{owner}:")), None)
        if entry:
            os.chown(path, int(entry[2]), int(entry[3]))


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    return {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8", "TZ": "UTC", **(more or {})}


def run(spec: Spec) -> None:
    """slurmctld, then each node."""
    if not _munge(spec["munge_socket"]):
        return
    log = f"{space.STATE}/slurmctld.log"
    daemon = _start([f"{spec['sbin']}/slurmctld", "-D", "-c", "-f", spec["conf"]], log, environment())
    started = _answers(daemon, spec)
    tell({"ctld": {"started": started, "log": read(log)}})
    if started:
        for node in spec["nodes"]:
            tell({"node": _node(node, spec, daemon)})


def _munge(path: str) -> bool:
    folder = Path(path or "/run/munge/munge.socket.2").parent
    folder.mkdir(parents=True, exist_ok=True)
    key = Path(f"{space.STATE}/munge.key")
    key.write_bytes(os.urandom(128))
    key.chmod(0o600)
    argv = ["munged", "--force", f"--key-file={key}", f"--seed-file={space.STATE}/seed",
            f"--pid-file={space.STATE}/munged.pid", f"--log-file={space.STATE}/munged.log"]
    try:
        done = subprocess.run([*argv, *([f"--socket={path}"] if path else [])], env=environment(), capture_output=True,
                              text=True, timeout=TOOL_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as exc:
        tell({"problem": f"munged: {exc}"})
        return False
    if done.returncode != 0:
        tell({"problem": f"munged: {(done.stderr.strip().splitlines() or ['failed'])[-1][:300]}"})
    return done.returncode == 0


def _start(argv: Sequence[str], log: str, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    with Path(log).open("ab") as stream:
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, env=env)


def _answers(daemon: subprocess.Popen[bytes], spec: Spec) -> bool:
    end = time.monotonic() + DAEMON_S
    while daemon.poll() is None and time.monotonic() < end:
        # Asked too early, sinfo itself waits for a second before it tries again.
        if _listens() and ask(["sinfo", "-h", "-o", "%N"], spec, seconds=5.0)[0] == 0:
            return True
        time.sleep(STEP_S)
    return False


def _listens() -> bool:
    """Whether anything has a listening TCP port: in this network that is slurmctld alone."""
    for name in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            rows = (line.split() for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:])
            if any(len(row) > 3 and row[3] == "0A" for row in rows):
                return True
    return False


def ask(argv: Sequence[str], spec: Spec, *, seconds: float = TOOL_S,
        more: Mapping[str, str] | None = None) -> tuple[int, str]:
    """(exit status, output and errors); 124 after `seconds`."""
    env = environment({"SLURM_CONF": spec["conf"], **(more or {})})
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env,
                              timeout=seconds, check=False)
    except subprocess.TimeoutExpired as exc:
        return 124, (exc.stdout or b"").decode("utf-8", "replace")[:LOG_BYTES]
    return done.returncode, done.stdout.decode("utf-8", "replace")[:LOG_BYTES]


def read(path: str, start: int = 0) -> str:
    """The log from `start`; what is longer than LOG_BYTES is cut, and says so."""
    try:
        with Path(path).open("rb") as stream:
            stream.seek(start)
            data = stream.read(LOG_BYTES + 1)
    except OSError:
        return ""
    text = data[:LOG_BYTES].decode("utf-8", "replace")
    return text if len(data) <= LOG_BYTES else f"{text}\nerror: (the log is longer than {LOG_BYTES} bytes)\n"


def _node(node: Mapping[str, Any], spec: Spec, controller: subprocess.Popen[bytes]) -> dict[str, Any]:
    """One node: slurmd in mounts and processes of its own, until slurmctld has judged it."""
    name = node["name"]
    folder = f"{space.STATE}/nodes/{name}"
    Path(folder).mkdir(parents=True)
    (Path(folder) / "hwloc.xml").write_text(node["xml"])
    fake = Path(spec["conf"]).parent / "fake_gpus.conf"
    fake.unlink(missing_ok=True)
    if node["detected"]:
        fake.write_text(node["detected"])
    log = f"{space.STATE}/slurmctld.log"
    before = Path(log).stat().st_size
    first, inner = spawn(lambda: _node_main(node, spec, folder))
    said = f"{folder}/slurmd.log"
    end = time.monotonic() + node["seconds"]
    found: dict[str, Any] = {"name": name, "late": False, "ended": False, "jobs": [], "slurmd": ""}
    state = ""
    while True:
        code, state = ask(["scontrol", "show", "node", "-o", name], spec)
        if code == 0 and judged(state):
            break
        if _over(first):
            found["ended"] = True
            break
        if controller.poll() is not None or time.monotonic() > end:
            found["late"] = True
            break
        if not node["wait_for_files"] and "aiting for gres.conf file" in read(said):
            break
        time.sleep(STEP_S)
    # As it is now: jobs, and the end of this slurmd, add lines that are not the files' fault.
    found |= {"node": state, "log": read(said), "controller": read(log, before)}
    if not (found["ended"] or found["late"]):
        found["slurmd"] = ask(["scontrol", "show", "slurmd", name], spec, more={"SLURMD_NODENAME": name})[1]
        for job in node["jobs"]:
            found["jobs"].append(ask(["/bin/sh", "-c", job], spec, seconds=30.0)[1])
    # Its parent waits for it, and with it for all that it started: the next slurmd wants the same port.
    with contextlib.suppress(OSError):
        os.kill(inner or first, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.waitpid(first, 0)
    return {**found, "measured": read(f"{folder}/measured"), "gres": read(f"{folder}/gres")}


def judged(text: str) -> bool:
    """Whether slurmctld has seen the node register: a state that is not that of the beginning, and a start time."""
    words = dict(word.split("=", 1) for word in text.split() if "=" in word)
    state = words.get("State", "")
    if "INVAL" in state:
        return True
    started = words.get("SlurmdStartTime", "None") not in ("None", "Unknown")
    return started and any(part.rstrip("*$~#%@-^!") in _FINAL for part in state.split("+")) and "*" not in state


def spawn(main_of: Callable[[], None]) -> tuple[int, int]:
    """(child, grandchild), which has mounts and processes of its own and is the first of them: its end is the end of
    all it started, and the child's. The grandchild is 0 where it could not be made."""
    told, tells = os.pipe()
    middle = os.fork()
    if middle:
        os.close(tells)
        with os.fdopen(told, "rb") as stream:
            text = stream.read(20)
        return middle, int(text or b"0")
    code = 1
    try:
        space.die_with_parent()
        sc.unshare(sc.CLONE_NEWNS | sc.CLONE_NEWPID | sc.CLONE_NEWIPC)
        first = os.fork()
        if first:
            os.write(tells, str(first).encode())
            os.close(tells)
            code = os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
        else:
            space.die_with_parent()
            os.close(tells)
            main_of()
            code = 0
    except (OSError, subprocess.SubprocessError) as exc:
        sys.stderr.write(f"{exc}\n")
    finally:
        os._exit(max(code, 0))


def _over(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


def _node_main(node: Mapping[str, Any], spec: Spec, folder: str) -> None:
    """slurmd -C and -G, then slurmd itself, with the node's devices and CPUs."""
    sc.mount("none", "/", flags=sc.MS_REC | sc.MS_PRIVATE)
    sc.mount("proc", "/proc", "proc", sc.MS_NOSUID | sc.MS_NODEV | sc.MS_NOEXEC)
    space.devices(Path("/dev"), [tuple(d) for d in node["devices"]])
    if node["driver"]:
        space.nvidia_driver(node["driver"])
    for path in node["fresh"]:               # spool and pid files: another node's are not this one's
        if Path(path).is_dir():
            sc.mount("tmpfs", path, "tmpfs", options="mode=0755")
    size = f",size={node['tmp_mib']}m" if node["tmp_mib"] else ""
    with contextlib.suppress(OSError):
        sc.mount("tmpfs", spec["tmp"], "tmpfs", sc.MS_NOSUID | sc.MS_NODEV, f"mode=1777{size}")
    cpus = {"HWLOC_SYNTHETIC": node["synthetic"]} if node["synthetic"] else {}
    if node["xml"]:
        cpus = {"HWLOC_XMLFILE": f"{folder}/hwloc.xml", "HWLOC_THISSYSTEM": "0"}
    slurmd = f"{spec['sbin']}/slurmd"
    Path(f"{folder}/measured").write_text(ask([slurmd, "-C", *node["measure"]], spec, more=cpus)[1])
    if node["gres"]:
        with Path(f"{folder}/gres").open("wb") as stream, contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run([slurmd, "-f", spec["conf"], "-N", node["name"], "-G"], stdin=subprocess.DEVNULL,
                           stdout=stream, stderr=stream, env=environment(cpus), timeout=3.0, check=False)
    daemon = _start([slurmd, "-D", "-f", spec["conf"], "-N", node["name"]], f"{folder}/slurmd.log",
                    environment(cpus))
    daemon.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv))
