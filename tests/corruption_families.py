"""What outputs of four families of tools look like, for damage to them: nccl-tests, OSU and MPI, perftest, nvidia-smi.

Cases are the sound samples of our checks, and sound captures where the corpus lies beside the project.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

from check_samples import Sample, all_samples, sound_samples
from corruption import Case, Family, Texts, spread

from hpcadmin.check import Check, Context, Output, Role
from hpcadmin.registry import load_checks

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus" / "outputs"


@cache
def checks() -> dict[str, Check]:
    return load_checks()


def samples_of(*prefixes: str) -> Iterator[Sample]:
    return (s for prefix in prefixes for s in sound_samples(f"{prefix}*") if s.path.stem.startswith("ok"))


def case_of(sample: Sample) -> Case:
    name = f"{sample.check}/{sample.path.stem}"
    return Case(name, checks()[sample.check], tuple(sample.outputs()), sample.context)


def captures(folder: str, files: dict[str, str]) -> Iterator[Case]:
    """Captured files (name -> check) that are there."""
    for name, check in files.items():
        path = CORPUS / folder / name
        if path.is_file():
            yield Case(f"{folder}/{name}", checks()[check], (Output(path.read_text()),), Context())


def replaced(text: str, *pairs: tuple[str, str]) -> Texts:
    """The text with each of these words changed, in its first place and in all; none for a word that is not there."""
    for old, new in pairs:
        if old in text:
            yield text.replace(old, new, 1)
            yield text.replace(old, new)


def without_lines(text: str, pattern: str) -> Texts:
    """The text without one of the matching lines, each in turn."""
    lines = text.splitlines(keepends=True)
    for n, line in enumerate(lines):
        if re.match(pattern, line):
            yield "".join(lines[:n] + lines[n + 1:])


def doubled_lines(text: str, pattern: str) -> Texts:
    lines = text.splitlines(keepends=True)
    for n, line in enumerate(lines):
        if re.match(pattern, line):
            yield "".join([*lines[:n + 1], *lines[n:]])


def columns_of(text: str, head: str, words: str) -> Iterator[tuple[str, str]]:
    """(removed or renamed, text) for each word of the head's line that names a column."""
    for place in re.finditer(words, head):
        at = text.index(head) + place.start()
        yield "removed", text[:at] + text[at + len(place[0]):]
        yield "renamed", text[:at] + "Another[x]"[:max(5, len(place[0]))] + text[at + len(place[0]):]


# --- nccl-tests -----------------------------------------------------------------------------------------------------

NCCL_ROW = re.compile(r"(?:\S*<stdout>: ?)? *\d+ +\d+ +[a-z]\w+ .*$")
NCCL_CELL = re.compile(r"(?<![\w.:@,-])\d[\d.]*(?:e[+-]\d+)?(?![\w.:,@-])")
NCCL_RANK = r".*# +Rank +\d"
NCCL_CAPTURED = {
    "allreduce_sb_a100_old.log": "nccl_allreduce", "allgather_sb_a100_old.log": "nccl_allgather",
    "alltoall_sb_a100_old.log": "nccl_alltoall", "allreduce_gcm_8rank_a100.txt": "nccl_allreduce"}


@cache
def nccl_cases() -> tuple[Case, ...]:
    found = []
    for sample in samples_of("nccl_"):
        case = case_of(sample)
        if any(NCCL_ROW.match(line) for line in case.text.splitlines()):
            found.append(replace(case, outputs=tuple(replace(o, role=Role.RANKS) for o in case.outputs)))
    return (*found, *captures("nccl", NCCL_CAPTURED))


def nccl_head(text: str) -> str:
    found = re.search(r"(?m)# +((?:size|bytes) .*busbw.*)$", text)
    assert found
    return found[1]


def nccl_columns(case: Case) -> Iterator[tuple[str, str]]:
    return columns_of(case.text, nccl_head(case.text), r"#?\b(?!redop|root|timestamp)[A-Za-z]+")


def nccl_units(case: Case) -> Texts:
    return replaced(case.text, ("(us)", "(ms)"), ("(GB/s)", "(Gb/s)"), ("(GB/s)", "(MB/s)"), ("(B)", "(KB)"),
                    ("(us)", ""))


