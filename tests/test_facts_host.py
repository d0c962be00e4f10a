"""Texts about the machine itself: dmidecode, lsblk, mounts, chronyc, ipmitool; and what they give to a node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import smbios_dump
from hypothesis import given, settings
from hypothesis import strategies as st
from smbios_dump import Module

from hpcadmin.errors import ParseError
from hpcadmin.facts import Document, _host, bmc, command_line, dimms, disks, dmi, mounts, time_sync
from hpcadmin.facts.bmc import BmcFacts
from hpcadmin.facts.dimms import Dimms
from hpcadmin.facts.real_memory import real_memory_mib
from hpcadmin.facts.slurmd import Slurmd
from hpcadmin.facts.time_sync import TimeSync
from hpcadmin.model import Bmc, Dimm, Node

SAMPLES = Path(__file__).parent / "samples" / "facts"
needs_dmidecode = pytest.mark.skipif(smbios_dump.DMIDECODE is None, reason="no dmidecode on this machine")


def document(text: str, form: str = "text") -> Document:
    return Document("file", form, tuple(text.split("\n")))


def sample(name: str) -> str:
    return (SAMPLES / name).read_text()


NAMES = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", min_size=3, max_size=16)
MODULES = st.lists(st.builds(
    Module, locator=NAMES, bank=NAMES, size_mib=st.sampled_from([0, 512, 16384, 32768, 65536, 131072, 262144]),
    kind=st.sampled_from(sorted(smbios_dump.KINDS)), speed=st.sampled_from([0, 3200, 4800, 6400]),
    configured=st.sampled_from([0, 2933, 4800]), maker=st.just("Micron"), serial=NAMES.map(lambda name: "S1" + name),
    part=NAMES.map(lambda name: "P1" + name)), min_size=1, max_size=12,
    unique_by=(lambda module: module.locator, lambda module: module.bank))


@needs_dmidecode
@settings(max_examples=25, deadline=None)
@given(MODULES)
def test_the_real_dmidecode_goes_round(tmp_path_factory: pytest.TempPathFactory, modules: list[Module]) -> None:
    text = smbios_dump.decoded(tmp_path_factory.getbasetemp(), smbios_dump.memory(modules), "-t", "memory")
    found = dimms.parse(text).modules
    assert len(found) == len(modules)
    for dimm, module in zip(found, modules, strict=True):
        assert dimm.size_mib == (module.size_mib or None)
        if module.size_mib:
            assert (dimm.kind, dimm.serial, dimm.part) == (module.kind, module.serial, module.part)
            assert (dimm.speed_max_mts, dimm.speed_mts) == (module.speed or None, module.configured or None)


@needs_dmidecode
def test_a_whole_dmidecode_with_everything_around(tmp_path: Path) -> None:
    tables = smbios_dump.system("Example Inc", "X1", "S987654X1") + smbios_dump.memory(
        [Module("A1", "P0", 65536, "DDR5", 5600, 4800, "Samsung", "4F2A", "M321")])
    text = smbios_dump.decoded(tmp_path, tables)
    for shape in (text, f"[root@n01 ~]# dmidecode\n{text}[root@n01 ~]# \n", text.replace("\t", ""),
                  "\n".join(f"  {line}" for line in text.split("\n")), text.replace("\t", "    ")):
        system, = dmi.read(document(shape))
        assert system.known["serial"] == "S987654X1"
        assert system.known["bios"] == "2.1a"
        assert system.known["uuid"] == "03020100-0504-0706-0809-0a0b0c0d0e0f"
        memory, = dimms.read(document(shape))
        assert memory.known == {"dimms": 1, "dimm_slots": 1, "dimms_total_mib": 65536}
        assert memory.findings[0].what == "memory module A1 runs at 4800 MT/s of 5600"
        assert memory.missing == ()


def test_a_dmidecode_that_is_cut_off_is_incomplete() -> None:
    text = sample("dimms/16-of-32.txt")
    reading, = dimms.read(document(text[:len(text) // 2]))
    assert "cut off" in reading.missing[0]
    assert reading.known["dimms_total_mib"] is None
    with pytest.raises(ParseError, match="cut off"):
        dimms.parse(text[:len(text) // 2])


def test_lsblk() -> None:
    text = """{"blockdevices": [
      {"name":"nvme0n1", "type":"disk", "size":3840755982336, "model":"A B", "serial":"S1", "rota":false},
      {"name":"loop0", "type":"loop", "size":1000, "model":null}, {"name":"sr0", "type":"rom"}]}"""
    reading, = disks.read(document(text, "json"))
    disk = {"name": "nvme0n1", "model": "A B", "size_bytes": 3840755982336, "serial": "S1"}
    assert reading.known == {"disks": [disk]}
    pairs = 'x\n NAME="sda" TYPE="disk" SIZE="480103981056" MODEL="M 1" SERIAL="" REV="U1" TRAN="sata" ROTA="0"\nprose'
    reading, = disks.read(document(pairs))
    assert (reading.first, reading.last) == (2, 2)
    assert reading.value[0].firmware == "U1"
    assert disks.read(document('{"blockdevices": 5}', "json")) == ()
    with pytest.raises(ParseError):
        disks.read(document('{"blockdevices": [', "json"))


def test_mounts() -> None:
    text = ("$ mount\nsysfs on /sys type sysfs (rw,nosuid)\n"
            "10.0.0.1@o2ib:/scratch on /scratch type lustre (rw,flock)\nnas:/home on /home type nfs4 (rw,vers=4.2)\n")
    reading, = mounts.read(document(text))
    assert [mount["kind"] for mount in reading.known["mounts"]] == ["nfs4", "lustre"]
    reading, = mounts.read(document("# cat /proc/mounts\nproc /proc proc rw 0 0\nfs1 /gpfs gpfs rw 0 0\n"))
    assert reading.known == {"mounts": [{"target": "/gpfs", "source": "fs1", "kind": "gpfs"}]}
    assert mounts.read(document("1 2 3 4 0 0\nnothing on / here\n")) == ()


def test_time() -> None:
    reading, = time_sync.read(document(f"$ chronyc tracking\n{sample('time_sync/chrony-off.txt')}"))
    assert reading.known["synchronised"] is True
    assert reading.findings[0].what == "time: the clock is 12.5 s fast"
    comma = sample("time_sync/chrony-off.txt").replace("12.5", "12,5")
    assert time_sync.read(document(comma))[0].known["offset_s"] == 12.5
    assert time_sync.read(document("Reference ID    : nothing else"))  == ()
    status = "               Local time: x\nSystem clock synchronized: no\n              NTP service: active\n"
    assert time_sync.read(document(status))[0].findings[0].what == "time: systemd, not synchronised"


def test_ipmitool() -> None:
    lines = [line for line in sample("bmc/server.txt").split("\n") if not line.startswith(("ask", "sys", "end"))]
    reading, = bmc.read(document("\n".join(["# ipmitool", *lines])))
    assert reading.known["bmc_address"] == "192.0.2.17"
    assert len(reading.known["psus"]) == 2
    assert {finding.what for finding in reading.findings} == {
        "BMC: PS2 Status: Presence detected, Failure detected", "BMC: FAN2: 300 RPM"}
    assert bmc.read(document("1 | a | b | c\n| 0 | x | y |\n")) == ()


def test_command_line() -> None:
    reading, = command_line.read(document("$ cat /proc/cmdline\nBOOT_IMAGE=/vmlinuz ro iommu=pt\n"))
    assert reading.known == {"command_line": "BOOT_IMAGE=/vmlinuz ro iommu=pt"}


@given(st.integers(64 * 1024, 1 << 34), st.sampled_from([4, 16, 64]))
def test_slurms_memory_is_the_floor_or_one_more(pages_kib: int, page: int) -> None:
    total = pages_kib // page * page
    assert real_memory_mib(total, page) - total // 1024 in (0, 1)


# --- what a node is told --------------------------------------------------------------------------------------------


def fields(**values: Any) -> dict[str, Any]:
    found = _host.fields(values.get)
    Node("n", **found)   # every one is a field of a node
    return found


def test_nothing_known_is_unknown_part_by_part() -> None:
    found = fields()
    assert set(found["unknown"]) == {"disks", "mounts", "command_line", "dimms", "bmc", "settings", "versions",
                                     "time_sync"}
    assert found["problems"] == ()


def test_reasons_are_told() -> None:
    found = fields(dimms=Dimms(why="only root may read it"), bmc=BmcFacts(Bmc(firmware="1"), "not asked"),
                   settings={"SMT": "on", "ACS?": "only root may read it"}, versions={"ucx": "1.17.0", "dcgm": ""})
    assert {"dimms (only root may read it)", "bmc (not asked)", "settings.ACS (only root may read it)",
            "versions.dcgm"} <= set(found["unknown"])
    assert found["settings"] == {"SMT": "on"}
    assert found["versions"] == {"ucx": "1.17.0"}
    assert found["bmc"].firmware == "1"


def test_memory_that_the_kernel_does_not_have_is_a_problem() -> None:
    modules = Dimms(tuple(Dimm(f"A{n}", 65536, "DDR5") for n in range(16)))
    assert fields(dimms=modules, meminfo=1_031_000)["problems"] == ()
    short = fields(dimms=modules, meminfo=900_000)["problems"]
    assert short == ("memory: the modules add up to 1024 GiB, the kernel has 878 GiB",)
    assert fields(dimms=modules, meminfo=900_000, simulated="8xH100")["problems"] == ()


def test_slurmds_word_on_memory_comes_first() -> None:
    assert fields(real_memory=1000)["real_memory_mib"] == 1000
    found = fields(real_memory=1000, slurmd=Slurmd(memory_mib=1001))
    assert (found["real_memory_mib"], found["problems"]) == (1001, ())
    assert fields(real_memory=1000, slurmd=Slurmd(memory_mib=1200))["problems"] == (
        "memory: slurmd -C counts 1200 MiB, the kernel 1000 MiB",)
    assert fields()["real_memory_mib"] is None


def test_a_clock_that_nobody_keeps_is_a_problem() -> None:
    assert fields(time_sync=TimeSync("chrony", False))["problems"] == ("time: chrony, not synchronised",)
    assert "time_sync" in fields(time_sync=TimeSync())["unknown"]


READERS = (bmc, command_line, dimms, disks, dmi, mounts, time_sync)
SHAPES = [path.read_text() for name in ("bmc", "command_line", "dimms", "disks", "dmi", "mounts", "time_sync")
          for path in sorted((SAMPLES / name).glob("*.txt"))]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_document(data: st.DataObject) -> None:
    text = data.draw(st.one_of(st.text(max_size=300), st.sampled_from(SHAPES)))
    low = data.draw(st.integers(0, len(text)))
    high = data.draw(st.integers(low, min(len(text), low + 300)))
    put = data.draw(st.one_of(st.just(""), st.just(text[low:high] * 2), st.text(max_size=8)))
    text = text[:low] + put + text[high:]
    for module in READERS:
        for form in module.FORMS:
            try:
                for reading in module.read(document(text, form)):
                    assert 1 <= reading.first <= reading.last <= len(text.split("\n"))
            except ParseError as exc:
                assert "\n" not in str(exc)
