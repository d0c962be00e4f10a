"""Problems that keep files from being written: one line for each, however many nodes and GPUs have it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hpcadmin.conf.parts import Problem
    from hpcadmin.site import Site

_GPU = re.compile(r"GPU ([0-9]{1,4}): (.*)", re.DOTALL)


def problem_lines(problems: Sequence[Problem], site: Site) -> list[str]:
    return [problem_line(problem, site) for problem in folded(problems)]


def problem_line(problem: Problem, site: Site) -> str:
    from hpcadmin.toml_text import locate
    where = f"{problem.node}: " if problem.node else ""
    if problem.key and site.source:
        where = f"{locate(site.source, problem.key)}: {where}"
    return f"{where}{problem.what}{f' ({problem.hint})' if problem.hint else ''}"


def folded(problems: Sequence[Problem]) -> list[Problem]:
    """Problems that are the same but for their GPU, and then for their node, are one; in the order of the first."""
    from hpcadmin.conf.names import slurm_list
    from hpcadmin.text import fold_ids
    gpus: dict[Problem, list[int]] = {}
    for problem in problems:
        match = _GPU.fullmatch(problem.what)
        rest = replace(problem, what=match[2]) if match else problem
        gpus.setdefault(rest, []).extend([int(match[1])] if match else [])
    nodes: dict[Problem, list[str]] = {}
    for problem, numbers in gpus.items():
        what = f"GPU {fold_ids(numbers)}: {problem.what}" if numbers else problem.what
        nodes.setdefault(replace(problem, what=what, node=""), []).append(problem.node)
    return [replace(problem, node=slurm_list(name for name in names if name)) for problem, names in nodes.items()]
