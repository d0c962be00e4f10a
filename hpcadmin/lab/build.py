"""The parts of a lab that are files: keys, accounts, configuration, and the description of each host."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hpcadmin.errors import LabError, UsageError
from hpcadmin.lab import conftext, machine
from hpcadmin.lab.enter import tool
from hpcadmin.lab.journal import Host, Lab
from hpcadmin.lab.network import host_batch
from hpcadmin.lab.rootfs import File, Folder, HostSpec

_HERE = Path(__file__).resolve().parent
MAX_CONF_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class Prepared:
    """What all hosts share, made once. slurm: file name -> text, as in /etc/slurm."""

    slurm: Mapping[str, str]
    host_keys: Mapping[str, tuple[str, str]]
    user_key: tuple[str, str]
    munge_key: bytes
    accounts: str
    visible: tuple[str, ...]
    password: str


def prepare(lab: Lab) -> Prepared:
    """Make keys and configuration of a new lab in its folder."""
    accounts = machine.base_accounts(lab.base)
    keys, slurm = lab.dir / "keys", lab.dir / "slurm"
    keys.mkdir(mode=0o700)
    slurm.mkdir()
    _make_keys(keys, [*(h.name for h in _hosts(lab)), "user"])
    _write(keys / "munge.key", os.urandom(64).hex(), 0o600)
    _write(keys / "password", os.urandom(12).hex(), 0o600)
    texts = read_conf(Path(lab.conf)) if lab.conf else own_conf(lab, accounts)
    for name, text in texts.items():
        _write(slurm / name, text, 0o644)
    prepared = load_prepared(lab)
    _write_machine_side(lab, prepared)
    return prepared


def load_prepared(lab: Lab) -> Prepared:
    """What `prepare` has made, for a host that is started later."""
    keys = lab.dir / "keys"
    pairs = {name: ((keys / name).read_text(), (keys / f"{name}.pub").read_text())
             for name in [*(h.name for h in _hosts(lab)), "user"]}
    return Prepared(
        slurm=read_conf(lab.dir / "slurm"), user_key=pairs.pop("user"), host_keys=pairs,
        munge_key=(keys / "munge.key").read_bytes(), password=(keys / "password").read_text(),
        accounts=machine.base_accounts(lab.base), visible=machine.own_paths(lab.base)[0])


def _hosts(lab: Lab) -> list[Host]:
    return [lab.head, *lab.nodes]


def _make_keys(folder: Path, names: list[str]) -> None:
    running = [subprocess.Popen([tool("ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-C", name, "-f",
                                 str(folder / name)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
               for name in names]
    for process in running:
        _, said = process.communicate(timeout=60)
        if process.returncode != 0:
            raise LabError(f"ssh-keygen: {said.decode(errors='replace').strip()}")


def read_conf(folder: Path) -> dict[str, str]:
    """The files of --conf. Not slurmdbd.conf: the lab's database has its own, with a password made for it."""
    if not (folder / "slurm.conf").is_file():
        raise UsageError(f"--conf {folder} has no slurm.conf", hint="hpcadmin conf render -o DIR makes one")
    texts = {}
    for path in sorted(folder.iterdir()):
        if path.is_file() and not path.name.startswith(".") and path.name != "slurmdbd.conf":
            if path.stat().st_size > MAX_CONF_BYTES:
                raise UsageError(f"is larger than {MAX_CONF_BYTES} bytes", where=str(path))
            texts[path.name] = path.read_text(encoding="utf-8", errors="surrogateescape")
    texts.setdefault("mpi.conf", conftext.MPI_CONF)
    return texts


def own_conf(lab: Lab, accounts: str) -> dict[str, str]:
    slurm_user = "slurm" if machine.account_id(accounts, "slurm") else "root"
    real = conftext.real_parameters(machine.cpus(), machine.memory_mib())
    lines, gres_lines, gres_types = [], [], []
    for node in lab.nodes:
        parameters, gres = slurm_lines(node.hardware) if node.hardware else (real, "")
        if "RealMemory=" not in parameters:
            parameters += f" RealMemory={machine.memory_mib()}"
        lines.append(conftext.node_line(node.name, node.address, parameters))
        gres_lines += [line for line in gres.replace("{node}", node.name).splitlines() if line.strip()]
        gres_types += conftext.gres_names(parameters)
    texts = {
        "slurm.conf": conftext.slurm_conf(lab.name, lab.head.address, slurm_user, lines,
                                          accounting=lab.accounting, gres=gres_types),
        "cgroup.conf": conftext.cgroup_conf(machine.slurm_version(lab.base)),
        "mpi.conf": conftext.MPI_CONF,
    }
    if gres_lines:
        texts["gres.conf"] = "\n".join(gres_lines) + "\n"
    return texts


