"""The playbook over ssh on a lab: shown, done, done again; slurmd then runs what was installed."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from labtool import BIN, Lab, lab, run

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from ansible_play import Played, play, program

pytestmark = pytest.mark.lab

HOSTS = {"head", "node01", "node02"}
INVENTORY = """\
[nodes]
node[01:02]
[controllers]
head
[admin]
head
[all:vars]
ansible_user=root
ansible_ssh_common_args=-F /run/hpcadmin-lab/hpcplay/ssh_config
ansible_python_interpreter=/usr/bin/python3
"""
HEALTH = """\
[[check]]
use = "file"
path = "/etc/broken"
present = false
when = ["health", "prolog"]

[[check]]
use = "file"
id = "left"
path = "/etc/left-behind"
present = false
when = ["epilog"]

[[check]]
use = "command"
argv = ["/etc/tool"]
wait_s = 6
when = ["prolog"]

[[check]]
use = "process"
name = "slurmd"
"""
PROGRAM = "/usr/sbin/hpcadmin-health"
# What may be wrong with hpcadmin-health on a node, and how it is put right again.
BROKEN = {
    "missing": (f"mv {PROGRAM} /root/kept", f"mv /root/kept {PROGRAM}"),
    "cut off": (f"cp -p {PROGRAM} /root/kept && truncate -s 5000 {PROGRAM}", f"mv /root/kept {PROGRAM}"),
    "empty": (f"cp -p {PROGRAM} /root/kept && truncate -s 0 {PROGRAM}", f"mv /root/kept {PROGRAM}"),
    "no program": (f"chmod a-x {PROGRAM}", f"chmod a+x {PROGRAM}"),
    "Python does not start": ("mount --bind /bin/false $(readlink -f /usr/bin/python3)",
                              "umount $(readlink -f /usr/bin/python3)"),
    "configuration refused": ("chmod o+w /etc/hpcadmin/health.json", "chmod o-w /etc/hpcadmin/health.json"),
    "configuration missing": ("mv /etc/hpcadmin/health.json /root/kept", "mv /root/kept /etc/hpcadmin/health.json"),
    "disk full": ("mount -t tmpfs -o size=4k full /var/lib/hpcadmin-health && "
                  "! dd if=/dev/zero of=/var/lib/hpcadmin-health/x bs=4k count=9 2>/dev/null",
                  "umount -l /var/lib/hpcadmin-health"),
    "a tool hangs": ("printf '#!/bin/sh\\nsleep 300\\n' >/etc/tool", "echo '#!/bin/sh' >/etc/tool"),
    "a tool cannot be executed": ("echo 'exit 1' >/etc/tool", "echo '#!/bin/sh' >/etc/tool"),
    "it hangs itself": (f"cp -p {PROGRAM} /root/kept && printf '#!/bin/sh\nsleep 300\n' >{PROGRAM} && "
                        f"sed -i 's/sleep 56/sleep 1/' {PROGRAM}-*log", f"mv /root/kept {PROGRAM}"),
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    program("ansible-playbook")
    with lab("hpcplay", "10.207.0.0/24", tmp_path_factory.mktemp("hpcplay"), "--nodes", "2") as made:
        yield made


def on(host: str, *argv: str) -> str:
    done = run([str(BIN / "hpcadmin"), "lab", "exec", "--name", "hpcplay", "--node", host, "--user", "root", "--",
                *argv])
    assert done.status == 0, done.err
    return done.out


def result(host: str, mode: str = "health") -> dict[str, Any]:
    return json.loads(on(host, "cat", f"/var/lib/hpcadmin-health/{mode}.json"))     # type: ignore[no-any-return]


def wait_until(what: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "not in time"
        time.sleep(0.3)


def states(cluster: Lab) -> dict[str, str]:
    lines = cluster.sh("sinfo", "-N", "-h", "-o", "%N %T").out.splitlines()
    return dict(line.split() for line in lines)


def test_check_then_install_then_again(cluster: Lab, tmp_path: Path) -> None:
    (tmp_path / "health.toml").write_text(HEALTH)

    def bring(*options: str, failed: tuple[str, ...] = ()) -> Played:
        played = play(tmp_path, INVENTORY, "hpcadmin.yml", *options, hpcadmin_command=BIN / "hpcadmin",
                      hpcadmin_health_toml=tmp_path / "health.toml", hpcadmin_prolog="true", hpcadmin_epilog="true",
                      hpcadmin_health_interval=2, hpcadmin_health_states="ANY")
        assert played.changed and tuple(host for host, number in played.failed.items() if number) == failed, played.text
        return played

    def there() -> str:
        return "".join(on(host, "sh", "-c", "ls -A /etc/hpcadmin /etc/cron.d /usr/sbin | grep hpcadmin; md5sum "
                          "/etc/slurm/slurm.conf") for host in sorted(HOSTS))

    for node in ("node01", "node02"):
        on(node, "sh", "-c", "echo '#!/bin/sh' >/etc/tool && chmod 755 /etc/tool")
    before = there()
    shown = bring("--check", "--diff")
    assert {host for host, number in shown.changed.items() if number} == HOSTS
    assert "+HealthCheckProgram=/usr/sbin/hpcadmin-health" in shown.text
    assert there() == before

    done = bring()
    assert {host for host, number in done.changed.items() if number} == HOSTS
    on("head", "sh", "-c", "eval \"$(sed -n 's/^30 2 [*] [*] [*] root //p' /etc/cron.d/hpcadmin-sweep)\" || [ $? = 3 ]")
    assert "2 nodes" in on("head", "cat", "/var/log/hpcadmin/sweep.log")

    again = bring()
    assert set(again.changed) == {*HOSTS, "localhost"} and not any(again.changed.values()), again.text
    slurmd_runs_it(cluster)
    only_what_is_bad_drains(cluster)
    before = there() + on("node01", "cat", "/etc/hpcadmin/health.json")
    (tmp_path / "health.toml").write_text(HEALTH.replace('"/etc/broken"\npresent = false', '"/etc/nothere"'))
    bring(failed=("node01", "node02"))
    assert there() + on("node01", "cat", "/etc/hpcadmin/health.json") == before


def only_what_is_bad_drains(cluster: Lab) -> None:
    """Prolog and epilog, by slurmd: whatever is wrong with hpcadmin-health itself, jobs run and the node stays."""
    for what, (break_it, mend) in BROKEN.items():
        on("node02", "sh", "-c", break_it)
        job = cluster.sh("srun", "-w", "node02", "hostname")
        assert job.out == "node02\n", (what, job.err)
        wait_until(lambda: states(cluster)["node02"] == "idle")
        on("node02", "sh", "-c", mend)
    assert states(cluster) == {"node01": "idle", "node02": "idle"}
    for what, file in (("Prolog error", "/etc/broken"), ("Epilog error", "/etc/left-behind")):
        on("node02", "touch", file)
        cluster.sh("sbatch", "--no-requeue", "-w", "node02", "-o", "/dev/null", "--wrap", "true")
        wait_until(lambda: states(cluster)["node02"] == "drained")
        assert what in cluster.sh("sinfo", "-h", "-R", "-o", "%E %N").out
        on("node02", "rm", file)
        cluster.sh("scancel", "--me")
        on("head", "scontrol", "update", "nodename=node02", "state=resume")
        wait_until(lambda: states(cluster)["node02"] == "idle")
    assert states(cluster) == {"node01": "idle", "node02": "idle"}


def slurmd_runs_it(cluster: Lab) -> None:
    """A bad result is recorded, and drains nobody; a prolog's runs before a job."""
    shown = cluster.sh("scontrol", "show", "config").out
    assert "HealthCheckProgram      = /usr/sbin/hpcadmin-health\n" in shown
    wait_until(lambda: "health.json" in on("node01", "ls", "/var/lib/hpcadmin-health"))
    first = result("node01")
    assert (first["status"], first["node"], len(first["results"])) == ("good", "node01", 2)
    job = cluster.sh("srun", "-N2", "hostname")
    assert sorted(job.out.split()) == ["node01", "node02"], job.err
    assert result("node01", "prolog")["status"] == "good"
    on("node02", "touch", "/etc/broken")
    wait_until(lambda: result("node02")["status"] == "bad")
    assert "/etc/broken" in result("node02")["line"]
    wait_until(lambda: result("node01")["time"] > first["time"])
    wait_until(lambda: states(cluster) == {"node01": "idle", "node02": "idle"})
    on("node02", "rm", "/etc/broken")
    wait_until(lambda: result("node02")["status"] == "good")


