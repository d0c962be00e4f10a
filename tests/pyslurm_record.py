"""Records a sample of a live cluster for test_pyslurm.py. By hand, with a Python that has pyslurm, as the jobs' user:

    python tests/pyslurm_record.py tests/samples/pyslurm/NAME.json "where this is from"
"""

import importlib
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

NODE = ("name", "state", "hostname", "partitions", "reason", "configured_gres", "total_cpus", "real_memory")
PARTITION = ("name", "state", "is_default", "max_time", "oversubscribe")
JOB = ("id", "array_id", "user_id", "state", "state_reason", "allocated_nodes", "comment")
QUEUE = ("squeue", "-h", "-a", "-t", "all", "-o", "%i|%T|%r|%N|%k")
COMMANDS = {
    "version": ("sinfo", "--version"),
    "nodes": ("scontrol", "--all", "--oneliner", "show", "nodes"),
    "partitions": ("scontrol", "--all", "--oneliner", "show", "partitions"),
    "squeue": QUEUE, "own": (*QUEUE, "-u", str(os.getuid())),
}


def fields(records: Any, names: tuple[str, ...]) -> list[dict[str, Any]]:
    return [{name: getattr(record, name) for name in names} for record in records.values()]


def record(source: str) -> str:
    pyslurm = importlib.import_module("pyslurm")
    jobs = [{**job, "user_id": "own" if job["user_id"] == os.getuid() else job["user_id"]}
            for job in fields(pyslurm.Jobs.load(), JOB)]
    plain = {
        "source": source,
        "pyslurm": {"version": pyslurm.__version__, "slurm": pyslurm.slurmctld.Config.load().version,
                    "nodes": fields(pyslurm.Nodes.load(), NODE),
                    "partitions": fields(pyslurm.Partitions.load(), PARTITION), "jobs": jobs},
        "commands": {name: subprocess.run(argv, capture_output=True, text=True, check=True).stdout
                     for name, argv in COMMANDS.items()},
    }
    return json.dumps(plain, indent=1).replace(platform.node(), "host") + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(record(sys.argv[2]), encoding="utf-8")
