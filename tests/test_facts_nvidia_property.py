"""Made-up NVIDIA nodes in every form of nvidia-smi, read back as the same; any text is read or refused."""

import contextlib
import time
from types import ModuleType

import nvidia_texts as texts
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nvidia_texts import Made, made

from hpcadmin.documents import documents
from hpcadmin.errors import ParseError
from hpcadmin.facts import (
    Document,
    Reading,
    _gpu,
    nvidia_csv,
    nvidia_dmesg,
    nvidia_error,
    nvidia_list,
    nvidia_nvlink,
    nvidia_p2p,
    nvidia_proc,
    nvidia_q,
    nvidia_smi,
    nvidia_table,
)
from hpcadmin.gpu_types import autodetected, gres
from hpcadmin.model import Gpu

pytestmark = pytest.mark.deep

READERS = (nvidia_csv, nvidia_dmesg, nvidia_error, nvidia_list, nvidia_nvlink, nvidia_p2p, nvidia_proc, nvidia_q,
           nvidia_smi, nvidia_table)


def the_reading(module: ModuleType, text: str) -> Reading:
    found = [r for document in documents("text", text.encode()) if document.form in module.FORMS
             for r in module.read(document)]
    assert len(found) == 1
    return found[0]


def whole(reading: Reading, node: Made) -> None:
    assert not reading.missing
    assert not reading.refused
    assert reading.known["gpu_count"] == len(node.gpus)
    assert [gpu["index"] for gpu in reading.known["gpus"]] == list(range(len(node.gpus)))
    if not any(gpu.mig_devices for gpu in node.gpus):
        assert reading.known["gres_ok"] == [gres(autodetected(gpu.model) for gpu in node.gpus)]


@settings(max_examples=60, deadline=None)
@given(node=made(), noise=st.sampled_from(("", "$ nvidia-smi -q -x\n", "\n\nLast login: Mon\n")))
def test_xml(node: Made, noise: str) -> None:
    xml = texts.as_xml(node)
    expected = tuple(texts.without_profiles(gpu) for gpu in node.gpus)
    assert nvidia_smi.parse(noise + xml).gpus == expected
    reading = the_reading(nvidia_smi, noise + xml)
    whole(reading, node)
    assert reading.value.gpus == expected
    assert (reading.value.driver, reading.value.cuda) == (node.driver, node.cuda)
    assert reading.known["minors_in_pci_order"] == [gpu.minor for gpu in node.gpus]


@settings(max_examples=60, deadline=None)
@given(node=made(), shape=st.sampled_from(("as is", "quoted", "further in", "no indentation", "prose around")))
def test_q(node: Made, shape: str) -> None:
    text = texts.as_q(node)
    lines = text.split("\n")
    if shape == "quoted":
        text = "\n".join(f"> {line}" for line in lines)
    elif shape == "further in":
        text = "\n".join(f"        {line}" if line else line for line in lines)
    elif shape == "no indentation":
        text = "\n".join(" ".join(line.split()) for line in lines)
    elif shape == "prose around":
        text = f"Hello,\nthis is what we see:\n\n{text}\nroot@node:~# exit\nAny idea?\n"
    reading = the_reading(nvidia_q, text)
    whole(reading, node)
    assert reading.value.gpus == tuple(texts.without_profiles(gpu) for gpu in node.gpus)


@settings(max_examples=60, deadline=None)
@given(node=made(), data=st.data(), header=st.booleans(), units=st.booleans())
def test_csv(node: Made, data: st.DataObject, header: bool, units: bool) -> None:
    columns = data.draw(st.lists(st.sampled_from(texts.COLUMNS), unique=True).map(
        lambda chosen: ["index", *[name for name in chosen if name not in ("index", "uuid")], "uuid"]))
    reading = the_reading(nvidia_csv, texts.as_csv(node, columns, header=header, units=units))
    assert not reading.missing
    assert reading.known["gpu_count"] == len(node.gpus)
    fields = {"index": "index", "name": "model", "uuid": "uuid", "pci.bus_id": "pci", "memory.total": "memory_mib",
              "vbios_version": "vbios", "compute_mode": "compute_mode", "power.limit": "power_limit_w",
              "pcie.link.width.max": "pcie_width_max", "mig.mode.current": "mig"}
    for gpu, own in zip(reading.value.gpus, node.gpus, strict=True):
        for column in columns:
            if column in fields:
                assert getattr(gpu, fields[column]) == getattr(own, fields[column])


