"""Every sample of every fact: the text is read as the .json beside it says. A bug report becomes a file here."""

import json
from pathlib import Path

import pytest
from looped import looped

from hpcadmin import records
from hpcadmin.errors import ParseError
from hpcadmin.facts import facts

SAMPLES = Path(__file__).parent / "samples" / "facts"
CASES = sorted(SAMPLES.glob("*/*.txt"))


@looped("path", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_sample(path: Path) -> None:
    expected = json.loads(path.with_suffix(".json").read_text())
    fact = facts()[path.parent.name]
    text = path.read_bytes().decode()
    if "error" in expected:
        with pytest.raises(ParseError) as caught:
            fact.parse(text)
        assert caught.value.what == expected["error"]
        return
    plain = json.loads(records.dumps(fact.parse(text)))
    assert plain == expected["value"]


def test_every_fact_has_samples() -> None:
    assert set(facts()) == {path.parent.name for path in CASES}


@looped("name", sorted(facts()))
def test_empty_text_is_an_error_never_a_value(name: str) -> None:
    for text in ("", "\n", "   \n\n"):
        with pytest.raises(ParseError):
            facts()[name].parse(text)


LISTS = ("cpu_topology", "drm", "infiniband", "net", "numa", "nvidia_proc", "pci")


WHOLE = [path for path in CASES if path.parent.name in (*LISTS, "nvidia_smi")
         and path.stem not in ("no-devices", "noise-around")
         and "value" in json.loads(path.with_suffix(".json").read_text())]


@looped("path", WHOLE, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_list_cut_off_anywhere_is_an_error(path: Path) -> None:
    """Nothing that lacks its end is taken for the whole: fewer devices would look like a fact."""
    text = path.read_text().rstrip("\n")
    step = max(1, len(text) // 150)
    for end in [*range(0, len(text) - 1, step), len(text) - 1]:
        with pytest.raises(ParseError):
            facts()[path.parent.name].parse(text[:end])
