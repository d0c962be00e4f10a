"""Layouts and mixtures of perftest's outputs, and the commands that its checks run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

import pytest

from hpcadmin.check import Context, NodeView, Output, ParseError, Reading, Role, Step
from hpcadmin.checklib import perftest
from hpcadmin.registry import load_checks

SAMPLES = Path(__file__).parent / "samples"
RULE = "-" * 87


def sample(name: str) -> str:
    return (SAMPLES / name).read_text(encoding="utf-8")


def read(text: str, program: str = "ib_write_bw") -> Reading:
    return perftest.read(text, perftest.kind_of(program))


def values(reading: Reading) -> dict[tuple[str, str, int | None], float]:
    return {(m.name, m.unit, m.size_bytes): float(m.value) for m in reading.measurements}


CLIENT = sample("ib_send_bw/ok_ib.out")
SERVER = sample("ib_send_bw/ok_ib.server.txt")
ROW = next(line for line in CLIENT.splitlines() if line.startswith(" 65536"))
HEAD = next(line for line in CLIENT.splitlines() if line.startswith(" #bytes"))
OLD = f"""{RULE[:66]}
                    RDMA_Write BW Test
 Number of qps   : 1
 Connection type : RC
 TX depth        : 300
 CQ Moderation   : 50
 Link type       : IB
 Mtu             : 2048
 Inline data is used up to 0 bytes message
 local address: LID 0x06 QPN 0x004a PSN 0x3a3c4 RKey 0x8001b01 VAddr 0x002b8a6f7b5000
 remote address: LID 0x03 QPN 0x004b PSN 0xb1cda RKey 0x10042000 VAddr 0x002ad5c4b8f000
{RULE[:66]}
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]
 65536      5000           3221.12            3220.87
{RULE[:66]}
"""


def test_old_layout_without_device_and_message_rate() -> None:
    reading = read(OLD)
    assert reading.sound and reading.transport == "IB (RC, Link type IB)" and reading.hosts == 2
    assert values(reading)["bw_average", "MB/s", 65536] == 3220.87


@pytest.mark.parametrize("first", [CLIENT, SERVER])
def test_two_sides_are_one_run(first: str) -> None:
    second = SERVER if first is CLIENT else CLIENT
    reading = read(first + second, "ib_send_bw")
    assert reading.sound and reading.runs == 1
    assert values(reading)["bw_average", "Gb/s", 65536] == 197.62      # the client's


@pytest.mark.parametrize("marks", [("", ""), ("[1,0]<stdout>: ", "[1,1]<stdout>: "), ("0: ", "1: ")])
def test_two_sides_line_by_line(marks: tuple[str, str]) -> None:
    server = sample("ib_read_bw/ok_roce_two_rails.server.txt").splitlines()
    client = sample("ib_read_bw/ok_roce_two_rails.out").splitlines()
    mixed = [mark + line for pair in zip_longest(server, client)
             for mark, line in zip(marks, pair, strict=True) if line is not None]
    reading = read("\n".join(mixed) + "\n", "ib_read_bw")
    assert reading.sound and (reading.runs, reading.hosts) == (1, 2), reading.problems
    assert values(reading)["bw_average", "Gb/s", 65536] == 91.6


@pytest.mark.parametrize(("name", "unit"), [("ib_send_bw/ok_ib", "Gb/s"), ("ib_write_lat/ok_ib", "us")])
def test_two_sides_that_differ_line_by_line(name: str, unit: str) -> None:
    server, client = sample(f"{name}.server.txt"), sample(f"{name}.out")
    mixed = "".join(line + "\n" for pair in zip_longest(server.splitlines(), client.splitlines())
                    for line in pair if line is not None)
    program = name.split("/", maxsplit=1)[0]
    reading = read(mixed, program)
    assert not reading.sound and reading.usable and "the two sides say" in " ".join(reading.problems)
    assert {m.unit for m in reading.measurements} >= {unit}
    far = mixed.replace("197.61 ", "97.61 ").replace("0.376912", "0.186177").replace("1.12   ", "1.62   ", 1)
    assert far != mixed and not read(far, program).usable


def test_a_server_without_a_client() -> None:
    assert "waits for a client" in " ".join(read(SERVER[:SERVER.index(RULE)]).problems)


def test_several_runs_and_one_run_twice() -> None:
    other = CLIENT.replace("0x0127", "0x0128")
    reading = read(CLIENT + other, "ib_send_bw")
    assert not reading.sound and reading.usable and reading.runs == 2
    assert {m.run for m in reading.measurements} == {1, 2}
    again = read(CLIENT + CLIENT, "ib_send_bw")
    assert not again.usable and "one output stands there twice" in again.problems


def test_a_run_without_an_end() -> None:
    rows = "".join(ROW.replace("1415430", str(1415430 * n)) + "\n" for n in (2, 3))
    reading = read(CLIENT.replace(ROW + "\n", ROW + "\n" + rows).removesuffix(RULE + "\n"), "ib_send_bw")
    assert not reading.sound and reading.usable and any("without an end" in p for p in reading.problems)


def test_both_ways_with_each_way_beside() -> None:
    part = f"{RULE}\n{HEAD}\n 65536      1415430    0.00   98.81    0.188466\n"
    both = CLIENT.replace("Send BW", "Send Bidirectional BW")
    text = f"{both}\n Local results: \n{part}{RULE}\n\n Remote results: \n"
    reading = read(f"{text}{part}{RULE}\n", "ib_send_bw")
    assert reading.sound and {m.mode for m in reading.measurements} == {"bidirectional"}
    assert values(reading)["bw_average", "Gb/s", 65536] == 197.62
    assert any("not closed" in p for p in read(text + part, "ib_send_bw").problems)


def test_two_ports_and_the_use_of_the_cpu() -> None:
    more = " BW Port1[Gb/sec]   MsgRate Port1[Mpps]   BW Port2[Gb/sec]   MsgRate Port2[Mpps]    CPU_Util[%]"
    text = CLIENT.replace(HEAD, HEAD + more).replace(ROW, ROW + " 98.81 0.188466 98.81 0.188466  3.21")
    assert read(text, "ib_send_bw").sound
    assert not read(text.replace("  3.21", ""), "ib_send_bw").usable


def report(**results: float | str) -> str:
    info = {"test": "Send_BW_Test", "Device": "mlx5_0", "Number_of_qps": 1, "Transport_type": "IB",
            "Connection_type": "RC", "Mtu": 4096, "Link_type": "Ethernet", "GID_index": 3, "rdma_cm_QPs": "OFF"}
    plain = {"MsgSize": 65536, "n_iterations": 5000, "BW_peak": 0.0, "BW_average": 92.16, "MsgRate": 0.175784}
    return json.dumps({"test_info": info, "results": {**plain, **results}}, indent=1)


@pytest.mark.parametrize(("average", "unit"), [(92.16, "Gb/s"), (10986.5, "MiB/s")])
def test_json_report(average: float, unit: str) -> None:
    reading = read(report(BW_average=average), "ib_send_bw")
    assert reading.sound and reading.transport == "RoCE (device mlx5_0, RC, Link type Ethernet, GID index 3)"
    assert values(reading)["bw_average", unit, 65536] == average


@pytest.mark.parametrize("text", [
    report(BW_average=50.0), report(MsgRate="nan"), report(BW_average="garbage"), report()[:-40],
    report(n_iterations=0), report(MsgRate=0), report().replace("MsgRate", "Other"),
    report().replace("Send_BW", "RDMA_Read_BW")])
def test_json_reports_that_are_damaged(text: str) -> None:
    reading = read(text, "ib_send_bw")
    assert not reading.usable and not reading.measurements and reading.problems


def test_json_report_of_times() -> None:
    times = {"t_min": 1.61, "t_max": 4.19, "t_typical": 1.68, "t_avg": 1.7, "t_stdev": 0.1, "percentile_99": 2.0,
             "percentile_99.9": 4.19, "MsgSize": 2, "n_iterations": 1000}
    text = json.dumps({"test_info": {**json.loads(report())["test_info"], "test": "Send_Latency_Test"},
                       "results": times})
    reading = read(text, "ib_send_lat")
    assert reading.sound and values(reading)["p99_9", "us", 2] == 4.19
    assert not read(text.replace("4.19", "1.19"), "ib_send_lat").usable


@pytest.mark.parametrize(("line", "usable"), [
    ("Error: BW result is below bw limit", True), ("VALIDATION: FAILED (client) - 3 error(s), first at QP 0", False),
    (" Test exited with Error", False), (" Problems with warm up", False), ("VALIDATION: ERROR - not x", False),
    ("Received 10 times ADDR_ERROR", False), ("poll CQ failed -2", False), ("cuMemAlloc error=2", False),
    (" Completion with error at client", False), (" Couldn't read remote address", False),
    (" Failed status 13: wr_id 0 syndrom 0x81", False)])
def test_lines_that_tell(line: str, usable: bool) -> None:
    reading = read(f"{CLIENT}{line}\n", "ib_send_bw")
    assert not reading.sound and reading.usable is usable
    assert any(line.strip() in problem for problem in reading.problems)


def test_both_sides_by_host() -> None:
    server = CLIENT.replace("local", "X").replace("remote", "local").replace("X", "remote")
    text = "".join(f"{host}: {line}\n" for host, side in (("n1", CLIENT), ("n2", server)) for line in side.splitlines())
    reading = read(text, "ib_send_bw")
    assert reading.sound and values(reading) == values(read(CLIENT, "ib_send_bw")) and reading.hosts == 2
    assert not read(f"{text}srun: error: n2: task 1: Exited with exit code 1\n", "ib_send_bw").usable


def test_ports_with_the_default_gid_are_told_apart_by_lid() -> None:
    gid = " GID: 254:128:00:00:00:00:00:00:00:00:00:00:00:00:00:00\n"
    lines = [line + gid if " address:" in line else line for line in CLIENT.splitlines(keepends=True)]
    assert read("".join(lines), "ib_send_bw").hosts == read(CLIENT, "ib_send_bw").hosts == 2


def test_a_lower_mtu_is_told_and_no_fault() -> None:
    reading = read(f" Requested mtu is higher than active mtu \n Changing to active mtu - 3\n{CLIENT}", "ib_send_bw")
    assert reading.sound and any("Requested mtu is higher" in note for note in reading.notes)


def test_data_that_were_validated() -> None:
    found = read(f"{CLIENT}VALIDATION: PASSED (client) - 5000 chunks, 327680000 bytes\n", "ib_send_bw")
    assert found.sound and (found.validated, found.wrong_values) == (True, 0)
    found = read(f"{CLIENT}VALIDATION: FAILED - 3 error(s), first at QP 0, Chunk 1, Offset 64\n", "ib_send_bw")
    assert not found.usable and (found.validated, found.wrong_values) == (True, 3)
    found = read(f"{CLIENT}VALIDATION: WARNING - no data validated\n", "ib_send_bw")
    assert not found.usable and found.validated is None


@pytest.mark.parametrize("label", [
    "2025-01-06T10:00:00.123456Z ", "2025-01-06 10:00:00,123 process L0458 DEBUG| [stdout] ",
    "Jan  6 10:00:00 n1 ib_send_bw[77]: ", "n1.cluster: ",
    "Mon Jan  6 10:00:00 2025[1,0]<stdout>: ", "[prterun-n1-77@1,0]<stdout>: "])
def test_labels_of_loggers_and_launchers(label: str) -> None:
    text = "".join(f"{label}{line}\n" for line in CLIENT.splitlines())
    assert values(read(text, "ib_send_bw")) == values(read(CLIENT, "ib_send_bw")) and read(text, "ib_send_bw").sound


def test_a_row_that_the_text_ends_within() -> None:
    table = CLIENT.splitlines()
    row = next(n for n, line in enumerate(table) if line.strip().startswith("#bytes")) + 1
    reading = read("\n".join([*table[:row], " ".join(table[row].split()[:3])]) + "\n", "ib_send_bw")
    assert not reading.sound and not reading.measurements and any("cut off" in why for why in reading.problems)


@pytest.mark.parametrize("line", ["Parser function exited with Error", "bash: ib_send_bw: command not found",
                                  " Please choose mtu from {256,512,1024,2048,4096}", "ibv_create_qp failed: Cannot x"])
def test_an_output_without_a_table_is_quoted(line: str) -> None:
    assert any(line.strip() in why for why in read(f"{line}\n", "ib_send_bw").problems)


def test_loopback_is_said() -> None:
    reading = read(CLIENT.replace("0x2b", "0x1a"), "ib_send_bw")
    assert reading.sound and reading.hosts == 1 and any(note.startswith("loopback") for note in reading.notes)
    found = load_checks()["ib_send_bw"].parse([Output(CLIENT.replace("0x2b", "0x1a"))], Context())
    assert all("loopback" in " ".join(m.warnings) for m in found if m.key)


def test_a_wrapper_that_lost_pairs() -> None:
    lines = ["The prefix of cmd to run is: ib_write_bw -s 8388608 -d mlx5_0", "config:", "0,1", "1,0;0,1", "config end",
             "results from rank ROOT_RANK:", "23452.6,", "22212.6,-1"]
    reading = read("\n".join(lines) + "\n")
    assert not reading.usable and "1 of 3 pairs failed (-1)" in " ".join(reading.problems)
    whole = read("\n".join(lines).replace("-1", "22433") + "\n")
    assert whole.usable and [m.size_bytes for m in whole.measurements] == [8388608] * 3
    assert not read("\n".join(lines), "ib_read_bw").measurements


NODES = tuple(NodeView(name, address=f"10.0.0.{n}", rdma_devices=("mlx5_0", "mlx5_1"))
              for n, name in enumerate(("n1", "n2"), 1))


def steps(name: str, version: str = "Version: 6.06", **params: str | int) -> Sequence[Step]:
    check = load_checks()[name]
    return check.steps(Context(nodes=NODES, params={**check.params, **params}, tools={name: f"/usr/bin/{name}"},
                               tool_version=version))


def test_commands() -> None:
    server, client = steps("ib_send_bw", device="mlx5_1,mlx5_2", gid_index="3", qps=4, ib_port=2, gpu="cuda:1")
    assert (server.role, server.nodes, client.role, client.nodes) == (Role.SERVER, ("n1",), Role.CLIENT, ("n2",))
    assert " ".join(server.argv) == (
        "/usr/bin/ib_send_bw -d mlx5_1 -x 3 -i 2 -s 65536 -q 4 -D 5 -F --report_gbits --use_cuda=1 -p 18500")
    assert client.argv[2] == "mlx5_2" and client.argv[-1] == "10.0.0.1"
    assert server.ready is not None and server.ready.port == 18500
    assert " ".join(steps("ib_read_lat")[0].argv) == "/usr/bin/ib_read_lat -d mlx5_0 -s 2 -n 5000 -F -p 18500"
    assert "-s" not in steps("ib_atomic_bw")[0].argv


@pytest.mark.parametrize(("version", "has", "lacks"), [
    ("Version: 5.60", "--use_cuda", "--use_cuda=0"), ("", "--report_gbits", "--use_cuda"),
    ("Version: 1.3", "--use_cuda", "--report_gbits")])
def test_options_by_version(version: str, has: str, lacks: str) -> None:
    argv = steps("ib_write_bw", version, gpu="cuda:0")[0].argv
    assert has in argv and lacks not in argv


def test_a_head_that_is_cut_is_enough_for_a_file_and_not_for_a_run() -> None:
    check, text = load_checks()["ib_send_bw"], CLIENT[CLIENT.index(" local address"):]
    found = check.parse([Output(text)], Context())
    assert all(m.warnings for m in found if m.key)
    with pytest.raises(ParseError, match="title is missing"):
        check.parse([Output(SERVER, role=Role.SERVER), Output(text, role=Role.CLIENT)],
                    Context(nodes=NODES, params=check.params))


def test_the_side_that_failed_tells_why_and_not_the_one_that_waited() -> None:
    waiting = "* Waiting for client to connect... *\n"
    down = " Port number 1 state is Down\n Couldn't get context for the device\n"
    context = Context(nodes=(NodeView("n1"), NodeView("n2")))
    for server, client in (((waiting, None), (down, 1)), ((down, 1), (waiting, None))):
        outputs = [Output(text, exit_status=status, role=role, node=node) for (text, status), role, node in
                   ((server, Role.SERVER, "n1"), (client, Role.CLIENT, "n2"))]
        with pytest.raises(ParseError, match=r"exit status 1: (Port number 1 state is Down|Couldn't get)"):
            load_checks()["ib_write_bw"].parse(outputs, context)
