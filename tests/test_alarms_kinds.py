"""Every kind of problem that there may be has its name in metrics and alerts: collected from the code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from hpcadmin.sweep.alarms.channels.alertmanager import _NAMES
from hpcadmin.sweep.alarms.metrics import KINDS

SWEEP = Path(__file__).resolve().parent.parent / "hpcadmin" / "sweep"
# Where a problem is made of what another place has named: its key is none of its own.
HANDED_ON = {"ledger.py:_problem", "outbox.py:_change", "alertmanager.py:alerts", "problems.py:add",
             "look.py:_problem"}
MAKERS = {"Problem": SWEEP.rglob("*.py"), "add": [SWEEP / "problems.py"], "_problem": [SWEEP / "alarms" / "look.py"]}


def begins(key: ast.expr, function: ast.FunctionDef) -> str | None:
    """The beginning of a key that is written out; None when it is not."""
    if isinstance(key, ast.Name):
        values = [node.value for node in ast.walk(function) if isinstance(node, ast.Assign)
                  and any(isinstance(target, ast.Name) and target.id == key.id for target in node.targets)]
        return begins(values[0], function) if len(values) == 1 else None
    if isinstance(key, ast.JoinedStr) and key.values:
        key = key.values[0]
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None


def made(path: Path, maker: str) -> Iterator[tuple[str, str | None]]:
    """(where, the beginning of the key) of each problem that is made in a file."""
    for function in ast.walk(ast.parse(path.read_text())):
        if not isinstance(function, ast.FunctionDef):
            continue
        others = [node for node in ast.walk(function) if isinstance(node, ast.FunctionDef) and node is not function]
        inner = {id(node) for other in others for node in ast.walk(other)}
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and id(node) not in inner and isinstance(node.func, ast.Name) \
                    and node.func.id == maker and node.args:
                yield f"{path.name}:{function.name}", begins(node.args[0], function)


def test_every_kind_has_its_name() -> None:
    found = [one for maker, paths in MAKERS.items() for path in sorted(paths) for one in made(path, maker)]
    unnamed = {where for where, key in found if key is None}
    assert unnamed <= HANDED_ON, f"which kind of problem do they make? {unnamed - HANDED_ON}"
    kinds = {key.partition("/")[0] for _, key in found if key is not None}
    assert kinds == set(KINDS), kinds ^ set(KINDS)
    assert set(_NAMES) == {*KINDS, "other"} and len(set(_NAMES.values())) == len(_NAMES)
    assert all(name.startswith("Hpcadmin") and name.isalnum() for name in _NAMES.values())
