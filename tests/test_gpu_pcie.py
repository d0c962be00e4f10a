"""gpu_pcie: its script with a program in the place of nvidia-smi that has busy GPUs from the third time on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from hpcadmin.check import Context, NodeView, Output, ParseError
from hpcadmin.registry import load_checks

CHECK = load_checks()["gpu_pcie"]
FAKE = r"""#!/bin/sh
echo x >>"$0.count"
if [ "$(wc -l <"$0.count")" -ge 3 ]; then state='P0, 99, {gen}'; else state='P8, 0, 1'; fi
for bus in 1B 43; do echo "00000000:$bus:00.0, $state, 5, 16, 16"; done
exit {status}
"""


def run(folder: Path, gen: int = 5, status: int = 0, samples: int = 4) -> Output:
    tool = folder / "nvidia-smi"
    tool.write_text(FAKE.replace("{gen}", str(gen)).replace("{status}", str(status)))
    tool.chmod(0o755)
    (step,) = CHECK.steps(Context((NodeView("n1", gpus=2),), {"samples": samples}, {"nvidia-smi": str(tool)}))
    argv = [word.replace("sleep 1", "sleep 0.01") for word in step.argv]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return Output(done.stdout + done.stderr, done.returncode, node="n1")


@pytest.mark.parametrize(("gen", "samples", "seen"), [(5, 9, 3), (4, 5, 5), (5, 2, 2)])
def test_it_asks_until_all_gpus_have_been_seen_at_work(tmp_path: Path, gen: int, samples: int, seen: int) -> None:
    output = run(tmp_path, gen, samples=samples)
    assert output.text.count("# sample ") == seen
    found = CHECK.parse([output], Context((NodeView("n1", gpus=2),)))
    assert [(m.name, m.value, m.expected) for m in found] == [
        ("pcie_gen", 1 if seen == 2 else gen, 1 if seen == 2 else 5), ("pcie_width", 16, 16)]
    assert all(bool(m.warnings) is (seen == 2) for m in found)


def test_a_tool_that_fails_ends_it(tmp_path: Path) -> None:
    output = run(tmp_path, status=6)
    assert output.exit_status == 1 and output.text.count("# sample ") == 1


OK = (Path(__file__).parent / "samples" / "gpu_pcie" / "ok.out").read_text(encoding="utf-8")


@pytest.mark.parametrize("bad", ["nan", "inf", "-7", "1,024", "0x10", "1e999", "--", "", "0", "99"])
@pytest.mark.parametrize("place", [3, 4, 5, 6])
def test_a_number_that_is_none_is_refused(place: int, bad: str) -> None:
    row = next(line for line in OK.splitlines() if ", 97, " in line)
    words = row.split(", ")
    words[place] = bad
    with pytest.raises(ParseError):
        CHECK.parse([Output(OK.replace(row, ", ".join(words)), node="n1")], Context((NodeView("n1", gpus=8),)))