def nccl_wrong(case: Case) -> Texts:
    text = case.text
    for row in spread(list(re.finditer(f"(?m)^{NCCL_ROW.pattern}", text)), 12):
        for cell in NCCL_CELL.finditer(row[0]):
            if cell[0] in ("0", "0e+00", "5e-07") and cell.start() > 60:
                at = row.start() + cell.start()
                yield from (text[:at] + wrong + text[row.start() + cell.end():]
                            for wrong in ("1", "2.68435e+08", "N/A"))
    yield from (re.sub(r"(values\s*: )0 OK", rf"\g<1>{new}", text)
                for new in ("1 FAILED", "108 FAILED", "0 FAILED", "3 OK", "FAILED"))
    yield text.replace("validation: 1", "validation: 0")


def nccl_ranks(case: Case) -> Texts:
    yield from without_lines(case.text, NCCL_RANK)
    yield from doubled_lines(case.text, NCCL_RANK)


def nccl_hosts(case: Case) -> Texts:
    found = re.findall(rf"(?m)^{NCCL_RANK}.* on +(\S+) device", case.text)
    if len(set(found)) > 1 and case.context.nodes:
        yield case.text.replace(f"{found[-1]} device", "stranger device")
        yield re.sub(rf"(?m)^{NCCL_RANK}.* on +{re.escape(found[-1])} device.*\n", "", case.text)


def nccl_transports(case: Case) -> Texts:
    """Sockets where the nodes have RDMA: in place of what it says, or said beside it."""
    if case.context.nodes and all(n.rdma_devices for n in case.context.nodes):
        yield re.sub(r"via NET/IB/\d+(?:/GDRDMA)?", "via NET/Socket/0", case.text)
        yield "gpu01:4711:4720 [0] NCCL INFO NET/Socket : Using [0]eth0:10.1.2.3<0>\n" \
              "gpu01:4711:4720 [0] NCCL INFO Using network Socket\n" + re.sub(r"(?m)^.*NCCL INFO.*\n", "", case.text)


def nccl_failed(case: Case) -> str:
    return case.text.replace("0 OK", "4 FAILED")


def nccl_more(case: Case) -> Iterator[tuple[str, str]]:
    for words in ("# nThread", "# Using devices", "# Out of bounds", "# Avg bus"):
        yield "line dropped", re.sub(rf"(?m)^.*{words}.*\n", "", case.text)
    yield "line damaged", re.sub(r"(?m)maxBytes (\d+)", "maxBytes", case.text)


def nccl_free(kind: str, _: str, row: str, cell: re.Match[str]) -> bool:
    """Errors of old layouts (5e-07) may be 0; of what single iterations took no more than the shape is looked at."""
    return kind == "zero" and ("e-" in cell[0] or len(row.split()) > 16 or float(cell[0]) < 0.05)


NCCL = Family(
    "nccl-tests", nccl_cases, NCCL_ROW, NCCL_CELL, columns=nccl_columns, units=nccl_units, wrong=nccl_wrong,
    ranks=nccl_ranks, hosts=nccl_hosts, transports=nccl_transports, failed=nccl_failed, more=nccl_more, free=nccl_free)


# --- OSU and our own MPI programs -----------------------------------------------------------------------------------

OSU_CAPTURED = {
    "osu_latency_alaska_ib-gcc9-impi-verbs.out": "osu_latency", "osu_bw_alaska_ib-gcc9-openmpi4-ucx.out": "osu_bw",
    "osu_bibw_alaska_roce-gcc9-openmpi4-ucx.out": "osu_bibw",
    "osu_mbw_mr_16_alaska_ib-gcc9-impi-verbs.out": "osu_mbw_mr",
    "osu_allreduce_csd3_cclake-ib-gcc9-ompi3-ucx.out": "osu_allreduce", "barrier_pkb_v571_impi.txt": "osu_barrier",
    "osu_alltoall_csd3_cclake-roce-gcc9-ompi3-ucx.out": "osu_alltoall", "ibarrier_pkb_v571_impi.txt": "osu_ibarrier",
    "osu_allgather_alaska_roce-gcc9-impi-verbs.out": "osu_allgather"}
# Lines without which an output is not whole. Others (how often, which data type) may be missing.
OSU_NEEDED = re.compile(r"# OSU |# Size|# \[ pairs|# Avg|\W*Overall\(us\)|\[0\] MPI startup\(\): \d|rank \d|# ring|"
                        r"# sum|# end|# rank|# hpcadmin|# bytes| *\d+(\.\d\d)? +[\d.]")