@settings(max_examples=60, deadline=None)
@given(node=made(), old=st.booleans())
def test_table(node: Made, old: bool) -> None:
    if old:
        node = Made(node.driver, node.cuda, tuple(
            Gpu(**{**{n: getattr(g, n) for n in g.__slots__}, "mig": "", "mig_devices": ()}) for g in node.gpus))
    reading = the_reading(nvidia_table, texts.as_table(node, old=old))
    whole_names = all(gpu.model for gpu in reading.value.gpus)
    assert not reading.missing
    assert reading.known["gpu_count"] == len(node.gpus)
    assert (reading.value.driver, reading.value.cuda) == (node.driver, node.cuda)
    for gpu, own in zip(reading.value.gpus, node.gpus, strict=True):
        assert (gpu.index, gpu.pci, gpu.memory_mib, gpu.persistence, gpu.mig) == (
            own.index, own.pci, own.memory_mib, own.persistence, own.mig)
        assert gpu.model in (own.model, "")
        assert [(m.index, m.gpu_instance, m.memory_mib) for m in gpu.mig_devices] == [
            (m.index, m.gpu_instance, m.memory_mib) for m in own.mig_devices]
    if not whole_names:
        assert reading.known["slurm_type_autodetect"] is None
        assert reading.known["gres_ok"] == []


@settings(max_examples=60, deadline=None)
@given(node=made())
def test_list_nvlink_and_proc(node: Made) -> None:
    listed = nvidia_list.parse(texts.as_list(node))
    assert [(gpu.index, gpu.model, gpu.uuid) for gpu in listed.gpus] == [(g.index, g.model, g.uuid) for g in node.gpus]
    assert [[(m.index, m.profile, m.uuid) for m in gpu.migs] for gpu in listed.gpus] == [
        [(m.index, m.profile, m.uuid) for m in g.mig_devices] for g in node.gpus]
    assert the_reading(nvidia_list, texts.as_list(node)).known["gpu_count"] == len(node.gpus)
    linked = nvidia_nvlink.parse(texts.as_nvlink(node))
    assert [gpu.active for gpu in linked.gpus] == [sum(map(bool, node.links))] * len(node.gpus)
    assert not nvidia_list.read(Document("text", lines=tuple(texts.as_nvlink(node).split("\n"))))
    told = the_reading(nvidia_proc, texts.as_proc(node)).value
    assert [(gpu.pci, gpu.minor, gpu.uuid) for gpu in told.gpus] == [(g.pci, g.minor, g.uuid) for g in node.gpus]


@settings(max_examples=40, deadline=None)
@given(node=made(), data=st.data())
def test_what_is_cut_is_never_whole(node: Made, data: st.DataObject) -> None:
    """A document that ends early never gives a number of GPUs that it does not hold."""
    name = data.draw(st.sampled_from(("as_xml", "as_q", "as_table")))
    module = {"as_xml": nvidia_smi, "as_q": nvidia_q, "as_table": nvidia_table}[name]
    text = getattr(texts, name)(node)
    last = text.rindex("Processes") if name != "as_xml" else len(text) - 2
    end = data.draw(st.integers(1, last))
    for document in documents("text", text[:end].encode()):
        if document.form not in module.FORMS:
            continue
        with contextlib.suppress(ParseError):
            for reading in module.read(document):
                assert reading.missing
                assert reading.refused
                assert reading.known["gres_ok"] == []


