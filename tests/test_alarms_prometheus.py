"""Rules and dashboard: valid, each alert fires when it should, metrics have the names that exporters give them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from hpcadmin.cli import root
from hpcadmin.health.node.checks import gpu_xid
from hpcadmin.sweep.alarms.dashboard import dashboard
from hpcadmin.sweep.alarms.metrics import render
from hpcadmin.sweep.alarms.model import Facts, Health, State
from hpcadmin.sweep.alarms.prometheus_files import DASHBOARD, RULES, files
from hpcadmin.sweep.model import Problem

SAMPLES = Path(__file__).resolve().parent / "samples" / "prometheus"
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not there (Debian: prometheus)")


def promtool(*args: str, folder: Path) -> None:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, *args], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def written(folder: Path) -> Path:
    for name, text in files().items():
        (folder / name.removesuffix(".off")).write_text(text)
    shutil.copy(SAMPLES / "rules.test.yml", folder)
    return folder


def expressions() -> list[str]:
    panels = dashboard()["panels"]
    return [target["expr"] for panel in panels if panel["type"] != "row" for target in panel["targets"]]


@needs_promtool
def test_rules_are_valid(tmp_path: Path) -> None:
    promtool("check", "rules", *(name.removesuffix(".off") for name in RULES), folder=written(tmp_path))


@needs_promtool
@pytest.mark.deep
def test_rules_fire_when_they_should(tmp_path: Path) -> None:
    promtool("test", "rules", "rules.test.yml", folder=written(tmp_path))


@needs_promtool
def test_expressions_of_the_dashboard_are_valid(tmp_path: Path) -> None:
    lines = ["groups:", "- name: d", "  rules:"]
    for number, expr in enumerate(expressions()):
        bare = expr.replace("$node", "n.*").replace("$instance", ".*")
        lines += [f"  - record: d:{number}", f"    expr: {json.dumps(bare)}"]
    (tmp_path / "d.yml").write_text("\n".join(lines))
    promtool("check", "rules", "d.yml", folder=tmp_path)


@needs_promtool
def test_the_textfile_passes_its_lint(tmp_path: Path) -> None:
    assert PROMTOOL is not None
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=everything(), capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def everything() -> str:
    problems = {"node/n1": Problem("node/n1", "drained x", "t", "n1", ("c",), 5.0)}
    return render(State(100.0, "c", problems, (), ("n1",), 10.0, 20.0, True, 1, {}, Facts("r", 5.0, {"IDLE": 1}, {},
                        {"pending_jobs": 3.0}, {"gpu_c": "no", "pending_jobs": ""}), (Health("mail", "mail", 3.0),)))


def test_every_alert_is_seen_to_fire_and_not_to_fire() -> None:
    text = (SAMPLES / "rules.test.yml").read_text()
    fires = set(re.findall(r"^        alertname: (\w+)\n        exp_alerts:\n          - exp_labels", text, re.M))
    rests = set(re.findall(r"\{eval_time: \w+, alertname: (\w+)\}", text))
    alerts = set(re.findall(r"alert: (\w+)", files()[RULES[0]] + files()[RULES[1]]))
    assert fires == alerts and len(alerts) == 30
    # Of the others the test has a series beside that must not fire: what is expected is the whole list.
    assert alerts - rests == {"HpcadminTextfileBroken", "GpuMemoryHot", "StorageLatencyNfs", "PacketLoss",
                              "InfinibandLinkLost", "HostHot"}


# As dcgm-exporter (default counters), node_exporter, Slurm 25.11 and prometheus-slurm-exporter have them.
KNOWN = """DCGM_FI_DEV_GPU_TEMP DCGM_FI_DEV_MEMORY_TEMP DCGM_FI_DEV_XID_ERRORS DCGM_FI_DEV_ROW_REMAP_FAILURE
DCGM_FI_DEV_PCIE_REPLAY_COUNTER DCGM_FI_DEV_GPU_UTIL DCGM_FI_DEV_POWER_USAGE DCGM_FI_DEV_FB_USED
node_mountstats_nfs_operations_response_time_seconds_total node_mountstats_nfs_operations_requests_total
node_disk_read_time_seconds_total node_disk_reads_completed_total node_network_receive_drop_total
node_network_receive_errs_total node_network_receive_packets_total node_network_carrier node_infiniband_state_id
node_infiniband_link_downed_total node_infiniband_symbol_error_total node_infiniband_port_data_received_bytes_total
node_edac_uncorrectable_errors_total node_hwmon_temp_celsius node_hwmon_temp_crit_celsius node_timex_sync_status
node_textfile_scrape_error slurm_jobs_pending slurm_queue_pending slurm_nodes_down slurm_nodes_drain"""


def test_metrics_have_the_names_that_exporters_give_them() -> None:
    told = " ".join([*re.findall(r"expr:(.*?)\n(?:        \w+:|      - )", files()[RULES[0]] + files()[RULES[1]], re.S),
                     *expressions()])
    used = set(re.findall(r"\b(?:DCGM|node|slurm|hpcadmin)_\w+", told))
    ours = set(re.findall(r"^(hpcadmin_\w+)", everything(), re.M))
    known = set(KNOWN.split())
    assert used <= known | ours, used - known - ours
    assert known <= used


def test_the_codes_of_xid_are_those_of_the_check() -> None:
    found = re.findall(r"DCGM_FI_DEV_XID_ERRORS == (\d+)", files()[RULES[0]])
    assert [int(code) for code in found] == gpu_xid.CODES


def test_the_rule_of_utilisation_is_off_and_says_why() -> None:
    assert RULES[1].endswith(".off") and "Why it is off" in files()[RULES[1]]
    assert "DCGM_FI_DEV_GPU_UTIL > 90" not in files()[RULES[0]]


def test_dashboard() -> None:
    found = json.loads(files()[DASHBOARD])
    text = json.dumps(found)
    sources = re.findall(r'"uid": "([^"]*)"', text)
    assert set(sources) == {"${datasource}", "hpcadmin-sweep"} and sources.count("hpcadmin-sweep") == 1
    assert {one["name"] for one in found["templating"]["list"]} == {"datasource", "node", "instance"}
    ids = [panel["id"] for panel in found["panels"]]
    assert len(set(ids)) == len(ids)
    cells: set[tuple[int, int]] = set()
    for panel in found["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        here = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not here & cells, panel["title"]
        cells |= here


def test_dashboard_is_what_grafana_imports() -> None:
    found = json.loads(files()[DASHBOARD])
    assert isinstance(found["schemaVersion"], int) and found["schemaVersion"] >= 36 and found["title"] and found["uid"]
    assert len(found["uid"]) <= 40 and "id" not in found        # an id of another Grafana would be looked for
    source, *queries = found["templating"]["list"]
    assert (source["name"], source["type"], source["query"]) == ("datasource", "datasource", "prometheus")
    for variable in queries:
        assert variable["datasource"]["uid"] == "${datasource}" and variable["type"] == "query"
        metric = re.fullmatch(r"label_values\((\w+), \w+\)", variable["query"]["query"])
        assert metric is not None and metric[1] in {*KNOWN.split(), "node_uname_info"}
    names = {variable["name"] for variable in found["templating"]["list"]}
    for panel in found["panels"]:
        assert panel["title"] and panel["type"] in {"row", "stat", "timeseries", "table"}
        if panel["type"] == "row":
            assert panel["panels"] == [] and panel["gridPos"]["h"] == 1
            continue
        assert panel["targets"] and panel["datasource"]["uid"] == "${datasource}"
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        for target in panel["targets"]:
            assert set(re.findall(r"\$\{?(\w+)", target["expr"])) <= names
            assert target["datasource"] == panel["datasource"]


def test_command(tmp_path: Path) -> None:
    run = CliRunner().invoke
    assert run(root, ["sweep", "prometheus", "-o", str(tmp_path)]).exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*RULES, DASHBOARD])
    (tmp_path / RULES[0]).write_text("mine")
    assert run(root, ["sweep", "prometheus", "-o", str(tmp_path)]).exception is not None
    assert (tmp_path / RULES[0]).read_text() == "mine"
    run(root, ["sweep", "prometheus", "-o", str(tmp_path), "--force"])
    assert (tmp_path / RULES[0]).read_text() == files()[RULES[0]]
    assert run(root, ["sweep", "prometheus", "-o", str(tmp_path / "not")]).exception is not None
