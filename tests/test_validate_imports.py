"""What is heavy stays out of validate until a report, a look or somebody at a terminal needs it."""

import subprocess
import sys
from pathlib import Path

CODE = """
import sys
import hpcadmin.cli.validate, hpcadmin.run, hpcadmin.slurm.command_line, hpcadmin.registry
hpcadmin.registry.load_checks()
heavy = {"pandas", "fabric", "jinja2", "paramiko", "numpy", "tabulate", "rich"}
print(sorted({m.split(".")[0] for m in sys.modules} & heavy | {"hpcadmin.facts", "hpcadmin.conf"} & set(sys.modules)))
"""


def test_validate_imports_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True,
                          cwd=Path(__file__).resolve().parent.parent)
    assert done.stdout.strip() == "[]"
