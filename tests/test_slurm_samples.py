"""What real Slurms of several versions answered (recorded by integration/slurm_scene.py), read by the back end."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from slurm_scenes import JOBS, NODE_LOOKS, ask, inside, odd

from hpcadmin.slurm.command_line import CommandLine
from hpcadmin.slurm.states import node_state

SAMPLES = sorted((Path(__file__).resolve().parent / "samples" / "slurm").glob("*.json"))
# The answer lies in the file that is named by the call's words.
PLAYER = """#!/bin/sh
call=$(printf '%s\\n' {name} "$@" | md5sum | cut -c 1-32)
[ -e "{folder}/$call.out" ] || {{ echo "not recorded, see integration/slurm_scene.py: {name} $*" >&2; exit 97; }}
cat "{folder}/$call.out"
cat "{folder}/$call.err" >&2
exit "$(cat "{folder}/$call.status")"
"""


def play(sample: dict[str, Any], folder: Path) -> dict[str, str]:
    """The environment in which Slurm's commands answer as they did."""
    for call in sample["calls"]:
        words = "".join(f"{word}\n" for word in call["argv"])
        path = folder / hashlib.md5(words.encode(), usedforsecurity=False).hexdigest()
        for kind in ("out", "err", "status"):
            path.with_suffix(f".{kind}").write_text(str(call[kind]))
        command = folder / "bin" / call["argv"][0]
        command.parent.mkdir(exist_ok=True)
        command.write_text(PLAYER.format(name=command.name, folder=folder))
        command.chmod(0o755)
    return {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_what_real_slurms_answered_is_read(path: Path, tmp_path: Path) -> None:
    sample = json.loads(path.read_text())
    assert sample["jobs"].keys() == JOBS.keys()
    environment = play(sample, tmp_path)
    with inside(tmp_path):
        told = ask(CommandLine(environment), sample["jobs"])
    assert told["version"] == sample["version"]
    assert odd(told, sample["jobs"]) == []


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_states_of_nodes_in_json_say_what_the_text_says(path: Path) -> None:
    told = {name: node_state(*words) for name, words in json.loads(path.read_text())["json states"].items()}
    assert {name: (state.unusable, state.busy) for name, state in told.items()} == {
        name: looks[:2] for name, looks in NODE_LOOKS.items()}


def test_three_versions_at_least_are_recorded() -> None:
    assert {path.stem.rpartition(".")[0] for path in SAMPLES} >= {"slurm-22.05", "slurm-24.11", "slurm-26.05"}


def test_a_wrong_answer_is_seen(tmp_path: Path) -> None:
    sample = json.loads(SAMPLES[0].read_text())
    ids = sample["jobs"]
    for call in sample["calls"]:
        call["out"] = call["out"].replace(f"{ids['node died']}|NODE_FAIL|", f"{ids['node died']}|RUNNING|")
    with inside(tmp_path):
        found = odd(ask(CommandLine(play(sample, tmp_path)), ids), ids)
    assert found and all(line.startswith("node died") for line in found)
