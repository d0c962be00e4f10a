"""A database and slurmdbd for a loopback Slurm."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from loopback import Loopback, free_ports, wait_until

CONF = """\
AuthType=auth/munge
AuthInfo=socket={dir}/munge/sock
DbdHost=localhost
DbdPort={dbd}
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={port}
StorageUser=slurm
StoragePass=none-at-all
StorageLoc={name}
LogFile={dir}/slurmdbd.log
PidFile={dir}/slurmdbd.pid
"""


@dataclass(frozen=True)
class Database:
    port: int


@contextmanager
def database(folder: Path) -> Iterator[Database]:
    """MariaDB in that folder, on 127.0.0.1; the test is skipped where it is not installed."""
    path = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    missing = [t for t in ("mariadbd", "mariadb-install-db") if not shutil.which(t, path=path["PATH"])]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (package mariadb-server)")
    folder.mkdir(parents=True)
    data = folder / "data"
    subprocess.run(["mariadb-install-db", "--no-defaults", "--user=root", f"--datadir={data}", "--skip-test-db",
                    "--skip-name-resolve", "--auth-root-authentication-method=normal"], env=path, check=True,
                   capture_output=True, timeout=120)
    (folder / "grants.sql").write_text("CREATE USER 'slurm'@'%' IDENTIFIED BY 'none-at-all';\n"
                                       "GRANT ALL ON *.* TO 'slurm'@'%';\n")
    port = free_ports(1)
    with (folder / "out").open("wb") as out, subprocess.Popen(
            ["mariadbd", "--no-defaults", "--user=root", f"--datadir={data}", "--bind-address=127.0.0.1",
             f"--port={port}", f"--socket={folder}/sock", f"--pid-file={folder}/pid", "--skip-name-resolve",
             f"--init-file={folder}/grants.sql", "--innodb-flush-log-at-trx-commit=0", "--performance-schema=OFF"],
            env=path, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True) as server:
        try:
            wait_until(lambda: server.poll() is not None or b"ready for connections" in (folder / "out").read_bytes())
            assert server.poll() is None, (folder / "out").read_text()[-1000:]
            yield Database(port)
        finally:
            server.kill()


class Accounting:
    """slurmdbd of one cluster: settings of slurm.conf, and what is to be started before slurmctld."""

    def __init__(self, server: Database, name: str, more: str = "") -> None:
        """more: lines of slurmdbd.conf."""
        self.server, self.name, self.port, self.more = server, f"slurm_{name or 'own'}", free_ports(1), more

    def settings(self, folder: Path) -> dict[str, str]:
        return {"AccountingStorageType": "accounting_storage/slurmdbd", "AccountingStorageHost": "localhost",
                "AccountingStoragePort": str(self.port), "AccountingStoragePass": f"{folder}/munge/sock"}

    def start(self, cluster: Loopback) -> None:
        conf = cluster.dir / "slurmdbd.conf"
        conf.write_text(CONF.format(dir=cluster.dir, dbd=self.port, port=self.server.port, name=self.name)
                        + self.more)
        conf.chmod(0o600)
        cluster.start("slurmdbd", "slurmdbd", "-D")
        wait_until(lambda: subprocess.run(["sacctmgr", "-i", "-n", "show", "cluster"], env=cluster.env,
                                          capture_output=True, check=False, timeout=60).returncode == 0)
        cluster.slurm("sacctmgr", "-i", "add", "cluster", "loopback")
