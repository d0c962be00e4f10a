"""Whole rendered files for known machines. HPCADMIN_GOLDEN=write writes them anew; then look at the difference."""

import os
from dataclasses import replace
from pathlib import Path

import conf_models as m
import pytest
from golden_files import compare
from looped import looped

from hpcadmin.cli.conf import explanation
from hpcadmin.conf.parts import Rendering
from hpcadmin.conf.render import RenderOptions, render
from hpcadmin.model import Inventory
from hpcadmin.site import AccountingSite, Cluster, HookSite, NodeGroup, PrivateTmp, Site, SlurmSite

GOLDEN = Path(__file__).resolve().parent / "golden" / "conf"

# The lab's light settings, as its site.toml has them.
LAB_SITE = Site(cluster=Cluster("lab", ("head",)), slurm=SlurmSite(partition="main", options={
    "ProctrackType": "proctrack/linuxproc", "TaskPlugin": "task/none", "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_Core", "SwitchType": "switch/none", "MpiDefault": "none", "ReturnToService": 2,
    "JobAcctGatherType": "jobacct_gather/none", "SchedulerParameters": "batch_sched_delay=0,bf_interval=10",
    "MailProg": "/bin/true"}))

# A site that has its say everywhere.
OWN_SITE = Site(
    cluster=Cluster("thinktank", ("ctl1(10.0.0.1)", "ctl2")),
    slurm=SlurmSite(options={"AccountingStorageType": "accounting_storage/slurmdbd", "AccountingStorageHost": "ctl1",
                             "SlurmctldTimeout": 120}, cgroup={"ConstrainSwapSpace": True},
                    gpu_types={"NVIDIA H100 80GB HBM3": "h100sxm"}, memory_margin_mib=4096),
    nodes=(NodeGroup("gpu", "gpu[01-04]", gpus=8, features=("ndr",), options={"Weight": 10, "CoreSpecCount": 2}),
           NodeGroup("cpu", "cpu[01-12]", options={"RealMemory": 760000})),
    partitions={"cpu": {"Nodes": "cpu[01-12]", "Default": True},
                "gpu": {"Nodes": "gpu[01-04]", "MaxTime": "2-00:00:00"}})

# A site that asks for every file that there is.
EVERYTHING = Site(
    cluster=Cluster("thinktank", ("ctl1(10.0.0.1)", "ctl2")),
    slurm=SlurmSite(configless=True, options={"KeepAliveTime": 60, "JobSubmitPlugins": "lua"},
                    cgroup={"ConstrainSwapSpace": True}),
    accounting=AccountingSite(host="ctl1", enforce=("associations", "limits", "qos"), slurmdbd=True, storage_host="db1",
                              energy="ipmi", interconnect="sysfs", options={"PurgeJobAfter": "24months"},
                              gather={"SysfsInterfaces": "ib0"}),
    hooks=HookSite(health="/usr/sbin/hpcadmin-health", health_timeout_s=50, prolog="/etc/slurm/prolog",
                   epilog="/etc/slurm/epilog", reboot="/usr/sbin/reboot"),
    private_tmp=PrivateTmp("/local/jobs", ("/tmp", "/var/tmp", "/dev/shm"), shared=True),
    partitions={"DEFAULT": {"MaxTime": "7-00:00:00", "DefaultTime": "01:00:00"},
                "cpu": {"Nodes": "cpu[01-12]", "Default": True},
                "gpu": {"Nodes": "gpu[01-04]", "ExclusiveUser": True}})

MIXED = m.inventory((m.names("gpu", 4), m.H100), (m.names("cpu", 12), m.BIG_CPU))
SIMULATED = replace(m.H100, simulated="8xH100", memory_mib=24105)

CASES: dict[str, tuple[Inventory, Site, RenderOptions]] = {
    "lab": (m.inventory((m.names("node", 4), m.LAB)), LAB_SITE, RenderOptions()),
    "lab-8xh100": (m.inventory((m.names("node", 4), SIMULATED)), LAB_SITE, RenderOptions()),
    "8xh100": (m.inventory((m.names("node", 4), m.H100)), m.SITE, RenderOptions()),
    "8xh100-comments": (m.inventory((m.names("node", 4), m.H100)), m.SITE, RenderOptions(comments=True)),
    "4xa100-pcie": (m.inventory((m.names("gpu", 3), m.A100P)), m.SITE, RenderOptions()),
    "mixed": (MIXED, m.SITE, RenderOptions()),
    "mixed-own": (MIXED, OWN_SITE, RenderOptions()),
    "dgx-a100-nps4": (m.inventory((m.names("dgx", 2), m.NPS4)), m.SITE, RenderOptions()),
    "dgx-a100-nps4-26.05": (m.inventory((m.names("dgx", 2), m.NPS4)), m.SITE, RenderOptions(slurm_version="26.05")),
    "vm-t4": (m.inventory((["vm1"], m.T4)), m.SITE, RenderOptions()),
    "everything-24.11": (MIXED, EVERYTHING, RenderOptions(slurm_version="24.11")),
    "everything-26.05": (MIXED, EVERYTHING, RenderOptions(slurm_version="26.05", comments=True)),
}


def rendered(case: str) -> Rendering:
    inventory, site, options = CASES[case]
    return render(inventory, site, options)


@looped("case", CASES)
def test_files_are_as_they_were(case: str) -> None:
    result = rendered(case)
    assert result.problems == ()
    for name, text in result.files.items():
        compare(GOLDEN / case / name, text)
    if os.environ.get("HPCADMIN_GOLDEN") != "write":
        assert {p.name for p in (GOLDEN / case).iterdir()} == set(result.files)


@pytest.mark.parametrize("case", ["8xh100", "mixed-own", "vm-t4", "everything-26.05"])
def test_explanations_are_as_they_were(case: str) -> None:
    compare(GOLDEN.parent / "conf-explain" / f"{case}.txt", explanation(rendered(case).explained))


@looped("case", CASES)
def test_every_line_is_explained_where_it_stands(case: str) -> None:
    result = rendered(case)
    for name, text in result.files.items():
        lines = text.splitlines()
        told = {e.line: e for e in result.explained if e.file == name}
        assert set(told) == {i for i, line in enumerate(lines, 1) if line and not line.startswith("#")}
        for number, item in told.items():
            assert lines[number - 1] == item.text
            assert item.whys
            assert all(why.reason and why.source for why in item.whys)


def test_order_of_nodes_and_of_the_site_changes_nothing() -> None:
    inventory, site, options = CASES["mixed-own"]
    turned = replace(inventory, nodes=inventory.nodes[::-1])
    other = replace(site, slurm=replace(site.slurm, options=dict(reversed(site.slurm.options.items()))),
                    partitions=dict(reversed(site.partitions.items())))
    assert render(turned, other, options).files == render(inventory, site, options).files
