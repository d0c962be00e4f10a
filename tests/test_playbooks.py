"""The playbooks: clean, their variables told, and careful with a slurm.conf that others have written."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_play import PLAYBOOKS, TOP, Played, play, program

from hpcadmin.site import load_site

ROLE = PLAYBOOKS / "roles/hpcadmin"
LOCAL = """\
[controllers]
here
[nodes]
here
[admin]
here
[all:vars]
ansible_connection=local
ansible_python_interpreter=/usr/bin/python3
"""


def variables(text: str) -> set[str]:
    return set(re.findall(r"\bhpcadmin_\w+", text))


def test_every_variable_is_told() -> None:
    told = variables((ROLE / "meta/argument_specs.yml").read_text())
    defaults = set(re.findall(r"^(\w+):", (ROLE / "defaults/main.yml").read_text(), re.MULTILINE))
    assert defaults == told - {"hpcadmin_health_toml", "hpcadmin_site"}
    own = set()
    for path in [*ROLE.glob("tasks/*.yml"), *ROLE.glob("handlers/*.yml")]:
        text = path.read_text()
        own |= variables(text) - set(re.findall(r"(?:register: +|^ +)(hpcadmin_\w+)(?=\n|:)", text, re.MULTILINE))
    assert own - {"hpcadmin_made", "hpcadmin_would", "hpcadmin_wrote"} <= told | {
        "hpcadmin_conf_text", "hpcadmin_conf_has", "hpcadmin_conf_health", "hpcadmin_conf_hooks",
        "hpcadmin_hooks_there"}
    documented = variables((TOP / "docs/install-nodes.md").read_text())
    assert told <= documented <= told | {"hpcadmin_install", "hpcadmin_source"}


def test_the_files_of_the_vagrant_cluster(tmp_path: Path) -> None:
    site = load_site(str(PLAYBOOKS / "vagrant/site.toml"))
    assert site.sweep.hardware == "tell"
    done = subprocess.run([sys.executable, "-m", "hpcadmin", "health", "check", str(PLAYBOOKS / "vagrant/health.toml")],
                          cwd=TOP, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.deep
@pytest.mark.parametrize("name", ["hpcadmin.yml", "vagrant.yml", "admin_host.yml"])
def test_syntax(tmp_path: Path, name: str) -> None:
    played = play(tmp_path, (PLAYBOOKS / "vagrant/inventory.ini").read_text(), name, "--syntax-check")
    assert played.status == 0, played.text


@pytest.mark.deep
def test_lint(tmp_path: Path) -> None:
    lint = program("ansible-lint")
    done = subprocess.run(
        [lint, "--offline", "--nocolor", "--profile", "production", str(PLAYBOOKS)], cwd=TOP, capture_output=True,
        env={"HOME": str(tmp_path), "PATH": f"{Path(lint).parent}:/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.deep
def test_vagrantfile(tmp_path: Path) -> None:
    (tmp_path / "Vagrantfile").write_text((TOP / "Vagrantfile").read_text())
    env = {"HOME": str(tmp_path), "VAGRANT_HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}

    def said(*argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)

    assert said(program("ruby"), "-c", "Vagrantfile").returncode == 0
    done = said(program("vagrant"), "validate")
    if "No usable default provider" in done.stderr:         # then all but the lines of the provider
        done = said(program("vagrant"), "validate", "--ignore-provider")
    assert done.returncode == 0, done.stdout + done.stderr


class Conf:
    """A slurm.conf here, and the role that writes into it."""

    def __init__(self, folder: Path, text: str) -> None:
        self.folder, self.path = folder, folder / "slurm.conf"
        self.path.write_text(text)
        (folder / "slurm.yml").write_text(json.dumps([{
            "hosts": "here", "gather_facts": False, "tasks": [{"include_role": {
                "name": str(ROLE), "tasks_from": "slurm", "handlers_from": "main"}}]}]))

    def bring(self, **more: object) -> Played:
        return play(self.folder, LOCAL, str(self.folder / "slurm.yml"), hpcadmin_slurm_conf=self.path,
                    hpcadmin_reconfigure="false", **more)


OWN = "# BEGIN hpcadmin-health\nHealthCheckProgram=/usr/sbin/hpcadmin-health\nHealthCheckInterval=300\n" \
      "HealthCheckNodeState=ANY,CYCLE\n# END hpcadmin-health\n"


@pytest.mark.deep
def test_another_health_program_stays_until_it_is_told_to_go(tmp_path: Path) -> None:
    program("scontrol")
    text = "ClusterName=c\nSlurmctldHost=here\nHealthCheckProgram=/usr/sbin/nhc\nNodeName=n1 CPUs=1\n"
    conf = Conf(tmp_path, text)
    refused = conf.bring()
    assert refused.failed == {"here": 1} and "HealthCheckProgram=/usr/sbin/nhc" in refused.text
    assert conf.path.read_text() == text
    assert conf.bring(hpcadmin_health_replace="true").status == 0
    assert conf.path.read_text() == text.replace("HealthC", "#before-hpcadmin# HealthC") + OWN
    again = conf.bring(hpcadmin_health_replace="true")
    assert again.changed == {"here": 0}, again.text


@pytest.mark.deep
def test_what_does_not_parse_is_not_put_in_place(tmp_path: Path) -> None:
    program("scontrol")
    text = "ClusterName=c\nSlurmctldHost=here\nNoSuchKey=1\nNodeName=n1 CPUs=1\n"
    conf = Conf(tmp_path, text)
    assert conf.bring().failed == {"here": 1}
    assert conf.path.read_text() == text


@pytest.mark.deep
def test_as_conf_render_has_written_it(tmp_path: Path) -> None:
    text = ("ClusterName=c\nSlurmctldHost=here\nHealthCheckProgram=/usr/sbin/hpcadmin-health\nHealthCheckInterval=60\n"
            "Prolog=/etc/slurm/prolog\nNodeName=n1 CPUs=1\n")
    conf = Conf(tmp_path, text)
    assert conf.bring().changed == {"here": 0}
    assert conf.bring(hpcadmin_prolog="true").failed == {"here": 1}
    refused = conf.bring(hpcadmin_epilog="true")
    assert refused.failed == {"here": 1} and "Not known to be well in this run: here." in " ".join(refused.text.split())
    assert conf.path.read_text() == text
    assert conf.bring(hpcadmin_epilog="true", hpcadmin_hooks_missing="here").changed == {"here": 1}
    assert conf.bring(hpcadmin_epilog="true").changed == {"here": 0}
    assert conf.path.read_text() == text + ("# BEGIN hpcadmin-health\nEpilog=/usr/sbin/hpcadmin-health-epilog\n"
                                            "# END hpcadmin-health\n")


@pytest.mark.deep
def test_hooks_as_conf_render_has_written_them(tmp_path: Path) -> None:
    """[hooks] prolog of site.toml: the line is there already, and is not written twice."""
    text = ("ClusterName=c\nSlurmctldHost=here\nHealthCheckProgram=/usr/sbin/hpcadmin-health\nHealthCheckInterval=60\n"
            "Prolog=/usr/sbin/hpcadmin-health-prolog\nNodeName=n1 CPUs=1\n")
    conf = Conf(tmp_path, text)
    there = conf.bring(hpcadmin_prolog="true")
    assert (there.status, there.changed) == (0, {"here": 0}), there.text
    assert conf.path.read_text() == text


@pytest.mark.deep
def test_slurm_conf_of_the_vagrant_cluster(tmp_path: Path) -> None:
    """From what slurmd -C says, as scontrol reads it."""
    scontrol = program("scontrol")
    said = "NodeName=x CPUs=2 Boards=1 SocketsPerBoard=2 CoresPerSocket=1 ThreadsPerCore=1 RealMemory=1975"
    inventory = (PLAYBOOKS / "vagrant/inventory.ini").read_text() + "ansible_connection=local\n"
    (tmp_path / "conf.yml").write_text(json.dumps([{
        "hosts": "all", "gather_facts": False, "tasks": [
            {"set_fact": {"vagrant_hardware": {"stdout_lines": [said, "UpTime=0-00:01:00"]}}},
            {"template": {"src": str(PLAYBOOKS / "vagrant/slurm.conf.j2"), "dest": str(tmp_path / "slurm.conf")},
             "run_once": True}]}]))
    played = play(tmp_path, inventory, str(tmp_path / "conf.yml"))
    assert played.status == 0, played.text
    text = (tmp_path / "slurm.conf").read_text()
    assert f"NodeName=node2 NodeAddr=192.168.56.12 {said.partition(' ')[2]} State=UNKNOWN\n" in text
    done = subprocess.run([scontrol, "show", "hostnames", "n[1-2]"], env={"SLURM_CONF": str(tmp_path / "slurm.conf")},
                          capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "n1\nn2\n"), done.stderr
