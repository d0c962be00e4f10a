"""A Grafana dashboard of what the sweep and the exporters tell. The data source is asked for, and nothing of it is
written here. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
UID = "hpcadmin-sweep"
_WIDTH, _HEIGHT = 24, 8


@dataclass(frozen=True)
class Panel:
    """kind: stat, timeseries, table. queries: (expression, legend)."""

    title: str
    kind: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    width: int = 12
    height: int = _HEIGHT
    about: str = ""


@dataclass(frozen=True)
class Row:
    """exporter: where its metrics come from."""

    title: str
    panels: tuple[Panel, ...]


_N = 'Hostname=~"$node"'
_I = 'instance=~"$instance"'
_NFS = "node_mountstats_nfs_operations"
_NET = f'{_I}, device!~"lo|veth.*|docker.*|virbr.*|cni.*"'

ROWS = (
    Row("The sweep (textfile of hpcadmin)", (
        Panel("Last sweep", "stat", (("time() - max(hpcadmin_sweep_end_timestamp_seconds)", "ago"),), "s", 4, 4),
        Panel("Slurm answered", "stat", (("min(hpcadmin_sweep_slurm_answered)", "answered"),), "bool_yes_no", 4, 4),
        Panel("Drained by us", "stat", (("sum(hpcadmin_sweep_drained_nodes)", "nodes"),), "short", 4, 4),
        Panel("Problems", "stat", (("sum(hpcadmin_sweep_problems)", "problems"),), "short", 4, 4),
        Panel("Channels that fail", "stat", (("sum(hpcadmin_alarm_channel_failing)", "channels"),), "short", 4, 4),
        Panel("Exit status", "stat", (("max(hpcadmin_sweep_exit_status)", "status"),), "short", 4, 4),
        Panel("Nodes by state", "timeseries", (("sum by (state) (hpcadmin_sweep_nodes)", "{{state}}"),),
              about="As the sweep saw them: a value a night."),
        Panel("Nodes by flag", "timeseries", (("sum by (flag) (hpcadmin_sweep_nodes_flagged) > 0", "{{flag}}"),)),
        Panel("Problems by kind", "timeseries", (("sum by (kind) (hpcadmin_sweep_problems) > 0", "{{kind}}"),)),
        Panel("What was done in a week", "timeseries",
              (('sum by (act) (increase(hpcadmin_sweep_actions_total{result="done"}[7d]))', "{{act}}"),)),
        Panel("Values of the nightly look", "timeseries", (("max by (what) (hpcadmin_sweep_value)", "{{what}}"),),
              about="What the thresholds are compared with, each in the unit of its name."),
        Panel("Not measured by the last sweep", "timeseries",
              (("min by (what) (hpcadmin_sweep_value_measured) == 0", "{{what}}"),),
              about="Thresholds of which nothing is known: what was told by them goes on. Empty is good."),
        Panel("Nodes with a problem", "table", (("(time() - hpcadmin_sweep_node_problem)", "{{node}}"),), "s", 24,
              about="The value is for how long."),
    )),
    Row("GPUs (dcgm-exporter)", (
        Panel("Utilisation", "timeseries", ((f"DCGM_FI_DEV_GPU_UTIL{{{_N}}}", "{{Hostname}} {{gpu}}"),), "percent"),
        Panel("Temperature", "timeseries", ((f"DCGM_FI_DEV_GPU_TEMP{{{_N}}}", "{{Hostname}} {{gpu}}"),), "celsius"),
        Panel("Power", "timeseries", ((f"DCGM_FI_DEV_POWER_USAGE{{{_N}}}", "{{Hostname}} {{gpu}}"),), "watt"),
        Panel("Memory used", "timeseries", ((f"DCGM_FI_DEV_FB_USED{{{_N}}}", "{{Hostname}} {{gpu}}"),), "decmbytes"),
        Panel("Last Xid", "table", ((f"DCGM_FI_DEV_XID_ERRORS{{{_N}}} > 0", "{{Hostname}} {{gpu}}"),)),
        Panel("GPUs that tell", "timeseries", ((f"count by (Hostname) (DCGM_FI_DEV_GPU_TEMP{{{_N}}})",
                                                "{{Hostname}}"),)),
    )),
    Row("Nodes (node_exporter)", (
        Panel("NFS: time of an answer", "timeseries", (
            (f"sum by (instance, export) (rate({_NFS}_response_time_seconds_total{{{_I}}}[5m]))"
             f" / sum by (instance, export) (rate({_NFS}_requests_total{{{_I}}}[5m]))",
             "{{instance}} {{export}}"),), "s", about="Needs --collector.mountstats."),
        Panel("Packets lost", "timeseries", (
            (f"rate(node_network_receive_drop_total{{{_NET}}}[5m]) / rate(node_network_receive_packets_total{{{_NET}}}"
             "[5m])", "{{instance}} {{device}}"),), "percentunit"),
        Panel("InfiniBand: data received", "timeseries", (
            (f"rate(node_infiniband_port_data_received_bytes_total{{{_I}}}[5m])",
             "{{instance}} {{device}} {{port}}"),), "Bps"),
        Panel("InfiniBand ports that are not active", "table", (
            (f"node_infiniband_state_id{{{_I}}} != 4", "{{instance}} {{device}} {{port}}"),)),
    )),
    Row("Slurm (itself from 25.11 on, or an exporter)", (
        Panel("Jobs that wait", "timeseries", (
            ("sum by (instance) (slurm_jobs_pending) or sum by (instance) (slurm_queue_pending)", "{{instance}}"),)),
        Panel("Nodes down and drained", "timeseries", (
            ("sum by (instance) (slurm_nodes_down)", "down {{instance}}"),
            ("sum by (instance) (slurm_nodes_drain)", "drain {{instance}}"))),
    )),
)


def dashboard() -> dict[str, Any]:
    """For import into Grafana 9 and later."""
    return {
        "title": "GPU cluster: nightly sweep", "uid": UID, "tags": ["hpcadmin", "slurm"], "schemaVersion": 37,
        "version": 1, "editable": True, "timezone": "browser", "refresh": "5m", "graphTooltip": 1,
        "time": {"from": "now-7d", "to": "now"}, "annotations": {"list": []}, "links": [],
        "templating": {"list": [
            {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "refresh": 1,
             "hide": 0, "multi": False, "includeAll": False, "regex": "", "options": [], "current": {}},
            _variable("node", "GPU node", "label_values(DCGM_FI_DEV_GPU_TEMP, Hostname)"),
            _variable("instance", "Host", "label_values(node_uname_info, instance)"),
        ]},
        "panels": list(_placed(ROWS)),
    }


def _variable(name: str, label: str, query: str) -> dict[str, Any]:
    return {"name": name, "label": label, "type": "query", "datasource": SOURCE, "definition": query,
            "query": {"query": query, "refId": name}, "refresh": 2, "sort": 1, "hide": 0, "multi": True,
            "includeAll": True, "allValue": ".*", "regex": "", "options": [],
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]}}


def _placed(rows: Iterable[Row]) -> Iterable[dict[str, Any]]:
    """From left to right as long as there is room."""
    number = y = 0
    for row in rows:
        number += 1
        yield {"id": number, "type": "row", "title": row.title, "collapsed": False, "panels": [],
               "gridPos": {"x": 0, "y": y, "w": _WIDTH, "h": 1}}
        y += 1
        x = high = 0
        for panel in row.panels:
            if x + panel.width > _WIDTH:
                x, y, high = 0, y + high, 0
            number += 1
            yield _plain(panel, number, x, y)
            x, high = x + panel.width, max(high, panel.height)
        y += high


def _plain(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    table = panel.kind == "table"
    return {
        "id": number, "type": panel.kind, "title": panel.title, "description": panel.about, "datasource": SOURCE,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []}, "options": {},
        "targets": [{"refId": chr(ord("A") + place), "datasource": SOURCE, "expr": expr, "legendFormat": legend,
                     "instant": table, "range": not table, "format": "table" if table else "time_series"}
                    for place, (expr, legend) in enumerate(panel.queries)],
        **({"transformations": [{"id": "organize", "options": {"excludeByName": {
            "Time": True, "__name__": True, "job": True}}}]} if table else {}),
    }