OSU_ROW = re.compile(r" *\d+(?:\.\d\d)? +[\d.]|rank \d+ of")
OSU_CELL = re.compile(r"(?<![^\s=+])-?\d[\d.]*(?!\S)")
WITH_RDMA = ("osu_bw/ok_v5", "osu_allreduce/ok_v7_4_captured", "mpi_hello/ok_4_nodes",
             "mpi_pingpong/ok_lab_two_pairs_at_once")
UCX = "[1733000000.1] [{host}:42:0]   ucp_worker.c:1855 UCX  INFO  ep_cfg[1]: tag({lane})\n"


@cache
def osu_cases() -> tuple[Case, ...]:
    """Each sample as it ran, and by itself, without its run."""
    found = []
    for sample in samples_of("osu_", "mpi_"):
        if "warnings" in sample.path.stem:
            continue
        case = case_of(sample)
        found.append(case)
        if case.name in WITH_RDMA:
            found.append(with_rdma(case))
        if sample.check.startswith("osu_") and "limited" not in case.name and case.context.nodes:
            found.append(replace(case, name=f"{case.name} alone", context=Context()))
    return (*found, *captures("osu", OSU_CAPTURED))


def with_rdma(case: Case) -> Case:
    """The case on nodes that have RDMA devices, so that sockets would be a fault; UCX tells that it used them."""
    nodes = tuple(replace(n, rdma_devices=("mlx5_0",)) for n in case.context.nodes)
    said = "".join(UCX.format(host=n.name, lane="rc_mlx5/mlx5_0:1") for n in nodes)
    outputs = tuple(replace(o, text=said + o.text) for o in case.outputs)
    return replace(case, name=f"{case.name} with RDMA", outputs=outputs, context=replace(case.context, nodes=nodes))


def osu_head(text: str) -> str:
    return next((line for line in text.splitlines() if re.match(r"# Size|# Avg|\W*Overall\(us\)|# bytes", line)), "")


def osu_columns(case: Case) -> Iterator[tuple[str, str]]:
    words = (r"\w+ Latency ?\(us\)|Latency \(us\)|Bandwidth \(MB/s\)|\bMB/s|Messages/s|[\w. ]+\(us\)|Overlap\(%\)|"
             r"Validation|Iterations|Size|bytes|samples|latency\w+|bandwidth\w+/s")
    yield from columns_of(case.text, osu_head(case.text), words) if osu_head(case.text) else ()
    if case.check.name == "mpi_hello":
        yield from (("removed" if not new else "renamed", case.text.replace(old, new, 1))
                    for old in ("node=", "procid=", "pid=", "clock=", "cpus=") for new in ("", f"x{old}"))


def osu_units(case: Case) -> Texts:
    head, pairs = osu_head(case.text), (("(us)", "(ms)"), ("(us)", "(s)"), ("MB/s", "GB/s"), ("MB/s", "MiB/s"),
                                        ("MB/s", "Mb/s"), ("_us", "_ms"))
    for changed in replaced(head, *pairs):
        yield case.text.replace(head, changed)


def osu_wrong(case: Case) -> Texts:
    yield from (case.text[:m.start()] + "Fail" + case.text[m.end():] for m in re.finditer(r"Pass", case.text))
    yield "DATA VALIDATION ERROR: ./osu_bw exited with status 1 on message size 2048.\n" + case.text
    if case.check.name == "mpi_pingpong":
        yield "# error: message of 4096 bytes came back changed\n" + case.text
    yield from replaced(case.text, ("# ring right", "# ring wrong"), ("# sum right", "# sum wrong"))


def osu_ranks(case: Case) -> Texts:
    yield from without_lines(case.text, r"rank \d|# rank \d")
    yield from doubled_lines(case.text, r"rank \d|# rank \d")
    if osu_two(case):       # OSU tells of ranks only where the launcher does: who is missing then must be noticed
        yield "[n1:9] MCW rank 0 bound to socket 0[core 0[hwt 0]]: [B/.]\n" + case.text


def osu_two(case: Case) -> bool:
    return case.check.name.startswith("osu_") and case.check.scope.value == "pair"


def osu_hosts(case: Case) -> Texts:
    names = [n.name for n in case.context.nodes]
    for name in names[:2]:
        yield from replaced(case.text, (f"node={name} ", "node=stranger "))
        yield re.sub(rf"(?m)^.*node={name} .*\n", "", case.text)
    if names and osu_two(case):
        yield f"Point-to-point pairwise experiments for nodes {names[0]} stranger\n" + case.text
        yield f"Data for node: {names[0]}\tNum slots: 64\tNum procs: 2\n" + case.text