def slurm_lines(hardware: str) -> tuple[str, str]:
    from hpcadmin.lab import hardware as profiles  # noqa: PLC0415
    parameters, gres = profiles.slurm_lines(profiles.load_profile(hardware))
    return parameters, gres


def check_profile(name: str) -> None:
    """Raises UsageError for a profile that does not exist."""
    from hpcadmin.lab import hardware as profiles  # noqa: PLC0415
    try:
        profiles.load_profile(name)
    except LabError as exc:
        raise UsageError(exc.what, where=exc.where, hint=exc.hint) from exc


def build_hardware(lab: Lab, node: Host) -> str:
    if not node.hardware:
        return ""
    from hpcadmin.lab import hardware as profiles  # noqa: PLC0415
    folder = lab.dir / "hardware" / node.name
    if not folder.is_dir():
        folder.mkdir(parents=True)
        profiles.build(profiles.load_profile(node.hardware), folder, node.name)
    return str(folder)


def _write_machine_side(lab: Lab, prepared: Prepared) -> None:
    addresses = {h.name: h.address for h in _hosts(lab)}
    public = {name: keys[1] for name, keys in prepared.host_keys.items()}
    _write(lab.dir / "id_ed25519", prepared.user_key[0], 0o600)
    _write(lab.dir / "known_hosts", conftext.known_hosts(addresses, public), 0o644)
    _write(lab.dir / "ssh_config", conftext.machine_ssh_config(str(lab.dir), lab.user, addresses), 0o644)
    _write(lab.dir / "site.toml", conftext.site_toml(lab.name, lab.user, lab.net), 0o644)
    for name, text in prepared.slurm.items():
        (lab.dir / "machine").mkdir(exist_ok=True)
        own = conftext.machine_conf(text, lab.head.address, f"{lab.dir}/munge/munge.socket.2")
        _write(lab.dir / "machine" / name, own if name == "slurm.conf" else text, 0o644)
    shared = Path(lab.shared)
    home, ssh = shared / "home" / lab.user, shared / "home" / lab.user / ".ssh"
    for folder, mode, owner in ((shared, 0o755, 0), (shared / "home", 0o755, 0), (home, 0o755, lab.uid),
                                (ssh, 0o700, lab.uid)):
        folder.mkdir(exist_ok=True)
        folder.chmod(mode)
        os.chown(folder, owner, owner)
    private, own_public = prepared.user_key
    for name, text, mode in (("id_ed25519", private, 0o600), ("id_ed25519.pub", own_public, 0o644),
                             ("authorized_keys", own_public, 0o600)):
        _write(ssh / name, text, mode)
        os.chown(ssh / name, lab.uid, lab.uid)


def _write(path: Path, text: str, mode: int) -> None:
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(fd, "w", encoding="utf-8", errors="surrogateescape") as stream:
        stream.write(text)
    path.chmod(mode)


def host_spec(lab: Lab, host: Host, prepared: Prepared) -> HostSpec:
    log = lab.dir / "log" / host.name
    log.mkdir(parents=True, exist_ok=True)
    munge = lab.dir / "munge" if host.role == "head" else None
    if munge:
        munge.mkdir(exist_ok=True)
    slurm_user = conftext.settings(prepared.slurm["slurm.conf"]).get("slurmuser", "root")
    slurm_id = machine.account_id(prepared.accounts, slurm_user) or (0, 0)
    munge_id = machine.account_id(prepared.accounts, "munge") or (0, 0)
    folders = [Folder("/etc/munge", 0o700, *munge_id), Folder("/var/lib/munge", 0o711, *munge_id),
               Folder("/var/log/munge", 0o700, *munge_id), Folder("/run/munge", 0o755, *munge_id),
               Folder("/var/log/slurm", 0o755, *slurm_id)]
    folders += [Folder(path, 0o755, *slurm_id)
                for path in conftext.needed_folders(prepared.slurm["slurm.conf"], host.name)]
    return HostSpec(
        name=host.name, work_dir=str(lab.dir / "root"), log_dir=str(log), shared=lab.shared, base=lab.base,
        munge_dir=str(munge or ""),
        network_batch=host_batch(host.address, lab.prefix), files=tuple(_files(lab, host, prepared, munge_id)),
        folders=tuple(folders), visible=prepared.visible, hardware=build_hardware(lab, host),
        cgroups=lab.cgroups)


