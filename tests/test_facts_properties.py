"""Parsers raise ParseError and nothing else, on any text, in time linear in its length."""

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcadmin.errors import ParseError
from hpcadmin.facts import facts, probe_script, read_capture
from hpcadmin.facts._base import cpu_list, pci_address
from hpcadmin.text import fold_ids

pytestmark = pytest.mark.deep

SAMPLES = Path(__file__).parent / "samples" / "facts"
TEXTS = {name: [path.read_text() for path in sorted((SAMPLES / name).glob("*.txt"))] for name in facts()}
PIECES = st.sampled_from(["\n", "\t", " ", "0", "-", ":", "=", ",", "GPU0", "X", "<gpu>", "]]>", "&a;", "\x00",
                          "\x1b[4m", "9" * 30, "\u202e", "\ud7ff", "٣", "end=pci", "NaN", "-1", "1e9", "0x"])


@st.composite
def damaged(draw: st.DrawFn, texts: list[str]) -> str:
    """A sample with pieces cut out, doubled and put in."""
    text = draw(st.sampled_from(texts))
    for _ in range(draw(st.integers(1, 4))):
        low = draw(st.integers(0, len(text)))
        high = draw(st.integers(low, min(len(text), low + 200)))
        text = text[:low] + draw(st.one_of(PIECES, st.just(text[low:high] * 2), st.text(max_size=8))) + text[high:]
    return text


def read(name: str, text: str) -> None:
    try:
        facts()[name].parse(text)
    except ParseError as exc:
        assert "\n" not in str(exc)
        assert len(str(exc)) < 500


@pytest.mark.parametrize("name", sorted(facts()))
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_any_text(name: str, data: st.DataObject) -> None:
    read(name, data.draw(st.text(max_size=300)))


@pytest.mark.parametrize("name", sorted(facts()))
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_damaged_samples(name: str, data: st.DataObject) -> None:
    read(name, data.draw(damaged(TEXTS[name])))


SLOW = {
    "digits": "1" * 40_000, "blanks": " " * 40_000, "lines": "a: b\n" * 20_000, "words": "GPU0 X NV18 " * 10_000,
    "columns": " ".join(f"GPU{n}" for n in range(1000)) + "\n" + "GPU0 X\n" * 5000, "commas": "0-1," * 20_000,
    "lost": "Unable to determine the device handle for GPU" * 5000, "open": "<gpu>" * 20_000,
    "document": "<nvidia_smi_log>" + "<a>" * 40_000 + "</a>" * 40_000 + "</nvidia_smi_log>",
    "declarations": "<nvidia_smi_log>" + "<!" * 30_000, "pci": "pci=0000:00:00.0\t" * 10_000, "quotes": "CA '" * 20_000,
    "version": "version NVRM version: " + "x86_64  " * 10_000 + "\nend=nvidia",
}


@pytest.mark.parametrize("kind", sorted(SLOW))
def test_time_is_linear(kind: str) -> None:
    """Twice the text may take twice the time, with room for a busy machine; a nested quantifier takes forever."""
    for name in facts():
        start = time.process_time()
        read(name, SLOW[kind])
        assert time.process_time() - start < 2.0, name


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=500))
def test_any_capture(text: str) -> None:
    token = "0123456789abcdef"
    for capture in (text, f"\nHPCADMIN-CAPTURE 1 {token}\n{text}",
                    f"\nHPCADMIN-CAPTURE 1 {token}\n\n@{token} begin pci limit=9\n{text}\n@{token} stderr pci\n{text}"):
        try:
            node = read_capture(capture, "node01")
        except ParseError:
            continue
        assert node.problems
        assert "gpus" in node.unknown


@given(st.lists(st.integers(0, 3000)))
def test_cpu_lists_go_round(ids: list[int]) -> None:
    assert cpu_list(fold_ids(ids), "ids") == tuple(sorted(set(ids)))


@pytest.mark.parametrize(("text", "address"), [
    ("00000000:1B:00.0", "0000:1b:00.0"), ("1b:00.0", "0000:1b:00.0"), ("00010000:01:00.0", "10000:01:00.0"),
    ("1b:00.8", ""), ("", ""), ("0000:1b:00", "")])
def test_pci_addresses(text: str, address: str) -> None:
    assert pci_address(text) == address


def test_sudo_is_for_named_facts_only() -> None:
    assert "sudo" not in probe_script()
    script = probe_script(sudo=["dmi"])
    assert script.count("sudo") == 1
    assert "fact_dmi() {\nSUDO='sudo -n'\n" in script


def test_the_probe_names_only_tools() -> None:
    from hpcadmin.errors import UsageError
    assert "TOOLS='a_tool all_reduce_perf " in probe_script(tools=["a_tool"])
    for name in ("a b", "$(id)", "-x", "a'b", ""):
        with pytest.raises(UsageError):
            probe_script(tools=[name])
    with pytest.raises(UsageError):
        probe_script(sudo=["rm"])