def osu_transports(case: Case) -> Texts:
    """Sockets, said by UCX, or nothing said: no PASS where the nodes have RDMA, else no matter."""
    if case.name.endswith("with RDMA"):
        yield from replaced(case.text, ("rc_mlx5/mlx5_0:1", "tcp/eth0"))
        if case.check.name != "mpi_hello":
            yield re.sub(r"(?m)^.*ep_cfg.*\n", "", case.text)


def osu_failed(case: Case) -> str:
    return case.text[:len(case.text) * 3 // 4] + "\nsrun: error: node01: task 0: Segmentation fault (core dumped)\n"


def osu_more(case: Case) -> Iterator[tuple[str, str]]:
    text = case.text
    yield from (("line dropped", changed) for changed in without_lines(text, OSU_NEEDED.pattern))
    title = next((line for line in text.splitlines() if line.startswith("# OSU")), "")
    if title:
        for other in ("Reduce Latency", "Put Bandwidth", "Latency Multi"):
            yield "title changed", text.replace(title, f"# OSU MPI {other} Test v5.9")
        yield "title changed", text.replace(title, re.sub(r"v[\d.]+$", "v31.0", title))


def osu_free(kind: str, text: str, row: str, cell: re.Match[str]) -> bool:
    """Of a collective that does not block, what computing hides and what single calls took may be 0."""
    return kind == "zero" and "Overlap(%)" in text and len(row[:cell.start()].split()) >= 1


OSU = Family(
    "OSU and MPI", osu_cases, OSU_ROW, OSU_CELL, OSU_NEEDED, columns=osu_columns, units=osu_units, wrong=osu_wrong,
    ranks=osu_ranks, hosts=osu_hosts, transports=osu_transports, failed=osu_failed, more=osu_more, free=osu_free)


# --- perftest -------------------------------------------------------------------------------------------------------

PERFTEST_CAPTURED = {
    "atomic_bw_roce_rdmacm_client.txt": "ib_atomic_bw", "read_bw_roce_rdmacm_client.txt": "ib_read_bw",
    "send_bw_roce_rdmacm_client.txt": "ib_send_bw", "read_lat_roce_rdmacm_client.txt": "ib_read_lat",
    "send_lat_roce_rdmacm_client.txt": "ib_send_lat", "atomic_lat_roce_rdmacm_client.txt": "ib_atomic_lat"}
PERFTEST_REMARK = re.compile(r".*CPU Frequency is not max\.\n")       # of a clock that is not at its highest: a WARN
PERFTEST_ROW = re.compile(r" *\d+ +\d+ +[\d.]+ ")
PERFTEST_NEEDED = (r" ?(?:Device|Number of qps|Connection type|Mtu|Link type| *(?:Send|RDMA|Atomic)\S*.* Test$"
                   r"| *Dual-port|(?:local|remote) address|GID:)| *#bytes")

PERFTEST_ERRORS = ("\n Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\n",
                   " Failed to modify QP 15 to RTR\n", "Couldn't connect to n1:18515\n")


@cache
def perftest_cases() -> tuple[Case, ...]:
    found = [case_of(sample) for sample in samples_of("ib_") if "links" not in sample.check]
    for case in captures("perftest", PERFTEST_CAPTURED):
        found.append(replace(case, outputs=(replace(case.outputs[0], text=PERFTEST_REMARK.sub("", case.text)),)))
    return tuple(found)


def perftest_head(text: str) -> str:
    return next(line for line in text.splitlines() if line.strip().startswith("#bytes"))


def perftest_columns(case: Case) -> Iterator[tuple[str, str]]:
    words = r"#\w+|BW \w+\[\S+\]|MsgRate\S+|t_\w+\[\S+\]|99\.?9?% percentile\S+|tps average"
    return columns_of(case.text, perftest_head(case.text), words)


def perftest_units(case: Case) -> Texts:
    head = perftest_head(case.text)
    for old, new in (("Gb/sec", "MB/sec"), ("MB/sec", "Gb/sec"), ("MiB/sec", "Gb/sec"), ("usec", "nsec")):
        yield from (case.text.replace(head, changed) for changed in replaced(head, (f"[{old}]", f"[{new}]")))


def perftest_hosts(case: Case) -> Texts:
    text = case.text
    yield re.sub(r"remote address.*\n", "\n", text)
    yield re.sub(r"local address.*\n", "\n", text)
    if case.context.nodes and re.search(r"Link type +: IB", text):
        yield re.sub(r"(local address: LID )\S+", r"\g<1>0xffff", text, count=1)
    if case.context.nodes:          # the ends are told by both sides: another one is of another run
        yield re.sub(r"(remote address: LID \S+ QPN )\S+", r"\g<1>0xabcd", text)
        yield re.sub(r"(remote address: .*PSN )\S+", r"\g<1>0x123456", text)


def perftest_transports(case: Case) -> Texts:
    other = "Ethernet" if re.search(r"Link type +: IB", case.text) else "IB"
    yield from (re.sub(r"(Link type +: )\w+", rf"\g<1>{link}", case.text) for link in (other, "Unknown", ""))
    yield re.sub(r"(?m)^.*Link type.*\n", "", case.text)


def perftest_failed(case: Case) -> str:
    return case.text[:len(case.text) // 2] + PERFTEST_ERRORS[0]


def perftest_more(case: Case) -> Iterator[tuple[str, str]]:
    text = case.text
    lines = text.splitlines(keepends=True)
    yield from (("line dropped", changed) for changed in without_lines(text, PERFTEST_NEEDED))
    yield "title changed", re.sub(r"(?m)^ +\S.* Test$", " " * 20 + "Recv BW Test", text)
    for error in PERFTEST_ERRORS:
        yield from (("error line of perftest", "".join([*lines[:n], error, *lines[n:]])) for n in (0, 5, len(lines)))


def perftest_free(kind: str, _: str, row: str, cell: re.Match[str]) -> bool:
    """A peak that was not measured is told as 0; a deviation may be 0."""
    words = row.split()
    place = len(row[:cell.start()].split())
    return kind == "zero" and place == (2 if len(words) <= 5 else 6)


PERFTEST = Family(
    "perftest", perftest_cases, PERFTEST_ROW, columns=perftest_columns, units=perftest_units, hosts=perftest_hosts,
    transports=perftest_transports, failed=perftest_failed, more=perftest_more, free=perftest_free, lacks={
        "marked wrong": "perftest does not check the data", "rank missing": "its two ends are the hosts"})


# --- nvidia-smi -----------------------------------------------------------------------------------------------------

# Tags whose value decides nothing here: which they are is said, so that no other is left out by accident.
# Of pending_blacklist and pending_retirement, two names of one fact, one is enough.
SMI_FREE = (
    r"\s*<(?:/|\?xml|!DOCTYPE|timestamp|cuda_version|driver_version|product_|serial|"
    r"pci_(?:bus|device|domain|bus_id|device_id|sub_system_id)>|device_current_link_gen|max_device_link_gen|"
    r"max_host_link_gen|bridge_chip|replay_|tx_util|rx_util|atomic|"
    r"clocks_event_reason_(?:gpu_idle|applications|sync|display|sw_power_cap)|sram_(?!un)|dram_corr|retired_pagelist|"
    r"pending_blacklist|pending_retirement|remapped_row_corr|power_state|memory_temp|gpu_target|gpu_temp_max|average_|"
    r"instant_|requested_|min_power|max_power|sm_clock|mem_clock|video_clock|cliqueId|clusterUuid|"
    r"row_remapper_histogram_(?:max|high|partial|low))")
SMI_ROW = re.compile(rf"(?!{SMI_FREE})\t+<\w+>[^<]+</\w+>|GPU \d|\t Link \d")
SMI_CELL = re.compile(r"(?<=>)[\d.]+(?=[ <])|(?<=: )\d[\d.]*")
SMI_WORDS = ("[Unknown Error]", "ERR!", "nan", "inf", "-7", "1,024", "0x10", "[GPU requires reset]", "Unknown", "")


def smi_sample(name: str = "ok_8_h100") -> Sample:
    return next(s for s in all_samples("nvidia_smi") if s.path.stem == name)


@cache
def smi_cases() -> tuple[Case, ...]:
    """The three outputs of one run: -q -x, nvlink -s and nvlink -e."""
    whole = case_of(smi_sample())
    return tuple(replace(whole, name=f"{whole.name} {name}", place=place)
                 for place, name in enumerate(("-q -x", "nvlink -s", "nvlink -e")))


def smi_tags(case: Case, gpu: int) -> Iterator[tuple[str, re.Match[str]]]:
    """(before and after joined by the match) each tag of one GPU whose value decides."""
    starts = [m.start() for m in re.finditer(r"\t<gpu id", case.text)]
    if not starts:
        return
    end = [*starts, len(case.text)][gpu + 1]
    for place in re.finditer(r"(?m)^\t+<(\w+)>([^<]+)</\w+>\n", case.text[starts[gpu]:end]):
        if not re.match(SMI_FREE, place[0]) and "performance_state" not in place[0] and \
                (place[2] != "N/A" or "retired" not in place[0]):
            yield case.text[:starts[gpu]], place


def smi_columns(case: Case) -> Iterator[tuple[str, str]]:
    """Its columns are tags, and the words before a colon."""
    for before, place in smi_tags(case, 2):
        at = len(before) + place.start()
        after = case.text[at + len(place[0]):]
        yield "removed", case.text[:at] + after
        yield "renamed", case.text[:at] + place[0].replace(place[1], f"{place[1]}_x") + after
    if case.place:
        for word in (" Link", "GPU", "GB/s", "Error", "Replay"):
            yield "removed", case.text.replace(word, "", 1)
            yield "renamed", case.text.replace(word, f"{word}x", 1)


def smi_units(case: Case) -> Texts:
    old = ("16x<", "C<", "W<") if not case.place else ("GB/s", ) if case.place == 1 else ()
    return replaced(case.text, *((word, word.replace("GB/s", "Gb/s").replace("16x", "16y").replace("C<", "F<")
                                  .replace("W<", "mW<")) for word in old))


def smi_wrong(case: Case) -> Texts:
    """A word of trouble in place of a value."""
    text = case.text
    for before, place in smi_tags(case, 4):
        a, b = len(before) + place.start(2), len(before) + place.end(2)
        yield from (text[:a] + word + text[b:] for word in SMI_WORDS)
    for word in (*SMI_WORDS, "<inactive>", "N/A"):
        old, new = ("26.562 GB/s", word) if case.place == 1 else ("Errors: 0", f"Errors: {word}")
        yield text.replace(old, new, 1)


def smi_ranks(case: Case) -> Texts:
    """A GPU that is missing, and one that is there twice."""
    lines = case.text.splitlines(keepends=True)
    starts = [n for n, line in enumerate(lines) if re.match(r"\t<gpu id|GPU \d", line)]
    ends = [n + 1 for n, line in enumerate(lines) if line == "\t</gpu>\n"] or [*starts[1:], len(lines)]
    for begin, end in zip(starts, ends, strict=True):
        yield "".join(lines[:begin] + lines[end:])
        yield "".join(lines[:end] + lines[begin:end] + lines[end:])


def smi_more(case: Case) -> Iterator[tuple[str, str]]:
    text = case.text
    for word in ("<nvidia_smi_log>", "</nvidia_smi_log>", "<attached_gpus>8</attached_gpus>", "</gpu>"):
        yield "frame removed", text.replace(word, "", 1)
    yield "fewer GPUs told", text.replace("<attached_gpus>8<", "<attached_gpus>7<")
    yield "one UUID twice", re.sub(r"<uuid>[^<]+<", "<uuid>GPU-57f85b99-b680-2046-4186-7059c7ed9971<", text)
    for error in SMI_ERRORS:
        yield from (("error line of nvidia-smi", changed) for changed in (error + text, text + error))


SMI_ERRORS = (
    "Unable to determine the device handle for GPU0000:C3:00.0: GPU is lost.  Reboot the system to recover this GPU\n",
    "Unable to determine the device handle for GPU5: 0000:C3:00.0: Unknown Error\n",
    "Failed to initialize NVML: Driver/library version mismatch\n", "Failed to initialize NVML: Unknown Error\n",
    "No devices were found\n", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
    "GPU access blocked by the operating system\n", "WARNING: infoROM is corrupted at gpu 0000:1B:00.0\n")

SMI = Family(
    "nvidia-smi", smi_cases, SMI_ROW, SMI_CELL, columns=smi_columns, units=smi_units, wrong=smi_wrong, ranks=smi_ranks,
    more=smi_more, without=("row torn", "rows swapped", "number: zero"), alone=True, lacks={
        "host missing": "an output is of one host and does not name it", "transport changed": "it transfers nothing",
        "rows swapped": "tags have no order", "number: zero": "most of its numbers are counts of errors"})

FAMILIES = (NCCL, OSU, PERFTEST, SMI)