INSIDE = """\
exec >/here/said 2>&1
export SLURM_CONF=/run/hpcadmin-lab/hpcplay/machine/slurm.conf HPCADMIN_DIR=/var/lib/hpcadmin-here
hpcadmin sweep install --json --write >/here/first.json
hpcadmin sweep install --json --write >/here/again.json
systemctl is-enabled hpcadmin-sweep.timer >/here/enabled
systemctl is-active hpcadmin-sweep.timer >/here/active
systemctl start hpcadmin-sweep.service; echo $? >/here/status
cp $HPCADMIN_DIR/sweep/ledger.jsonl /here
mkdir /etc/systemd/system/hpcadmin-sweep.service.d
cat >/etc/systemd/system/hpcadmin-sweep.service.d/try.conf <<EOF
[Service]
ExecStart=
ExecStart=/bin/sh /here/in_unit.sh
EOF
systemctl daemon-reload
systemctl start hpcadmin-sweep.service
hpcadmin sweep install --json --write --uninstall >/here/gone.json
systemctl is-active hpcadmin-sweep.timer >/here/inactive
"""
# What the sweep does under the unit's hardening, and what it must not be able to do.
IN_UNIT = """\
exec >/var/lib/hpcadmin-here/unit 2>&1
scontrol update nodename=node01 state=drain reason=here && scontrol -o show node node01
scontrol update nodename=node01 state=undrain
sacctmgr --version
ssh -F /run/hpcadmin-lab/hpcplay/ssh_config node01 echo over-ssh
touch /usr/x; touch /etc/x; touch /root/x; ls /dev/sda /dev/kmsg
cp /var/lib/hpcadmin-here/unit /here
"""


