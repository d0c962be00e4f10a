"""gpu_pcie: its script with a program in the place of nvidia-smi that has busy GPUs from the third time on."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from looped import looped

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


@looped("bad", ["nan", "inf", "-7", "1,024", "0x10", "1e999", "--", "", "0", "99"])
@looped("place", [3, 4, 5, 6])
def test_a_number_that_is_none_is_refused(place: int, bad: str) -> None:
    row = next(line for line in OK.splitlines() if ", 97, " in line)
    words = row.split(", ")
    words[place] = bad
    with pytest.raises(ParseError):
        CHECK.parse([Output(OK.replace(row, ", ".join(words)), node="n1")], Context((NodeView("n1", gpus=8),)))


@pytest.mark.parametrize(("old", "new", "said"), [
    (", 5, 5, 16, 16", ", 5, 4, 16, 16", "above its own most"), (", 5, 16, 16", ", 5, 16, 8", "above its own most"),
    (", 1, 5,", ", 1, 9,", "no such PCIe link"), ("16, 16", "3, 16", "no such PCIe link")])
def test_links_that_cannot_be_are_refused(old: str, new: str, said: str) -> None:
    assert old in OK
    with pytest.raises(ParseError, match=said):
        CHECK.parse([Output(OK.replace(old, new), node="n1")], Context((NodeView("n1", gpus=8),)))


def test_other_gpus_than_those_of_the_inventory_and_one_that_can_less() -> None:
    with pytest.raises(ParseError, match=r"0000:1b:00\.0 is not in the inventory"):
        CHECK.parse([Output(OK, node="n1")], Context((NodeView("n1", gpus=8, gpu_pci=("0000:01:00.0",) * 8),)))
    less = "\n".join(line.replace("16, 16", "8, 8") if "43:00" in line else line for line in OK.split("\n"))
    found = CHECK.parse([Output(less, node="n1")], Context((NodeView("n1", gpus=8),)))
    warned = {(m.name, m.subject.device) for m in found if m.warnings}
    assert warned == {("pcie_gen", "GPU 1"), ("pcie_width", "GPU 1")}
