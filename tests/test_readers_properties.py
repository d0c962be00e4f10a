"""Whatever the text: a reader answers with readings or with ParseError, soon, and what it says can be stored."""

from __future__ import annotations

import contextlib
import json
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcadmin import records
from hpcadmin.documents import documents
from hpcadmin.errors import ParseError
from hpcadmin.facts import Document, read_document, readers

pytestmark = pytest.mark.deep

VOCABULARY = """
GPU0 GPU1 NIC0 X NV18 PIX SYS NODE mlx5_0 CPU(s): Socket(s): Thread(s) NUMA node0 0-3 0,4 node available: cpus: size:
NodeName=a CPUs=4 Sockets=2 Name=gpu File=/dev/nvidia0 SwitchName=s Nodes=n[1-2] CA 'mlx5_0' Port 1: State: Active Rate:
<topology> <object type="PU" os_index="0"/> </topology> <system version="1"> <cpu numaid="0"> <gpu dev="0"/> { } [ ]
Switch 36 "S-0001" # [1] "H-1"[1] 4xNDR Architecture: x86_64 On-line list: 0-127 | Lane 0: +----+ Driver Version: UUID:
Link 25 GB/s <inactive> 0000:1b:00.0 00:1f.2 3D controller [0302]: NVIDIA [10de:2330] ===== LLDP neighbors: Interface:
Machine (503GB total) Package L#0 Core PU P#0 NUMANode HostBridge PCI lldp.eth0.chassis.name=sw1 card0 WARNING -1 999999
HPCADMIN-CAPTURE NVRM: Xid (PCI:0000:1b:00): 79, processor : 0 physical id core siblings distances: 10 21 N/A ERR! MB
"""
WORDS = st.sampled_from(VOCABULARY.split())
TEXTS = st.lists(st.lists(WORDS | st.text(max_size=8), max_size=12).map(" ".join), max_size=25).map("\n".join)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(text=TEXTS, form=st.sampled_from(["text", "xml", "json"]))
def test_any_text_is_met(text: str, form: str) -> None:
    document = Document("x", form, lines=tuple(text.split("\n")))
    for reader in readers():
        if form in reader.forms:
            try:
                found = reader.read(document)
            except ParseError as exc:
                assert "\n" not in str(exc)
                continue
            for reading in found:
                assert 1 <= reading.first <= reading.last <= max(1, len(document.lines))
                json.loads(records.dumps(reading.known))


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=2000))
def test_any_bytes_are_met(data: bytes) -> None:
    for document in documents("x", data):
        read_document(document)


REPEATED = [
    "GPU0 NV18 X ", "<object ", "<", "((((", "[[[[", '{"a":', "GPU 0: ", "a=", "1,", "0-", 'Switch\t36 "S-', "\\\n",
    "| ", "CA 'mlx5_0'\n", "NUMA node0 CPU(s): 0-3\n", "[0-9]", "NodeName=a[1-9] ", "\t", " ", "\x1b[",
    "NVRM: Xid (PCI:", ":::", "-+-",
]


@pytest.mark.parametrize("piece", REPEATED)
def test_time_is_linear_in_the_length(piece: str) -> None:
    """Twice ten times the text must not take a hundred times as long; half a second for 200 kB is no reader's need."""
    text = piece * (200_000 // len(piece))
    for form in ("text", "xml", "json"):
        document = Document("x", form, lines=tuple(text.split("\n")))
        for reader in readers():
            if form not in reader.forms:
                continue
            start = time.process_time()
            with contextlib.suppress(ParseError):
                reader.read(document)
            used = time.process_time() - start
            assert used < 3, f"{reader.name} needs {used:.1f} s for 200 kB of {piece!r}"
