"""Imports go one way only: errors, model, check, hosts, resources -> pure layers -> doors -> run, report -> cli."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent / "hpcadmin"

# Lower may never import higher. A module that is not named here is an error: decide where it belongs.
LAYERS: dict[str, int] = {
    "__init__": 0, "errors": 0, "model": 0, "text": 0,
    "check": 1, "gpu_types": 1, "hosts": 1, "resources": 1, "records": 1, "files": 1,
    "site": 2, "site_topology": 2, "site_tools": 2, "rundata": 2, "frames": 2, "checklib": 2, "state": 2,
    "facts": 3, "documents": 3, "gathered": 3, "inventory": 3,
    "traits": 3, "oddones": 3, "topology": 3, "nccl_topology": 3, "topology_text": 3, "topology_svg": 5,
    "conf": 3, "registry": 3, "plan": 3, "plan_facts": 3, "plan_choice": 3, "plan_layouts": 3, "plan_steps": 3,
    "tools": 3, "repeats": 3, "judge": 3, "catalogue": 3,
    "ceilings": 3, "limits_lint": 3, "node_links": 3, "derived": 3, "yardstick": 3, "rejudge": 3,
    "isolate": 3, "peers": 3, "fabric": 3, "fabric_text": 3,
    "anonymise": 3, "pseudonyms": 3, "order": 3, "differences": 3, "sharing": 3, "inventory_diff": 3, "device_diff": 3,
    "cabling": 3, "why": 3,
    "remote": 4, "slurm": 4, "store": 4, "lab": 4,
    "conf_files": 5, "discovery": 5, "intake": 5, "reading": 5, "sources": 5, "bmcs": 5, "giveaway": 5, "proof": 5,
    "conf_live": 5, "conf_write": 5, "conf_install": 5,
    "run": 5, "run_folder": 5, "run_job": 5, "run_own": 5, "run_look": 5, "run_tools": 5,
    "run_progress": 5, "run_results": 5, "run_nodes": 5, "report": 5, "health": 5,
    "cli": 6, "__main__": 7,
}


def module_files() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def layer(dotted: str) -> int:
    parts = dotted.split(".")
    return LAYERS[parts[1] if len(parts) > 1 else "__init__"]


def imported(path: Path) -> list[str]:
    names = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "hpcadmin":
                names += [f"hpcadmin.{a.name}" for a in node.names]
            else:
                names.append(node.module or "")
    return [n for n in names if n.split(".")[0] == "hpcadmin" and n != "hpcadmin.__version__"]


@pytest.mark.parametrize("path", module_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    dotted = "hpcadmin." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
    own = layer(dotted)
    for name in imported(path):
        assert layer(name) <= own, f"{dotted} (layer {own}) imports {name} (layer {layer(name)})"


def test_checks_import_only_what_an_author_needs() -> None:
    for path in sorted((ROOT.parent / "checks").glob("*.py")):
        for name in imported(path):
            assert name.startswith("hpcadmin.check"), f"{path.name} imports {name}"


@pytest.mark.parametrize("args", [["--help"], ["--version"]])
def test_start_up_imports_nothing_heavy(args: list[str]) -> None:
    import subprocess
    code = ("import sys\nfrom hpcadmin.cli import run\nrun(" + repr(args) + ")\n"
            "print('HEAVY', sorted({m.split('.')[0] for m in sys.modules} & "
            "{'pandas', 'fabric', 'jinja2', 'ClusterShell', 'paramiko', 'tabulate', 'numpy'}))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT.parent)
    assert done.stdout.strip().endswith("HEAVY []"), done.stdout