@settings(max_examples=60, deadline=None)
@given(node=made(), data=st.data())
def test_join_is_by_identity_and_not_by_order(node: Made, data: st.DataObject) -> None:
    """-L and nvlink in any order of their lines: what they tell of a GPU stays with it."""
    shuffled = Made(node.driver, node.cuda, tuple(data.draw(st.permutations(node.gpus))), node.links)
    facts = _gpu.GpuFacts(smi=nvidia_smi.parse(texts.as_xml(node)), listed=nvidia_list.parse(texts.as_list(shuffled)),
                          nvlinks=nvidia_nvlink.parse(texts.as_nvlink(shuffled)))
    found = _gpu.join(facts)
    assert [(g.index, g.pci, g.uuid, g.minor, g.mig_devices) for g in found] == [
        (g.index, g.pci, g.uuid, g.minor, g.mig_devices) for g in node.gpus]
    assert {g.nvlinks_active for g in found} == {sum(map(bool, node.links))}


# --- any text ------------------------------------------------------------------------------------------------------


PIECES = st.sampled_from([
    "\n", "\t", " ", "0", ":", "|", ", ", "GPU 0", "<gpu>", "</gpu>", "&a;", "9" * 30, "N/A", "[Unknown Error]", "ERR!",
    "...", "\u202e", "\u0663", "NVRM: ", "Link 3: ", "Current", "GPU0\tX\tOK\n", "<inactive>"])


@st.composite
def damaged(draw: st.DrawFn) -> str:
    node = draw(made(3))
    kinds = (texts.as_xml, texts.as_q, texts.as_table, texts.as_list, texts.as_nvlink, texts.as_proc,
             lambda n: texts.as_csv(n, texts.COLUMNS))
    text = "".join(draw(st.sampled_from(kinds))(node) for _ in range(draw(st.integers(1, 2))))
    for _ in range(draw(st.integers(1, 4))):
        low = draw(st.integers(0, len(text)))
        high = draw(st.integers(low, min(len(text), low + 300)))
        text = text[:low] + draw(st.one_of(PIECES, st.just(text[low:high] * 2), st.text(max_size=8))) + text[high:]
    return text


@settings(max_examples=150, deadline=None)
@given(text=st.one_of(st.text(max_size=300), damaged()))
def test_any_text_is_read_or_refused(text: str) -> None:
    for document in documents("text", text.encode("utf-8", "surrogatepass")):
        for module in READERS:
            if document.form in module.FORMS:
                try:
                    for reading in module.read(document):
                        assert bool(reading.missing) <= bool(reading.refused)
                        assert 1 <= reading.first <= reading.last <= len(document.lines) or not document.lines
                except ParseError as exc:
                    assert "\n" not in str(exc)
                    assert len(str(exc)) < 500


SLOW = {
    "blanks": " " * 40_000, "gpu": "GPU " * 20_000, "headings": "GPU 0000:01:00.0\n    A : b\n" * 400,
    "colons": ":" * 40_000, "commas": "0, " * 20_000, "rows": "0, 1\n" * 20_000, "lost": "Unable to determine " * 5000,
    "links": "GPU 0: A (UUID: GPU-0)\n" + " Link 1: 25 GB/s\n" * 20_000, "names": "GPU 0: " + "a (" * 20_000,
    "header": "index, name\n" + "0, NVIDIA A\n" * 20_000,
    "table": "| NVIDIA-SMI 535.1 Driver Version: 5.1 |\n" + "|" * 40_000,
    "cells": "| NVIDIA-SMI 535.1 |\n" + "| 0 a On | 0000:01:00.0 Off | 0 |\n" * 400, "nvrm": "NVRM: " * 20_000,
    "nvrm lines": "NVRM: The NVIDIA GPU 0000:01:00.0\n" * 10_000, "matrix": "GPU0 GPU1\n" * 10_000,
    "quotes": "> " * 20_000, "errors": "[Unknown Error], 0\n" * 10_000, "xml": "<nvidia_smi_log>" + "<gpu>\n" * 10_000,
    "deep": "<nvidia_smi_log><gpu id='0000:01:00.0'>" + "<a>" * 20_000 + "</a>" * 20_000 + "</gpu></nvidia_smi_log>",
}


@pytest.mark.parametrize("name", sorted(SLOW))
def test_time_is_linear(name: str) -> None:
    document = Document("text", "xml" if name in ("xml", "deep") else "text", tuple(SLOW[name].split("\n")))
    for module in READERS:
        begun = time.process_time()
        with contextlib.suppress(ParseError):
            module.read(document)
        assert time.process_time() - begun < 3, module.__name__
