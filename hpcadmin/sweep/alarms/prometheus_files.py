"""What Prometheus and Grafana are given: rules, the one that is switched off, a dashboard."""

from __future__ import annotations

import json

from hpcadmin.resources import data_dir
from hpcadmin.sweep.alarms.dashboard import dashboard

RULES = ("hpcadmin.rules.yml", "hpcadmin-utilisation.rules.yml.off")
DASHBOARD = "hpcadmin-dashboard.json"


def files() -> dict[str, str]:
    """Name -> text."""
    folder = data_dir("conf_templates") / "prometheus"
    found = {name: (folder / name).read_text(encoding="utf-8") for name in RULES}
    found[DASHBOARD] = json.dumps(dashboard(), indent=2, sort_keys=True) + "\n"
    return found