def _files(lab: Lab, host: Host, prepared: Prepared, munge_id: tuple[int, int]) -> list[File]:
    addresses = {h.name: h.address for h in _hosts(lab)}
    public = {name: keys[1] for name, keys in prepared.host_keys.items()}
    private_key, public_key = prepared.host_keys[host.name]
    known = conftext.accounts(prepared.accounts, lab.user, lab.uid)
    files = [
        File("/etc/hostname", f"{host.name}\n"), File("/etc/hosts", conftext.hosts_file(addresses)),
        File("/etc/resolv.conf", ""), File("/etc/fstab", ""), File("/etc/nsswitch.conf", conftext.NSSWITCH),
        File("/etc/machine-id", hashlib.sha256(f"{lab.name}/{host.name}".encode()).hexdigest()[:32] + "\n", 0o444),
        File("/etc/passwd", known["passwd"]), File("/etc/group", known["group"]),
        File("/etc/shadow", known["shadow"], 0o640), File("/etc/gshadow", known["gshadow"], 0o640),
        File("/etc/ssh/sshd_config", conftext.sshd_config(host.address)),
        File("/etc/ssh/ssh_config", conftext.client_config()),
        File("/etc/ssh/ssh_known_hosts", conftext.known_hosts(addresses, public)),
        File("/etc/ssh/ssh_host_ed25519_key", private_key, 0o600),
        File("/etc/ssh/ssh_host_ed25519_key.pub", public_key),
        File("/root/.ssh/authorized_keys", prepared.user_key[1], 0o600),
        File("/root/.ssh/id_ed25519", prepared.user_key[0], 0o600),
        File("/etc/munge/munge.key", prepared.munge_key, 0o400, *munge_id),
        File("/etc/openmpi/openmpi-mca-params.conf", conftext.mca_file(lab.net)),
        File("/etc/hpcadmin/site.toml", conftext.site_toml(lab.name, lab.user, lab.net)),
        File("/etc/hpcadmin/lab/boot.sh", (_HERE / "boot.sh").read_text(), 0o755),
        File("/etc/hpcadmin/lab/boot.conf", _boot_conf(lab, host, munge_id, prepared)),
        *(File(f"/etc/slurm/{name}", text) for name, text in prepared.slurm.items()),
    ]
    if prepared.visible:
        files += _launcher()
    if lab.accounting and host.role == "head":
        files += _accounting(prepared)
    if host.hardware:
        files.append(File("/etc/hpcadmin/simulated", f"{host.hardware}\n"))
    return files


def _boot_conf(lab: Lab, host: Host, munge_id: tuple[int, int], prepared: Prepared) -> str:
    cluster = conftext.settings(prepared.slurm["slurm.conf"]).get("clustername", lab.name)
    hwloc = "/etc/hpcadmin/hwloc.xml" if host.hardware else ""
    return (f"NAME={host.name}\nROLE={host.role}\nMUNGE_USER={'munge' if munge_id[0] else 'root'}\n"
            f"ACCOUNTING={'yes' if lab.accounting else ''}\nSLURMD_HWLOC={hwloc}\nLAB_USER={lab.user}\n"
            f"CLUSTER={shlex.quote(cluster)}\n")


def _accounting(prepared: Prepared) -> list[File]:
    """slurmdbd.conf of --conf is used where there is one, but for what the lab's database wants."""
    slurm_user = conftext.settings(prepared.slurm["slurm.conf"]).get("slurmuser", "root")
    owner = machine.account_id(prepared.accounts, slurm_user) or (0, 0)
    mysql = machine.account_id(prepared.accounts, "mysql") or (0, 0)
    return [File("/etc/slurm/slurmdbd.conf", conftext.slurmdbd_conf(slurm_user, prepared.password), 0o600, *owner),
            File("/etc/hpcadmin/lab/grants.sql", conftext.grants(prepared.password), 0o600, *mysql),
            File("/etc/hpcadmin/lab/accounting.sh", (_HERE / "accounting.sh").read_text())]


def _launcher() -> list[File]:
    """`hpcadmin` on the lab's hosts: this very installation, with this interpreter."""
    code = (f"import sys\nsys.path.insert(0, {str(machine.package_parent())!r})\n"
            "from hpcadmin.cli import main\nmain()\n")
    return [File("/etc/hpcadmin/lab/hpcadmin.py", code),
            File("/usr/local/bin/hpcadmin", f"#!/bin/sh\nexec {shlex.quote(sys.executable)} "
                 "/etc/hpcadmin/lab/hpcadmin.py \"$@\"\n", 0o755)]
