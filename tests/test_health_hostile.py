"""hpcadmin-health: whatever stands in a file or a tool's output, a reader answers or says that it cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcadmin.health.node import config, cpus, drain, kernel, masks, nvidia, smbios
from hpcadmin.health.node.api import BadConfig, NoAnswer, plain
from hpcadmin.health.node.checks import disk, dmi, gpu_nvlink, gpu_nvlink_errors, gpu_xid, ib, mce, pcie_errors, ping
from hpcadmin.health.node.checks import socket as socket_check
from hpcadmin.health.node.door import read_mounts
from tests.health_machine import smi_xml

TCP = (
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12345 1 0 100 0\n"
)
UNIX = "Num RefCount Protocol Flags Type St Inode Path\n0000: 00000002 00000000 00010000 0001 01 123 /run/x\n"


def xids(text: str) -> None:
    events = [one for one in map(gpu_xid.event, kernel.records(text)) if one]
    gpu_xid.open_events(events, gpu_xid.CODES, [])


def smart(text: str) -> None:
    tree = disk.tree(text, "tool")
    for read in (disk.from_smartctl, disk.from_nvme):
        try:
            read(tree)
        except NoAnswer:
            continue


READERS: list[tuple[str, Callable[[str], Any], str]] = [
    ("smi", lambda text: [gpu.broken() for gpu in nvidia.parse(text, "", 0).gpus], smi_xml(1)),
    ("nvlink", gpu_nvlink.parse, "GPU 0: NVIDIA H100 (UUID: x)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n"),
    (
        "nvlink -e",
        lambda text: gpu_nvlink_errors.parse(text, ["*"]),
        "GPU 0: NVIDIA A100 (UUID: x)\n\t Link 0: Replay Errors: 3\n",
    ),
    ("xid", xids, "3,1,5,-;NVRM: Xid (PCI:0000:9b:00): 79, pid=1, GPU has fallen off the bus.\n"),
    ("mounts", read_mounts, "srv:/a /b nfs rw,hard 0 0\n"),
    ("tcp", lambda text: socket_check.inet(text, "tcp"), TCP),
    ("unix", socket_check.unix, UNIX),
    ("cpus", cpus.numbers, "0-3,8,10-14\n"),
    (
        "ping",
        lambda text: (ping.counts(text), ping.mean_ms(text)),
        "2 packets transmitted, 2 received, 0% packet loss\nrtt min/avg/max/mdev = 0.032/0.041/0.056/0.010 ms\n",
    ),
    ("smart", smart, '{"smart_status": {"passed": true}, "temperature": {"current": 40}, "percent_used": 3}'),
    ("dmi", dmi.decoded, "Handle 0x0001, DMI type 1, 27 bytes\nSystem\n\tFlags:\n\t\tx\n"),
    ("aer", pcie_errors.totalled, "RxErr 3\nTOTAL_ERR_COR 3\n"),
    ("rate", ib.number, "400 Gb/sec (4X NDR)"),
    (
        "mce",
        lambda text: mce.sorted_out(text.splitlines()),
        "mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: bd8000\n",
    ),
    ("scontrol", drain.state_and_reason, "NodeName=a State=IDLE+DRAIN Reason=b c [root@2026]\n"),
    ("plain", plain, "a"),
]


@st.composite
def damaged(draw: st.DrawFn, text: str) -> str:
    """The text with a piece taken out, doubled, or replaced by something."""
    for _ in range(draw(st.integers(1, 3))):
        begin = draw(st.integers(0, len(text)))
        end = draw(st.integers(begin, min(len(text), begin + 40)))
        middle = draw(
            st.one_of(
                st.just(""),
                st.text(max_size=8),
                st.just(text[begin:end] * 2),
                st.sampled_from(["-1", "99999999999999999999", "nan", "1e999", "\n", "\t", ":", "/", "0x"]),
            )
        )
        text = text[:begin] + middle + text[end:]
    return text


@pytest.mark.deep
@pytest.mark.parametrize(("name", "read", "sample"), READERS, ids=[name for name, _, _ in READERS])
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_readers_answer_or_say_that_they_cannot(
    name: str, read: Callable[[str], Any], sample: str, data: st.DataObject
) -> None:
    text = data.draw(st.one_of(damaged(sample), st.text(max_size=60)))
    try:
        read(text)
    except NoAnswer:
        return


@pytest.mark.deep
@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_any_table_of_the_firmware(table: bytes) -> None:
    smbios.dimms(smbios.structures(table))


@pytest.mark.deep
@settings(max_examples=300, deadline=None)
@given(st.text(max_size=30), st.text(max_size=30))
def test_any_mask(mask: str, text: str) -> None:
    try:
        masks.matches_node(mask, text)
    except ValueError:
        assert "/" in mask


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["use", "check", "nodes", "when", "id", "timeout_s", "schema", "checks", "tools", "x"]),
            inner,
            max_size=5,
        )
    ),
    max_leaves=12,
)


@pytest.mark.deep
@settings(max_examples=300, deadline=None)
@given(JSON)
def test_any_configuration(tree: Any) -> None:
    try:
        config.parse(tree)
    except BadConfig:
        return
