"""Imports go one way only: errors, model, check, hosts, resources -> pure layers -> doors -> run, report -> cli."""

import ast
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from looped import looped

ROOT = Path(__file__).resolve().parent.parent / "hpcadmin"

# Lower may never import higher. A module that is not named here is an error: decide where it belongs.
LAYERS: dict[str, int] = {
    "__init__": 0, "errors": 0, "model": 0, "text": 0,
    "bus_order": 1, "check": 1, "gpu_types": 1, "hosts": 1, "resources": 1, "workbook": 1, "records": 1, "files": 1,
    "children": 1, "toml_text": 1,
    "site": 2, "site_availability": 2, "site_sweep": 2, "site_topology": 2, "site_tools": 2, "rundata": 2,
    "acceptance_model": 2, "frames": 2, "checklib": 2, "state": 2,
    "inventory_file": 2,
    "facts": 3, "documents": 3, "gathered": 3, "inventory": 3,
    "traits": 3, "oddones": 3, "topology": 3, "nccl_topology": 3, "topology_text": 3, "topology_svg": 5,
    "conf": 3, "registry": 3, "plan": 3, "plan_facts": 3, "plan_choice": 3, "plan_layouts": 3, "plan_steps": 3,
    "plan_pairs": 3, "plan_work": 3, "plan_time": 3, "plan_switches": 3, "coverage": 3,
    "tools": 3, "repeats": 3, "waves": 3, "waves_units": 3, "judge": 3, "catalogue": 3,
    "ceilings": 3, "limits_lint": 3, "node_links": 3, "derived": 3, "yardstick": 3, "rejudge": 3,
    "isolate": 3, "peers": 3, "fabric": 3, "fabric_text": 3,
    "anonymise": 3, "pseudonyms": 3, "order": 3, "differences": 3, "sharing": 3, "inventory_diff": 3, "device_diff": 3,
    "cabling": 3, "why": 3,
    "remote": 4, "slurm": 4, "store": 4, "store_marks": 4, "store_prune": 5, "store_archive": 5, "lab": 4, "seal": 4,
    "history": 3, "history_stats": 3, "history_values": 3, "history_trend": 3, "history_runs": 5, "history_store": 4,
    "history_schema": 5,
     "seal_sign": 4,
    "conf_files": 5, "discovery": 5, "intake": 5, "reading": 5, "sources": 5, "bmcs": 5, "giveaway": 5, "proof": 5,
    "conf_live": 5, "conf_write": 5, "conf_install": 5,
    "run": 5, "run_folder": 5, "run_session": 5, "run_kept": 5, "run_lock": 5, "run_rest": 3, "run_stop": 5,
    "run_submit": 5, "run_phases": 5, "run_ledger": 5, "run_begin": 5, "run_retest": 5, "run_live": 5, "run_plan": 5,
    "run_waves": 5, "run_handover": 5, "run_in_use": 5, "run_look_many": 5, "run_lost": 5,
    "run_look_late": 5, "run_reduced": 3,
    "run_coverage": 5, "run_job": 5, "run_place": 5, "run_clocks": 5, "run_outputs": 5, "run_carry": 5, "run_own": 5,
    "run_look": 5, "run_tools": 5,
    "acceptance": 5, "acceptance_book": 5, "acceptance_read": 5, "acceptance_peers": 5, "acceptance_swaps": 5,
    "run_progress": 5, "run_seal": 5, "run_results": 5, "run_nodes": 5, "report": 5, "handover": 5, "health": 5,
    "sweep": 5,
    "vendor": 5, "vendor_files": 5, "vendor_pack": 5,
    "availability": 5,
    "cli": 6, "__main__": 7,
}


def module_files() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def layer(dotted: str) -> int:
    parts = dotted.split(".")
    return LAYERS[parts[1] if len(parts) > 1 else "__init__"]


def statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Wherever they stand; no expression is looked into, which is most of what ast.walk does."""
    for node in body:
        yield node
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from statements(getattr(node, part, ()))


def imported(path: Path) -> list[str]:
    names = []
    for node in statements(ast.parse(path.read_text()).body):
        if isinstance(node, ast.Import):
            names += [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "hpcadmin":
                names += [f"hpcadmin.{a.name}" for a in node.names]
            else:
                names.append(node.module or "")
    return [n for n in names if n.split(".")[0] == "hpcadmin" and n != "hpcadmin.__version__"]


@looped("path", module_files(), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_one_way(path: Path) -> None:
    dotted = "hpcadmin." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
    own = layer(dotted)
    for name in imported(path):
        assert layer(name) <= own, f"{dotted} (layer {own}) imports {name} (layer {layer(name)})"


def test_checks_import_only_what_an_author_needs() -> None:
    for path in sorted((ROOT.parent / "checks").glob("*.py")):
        for name in imported(path):
            assert name.startswith("hpcadmin.check"), f"{path.name} imports {name}"


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["validate", "--help"]])
def test_start_up_imports_nothing_heavy(args: list[str]) -> None:
    import subprocess
    code = ("import sys\nfrom hpcadmin.cli import run\nrun(" + repr(args) + ")\n"
            "print('HEAVY', sorted({m.split('.')[0] for m in sys.modules} & "
            "{'pandas', 'fabric', 'jinja2', 'ClusterShell', 'paramiko', 'tabulate', 'numpy', 'rich',"
            " 'xlsxwriter', 'openpyxl', 'matplotlib'}))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT.parent)
    assert done.stdout.strip().endswith("HEAVY []"), done.stdout


def test_no_two_tests_have_one_name() -> None:
    """pytest takes the folders of tests for one package of modules."""
    names = [path.name for path in Path(__file__).parent.rglob("*.py") if "samples" not in path.parts]
    assert len(set(names)) == len(names), sorted({n for n in names if names.count(n) > 1})