def test_the_sweep_under_a_real_systemd(cluster: Lab, tmp_path: Path) -> None:
    """Units written, taken, started by systemd; drains and ssh work under their hardening; all of it taken away."""
    if not Path("/usr/lib/systemd/systemd").exists():
        pytest.skip("not installed: systemd")
    here, top = tmp_path / "here", Path(__file__).resolve().parents[2]
    for name in ("root", "here", "bin"):
        (tmp_path / name).mkdir()
    command = tmp_path / "bin" / "hpcadmin"
    command.write_text(f'#!/bin/sh\nPYTHONPATH=/opt/hpcadmin-here exec {BIN / "python"} -B -m hpcadmin "$@"\n')
    command.chmod(0o755)
    (here / "script").write_text(f"PATH=/opt/hpcadmin-bin:$PATH\n{INSIDE}")
    (here / "in_unit.sh").write_text(IN_UNIT)
    run(["bash", str(Path(__file__).with_name("systemd_here.sh")), str(tmp_path / "root"), "/here/script",
         f"{here}:/here", f"{tmp_path / 'bin'}:/opt/hpcadmin-bin", f"{top}:/opt/hpcadmin-here",
         "/run/hpcadmin-lab:/run/hpcadmin-lab"], timeout=240)

    def said(name: str) -> str:
        return (here / name).read_text()

    assert {change["what"] for change in json.loads(said("first.json"))["changes"]} >= {
        "create", "systemctl daemon-reload", "systemctl enable hpcadmin-sweep.timer"}, said("said")
    assert json.loads(said("again.json"))["changes"] == []
    assert (said("enabled"), said("active"), said("status")) == ("enabled\n", "active\n", "0\n"), said("said")
    assert [json.loads(line)["kind"] for line in said("ledger.jsonl").splitlines()][-1] == "end"
    unit = said("unit")
    assert "State=IDLE+DRAIN" in unit and "Reason=here" in unit and "slurm" in unit and "over-ssh" in unit
    assert unit.count("Read-only file system") == 3
    assert "No such file" in unit and "/dev/kmsg" in unit
    assert {change["what"] for change in json.loads(said("gone.json"))["changes"]} >= {"remove"}
    assert said("inactive") == "inactive\n"
    # A node that was undrained does not respond until it has registered anew.
    wait_until(lambda: states(cluster) == {"node01": "idle", "node02": "idle"})
