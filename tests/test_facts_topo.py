"""topo -m as people paste it: made-up matrices rendered as the tool prints them, then damaged, read back the same or
less, never different."""

from __future__ import annotations

import contextlib
import re
import time
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcadmin.documents import documents
from hpcadmin.errors import ParseError
from hpcadmin.facts import Document, Reading
from hpcadmin.facts._base import cpu_list
from hpcadmin.facts.nvidia_topo import read
from hpcadmin.text import fold_ids

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""


def readings(text: str) -> tuple[Reading, ...]:
    found: tuple[Reading, ...] = ()
    for document in documents("paste", text.encode()):
        found += read(document)
    return found


@dataclass(frozen=True)
class Machine:
    """names: rows and columns; cells: labels by row and column; tails: fields of each GPU; tail_names: how many."""

    names: tuple[str, ...]
    devices: tuple[str, ...]
    cells: dict
    tails: tuple
    fields: int

    @property
    def gpus(self) -> list[str]:
        return [name for name in self.names if name.startswith("GPU")]

    @property
    def nics(self) -> list[str]:
        return [name for name in self.names if not name.startswith("GPU")]

    def render(self, legend: bool = True) -> str:
        titles = ["CPU Affinity", "NUMA Affinity", "GPU NUMA ID"][:self.fields]
        lines = ["\t".join(["", *self.names, *titles])]
        for row in self.names:
            cells = [" X " if row == column else self.cells[row, column] for column in self.names]
            tail = [""] * (self.fields + (self.fields > 1))
            if row in self.gpus:
                own = self.tails[self.gpus.index(row)][:self.fields]
                tail = [*own[:2], "", *own[2:]] if self.fields > 2 else list(own)
            lines.append("\t".join([row, *cells, *tail]))
        text = "\n".join(lines) + "\n"
        if legend:
            text += LEGEND
            if self.nics and self.nics[0].startswith("NIC"):
                text += "\nNIC Legend:\n\n" + "".join(
                    f"  {nic}: {device}\n" for nic, device in zip(self.nics, self.devices, strict=True)) + "\n"
        return text


@st.composite
def machines(draw: st.DrawFn) -> Machine:
    count, sockets = draw(st.integers(1, 16)), draw(st.integers(1, 4))
    width = draw(st.sampled_from([4, 8, 12, 24, 56, 64, 96]))
    threads = draw(st.sampled_from([1, 2]))
    fields = draw(st.integers(1, 3))
    nics = draw(st.integers(0, 12))
    if draw(st.booleans()):
        labels = tuple(f"NIC{n}" for n in range(nics))
        devices = tuple(draw(st.sampled_from([f"mlx5_{n}", f"mlx5_bond_{n}", f"rocep{n}s0"])) for n in range(nics))
    else:
        labels = devices = tuple(f"mlx5_{n}" for n in range(nics))
    names = tuple(f"GPU{n}" for n in range(count)) + labels
    linked = draw(st.sampled_from(["none", "mesh", "pairs", "any"]))
    number = draw(st.integers(1, 18))
    place = [draw(st.integers(0, sockets - 1)) for _ in names]
    cells = {}
    for a in range(len(names)):
        for b in range(a):
            near = draw(st.sampled_from(["PIX", "PXB", "PHB", "NODE"])) if place[a] == place[b] else "SYS"
            both = a < count and b < count
            if both and (linked == "mesh" or (linked == "pairs" and a // 2 == b // 2)
                         or (linked == "any" and draw(st.booleans()))):
                near = f"NV{number if linked != 'any' else draw(st.integers(1, 18))}"
            cells[names[a], names[b]] = cells[names[b], names[a]] = near
    tails = []
    for socket in place[:count]:
        low, high = socket * width, socket * width + width - 1
        cpus = f"{low}-{high}"
        if threads == 2:
            cpus += f",{low + sockets * width}-{high + sockets * width}"
        tails.append((fold_ids(cpu_list(cpus, "")), str(socket), "N/A"))
    return Machine(names, devices, cells, tuple(tails), fields)


def check(machine: Machine, found: Reading, *, whole: bool) -> None:
    """Whatever is told is right; whole: all of it is told."""
    known = found.known
    gpus, indices = machine.gpus, known["gpu_indices"]
    assert known["gpus"] == len(gpus) or (not whole and known["gpus"] is None)
    assert indices == list(range(len(indices)))
    rows = len(indices)
    for a in range(rows):
        for b in range(rows):
            label = "X" if a == b else machine.cells[gpus[a], gpus[b]]
            told = known["gpu_matrix"][a][b]
            assert told == label or (told is None and not whole)
            links = known["links"]
            if links is not None and links[a][b] is not None:
                assert links[a][b] == (-1 if a == b else int(label[2:]) if label.startswith("NV") else 0)
    for a in range(rows):
        cpus, numa, _ = machine.tails[a]
        told = known["gpu_cpu_affinity_os"][a]
        assert told == cpus or (told is None and not whole)
        if machine.fields > 1:
            told = (known["gpu_numa"] or [None] * rows)[a]
            assert told == int(numa) or (told is None and not whole)
    for name, nic in known["nics"].items():
        assert nic["label"] in machine.nics
        assert name in (nic["label"], machine.devices[machine.nics.index(nic["label"])])
        assert nic["device"] in (None, machine.devices[machine.nics.index(nic["label"])])
        for a, told in enumerate(nic["relations"]):
            assert told == machine.cells[gpus[a], nic["label"]] or (told is None and not whole)
        if nic["nearest_gpus"] is not None:
            order = ["PIX", "PXB", "PHB", "NODE", "SYS"]
            labels = [machine.cells[gpu, nic["label"]] for gpu in gpus]
            best = min(labels, key=order.index)
            assert nic["relation"] == best
            assert nic["nearest_gpus"] == [n for n, label in enumerate(labels) if label == best != "SYS"]
    if whole:
        assert len(known["nics"]) == len(set(machine.devices))
        assert not found.missing
    else:
        assert found.missing or known["gpus"] == len(gpus)


def without_tabs(text: str, how: str) -> str:
    if how == "tabs":
        return text
    if how == "blanks":
        return text.expandtabs()
    return re.sub("\t+", " " if how == "one" else "    ", text)


AROUND = st.sampled_from([("", ""), ("$ nvidia-smi topo -m\n", "$ \n"), ("root@n1:~# nvidia-smi topo -m\n", ""),
                          ("Hi all,\nGPU0 is slow, see below\n\n", "\nGPU 0: ok\nthanks\n")])


@pytest.mark.deep
@settings(max_examples=120, deadline=None)
@given(machine=machines(), how=st.sampled_from(["tabs", "blanks", "one", "four"]), around=AROUND,
       style=st.sampled_from(["", "esc", "lost", "indent", "quoted", "crlf", "trailing"]))
def test_a_whole_matrix_is_read_whole(machine: Machine, how: str, around: tuple[str, str], style: str) -> None:
    text = without_tabs(machine.render(), how)
    head, rest = text.split("\n", 1)
    if style in ("esc", "lost"):
        esc = "\x1b" if style == "esc" else ""
        head = head.replace("GPU0", f"{esc}[4mGPU0", 1) + f"{esc}[0m"
    text = f"{head}\n{rest}"
    marks = {"indent": "    ", "quoted": "> "}
    text = "".join(f"{marks.get(style, '')}{line}{'   ' if style == 'trailing' else ''}\n" for line in text.split("\n"))
    if style == "crlf":
        text = text.replace("\n", "\r\n")
    found = readings(around[0] + text + around[1])
    assert len(found) == 1
    check(machine, found[0], whole=True)
    assert found[0].refused == ""


def in_table(text: str) -> str:
    """As a table of Markdown: the matrix alone, with its fields as the header names them."""
    rows = []
    for line in text.split("\n\n", maxsplit=1)[0].split("\n"):
        cells = [cell.strip() for cell in line.split("\t")]
        cells = cells[:-2] + cells[-1:] if line.startswith("GPU") and cells[-2] == "" else cells
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join([rows[0], "|---" * rows[0].count("|"), *rows[1:]]) + "\n"


SHAPES = {
    "escaped": lambda text: "{'rc': 0, 'topo': '" + text.replace("\n", "\\n").replace("\t", "\\t") + "'}\n",
    "list": lambda text: repr(text.split("\n")) + "\n",
    "blanks escaped": lambda text: "{\"topo\": \"" + text.expandtabs().replace("\n", "\\n") + "\"}\n",
    "comment": lambda text: "/*\n" + "".join(f" * {line}\n" for line in text.split("\n")) + " */\n",
    "hashes": lambda text: "".join(f"# {line}\n" for line in text.split("\n")),
    "one line": lambda text: f"Mine is: {' '.join(text.split())}\n",
    "table": in_table,
}


@pytest.mark.deep
@settings(max_examples=150, deadline=None)
@given(machine=machines(), shape=st.sampled_from(sorted(SHAPES)))
def test_a_whole_matrix_in_other_shapes(machine: Machine, shape: str) -> None:
    found = read(Document("paste", lines=tuple(SHAPES[shape](machine.render()).rstrip("\n").split("\n"))))
    assert len(found) == 1
    check(machine, found[0], whole=True)
    assert found[0].refused == ""
    assert found[0].first == found[0].last or shape in ("comment", "hashes", "table")


@pytest.mark.deep
@settings(max_examples=150, deadline=None)
@given(machine=machines(), data=st.data(), how=st.sampled_from(["tabs", "blanks"]))
def test_a_matrix_cut_at_its_end_with_text_below(machine: Machine, data: st.DataObject, how: str) -> None:
    lines = without_tabs(machine.render(), how).split("\n")[:len(machine.gpus) + 1]
    text = "\n".join(lines)
    text = text[:data.draw(st.integers(0, text.rindex("\n")))] + "\n```\n\nAny idea?\n"
    for one in readings(text):
        check(machine, one, whole=False)
        assert one.missing


@pytest.mark.deep
@settings(max_examples=150, deadline=None)
@given(machine=machines(), width=st.integers(20, 160), strip=st.booleans(), legend=st.booleans())
def test_a_wrapped_matrix(machine: Machine, width: int, strip: bool, legend: bool) -> None:
    """As a terminal of that width shows it, and as it is copied from there."""
    lines = []
    for line in machine.render(legend).expandtabs().split("\n"):
        pieces = [line[at:at + width] for at in range(0, len(line), width)] or [""]
        lines += [piece.rstrip() if strip else piece for piece in pieces]
    try:
        found = readings("\n".join(lines))
    except ParseError:
        return
    assert len(found) <= 1
    for one in found:
        check(machine, one, whole=False)


@pytest.mark.deep
@settings(max_examples=150, deadline=None)
@given(machine=machines(), data=st.data(), how=st.sampled_from(["tabs", "blanks", "one"]), legend=st.booleans())
def test_a_matrix_cut_at_its_end(machine: Machine, data: st.DataObject, how: str, legend: bool) -> None:
    text = without_tabs(machine.render(legend), how)
    at = data.draw(st.integers(0, len(text)))
    # A line end behind half a number is not what a cut leaves: it makes another number of it.
    half = text[at - 1:at].isdigit() and text[at:at + 1].isdigit()
    text = text[:at] + ("" if half else data.draw(st.sampled_from(["", "\n"])))
    for one in readings(text):
        check(machine, one, whole=False)


@pytest.mark.deep
@settings(max_examples=150, deadline=None)
@given(machine=machines(), data=st.data(), legend=st.booleans(), end=st.sampled_from(["", "...", ">", " "]))
def test_a_matrix_cut_at_its_right(machine: Machine, data: st.DataObject, legend: bool, end: str) -> None:
    lines = machine.render(legend).expandtabs().split("\n")
    at = data.draw(st.integers(10, max(map(len, lines))))
    text = "\n".join(line[:at] + end if len(line) > at else line for line in lines)
    try:
        found = readings(text)
    except ParseError:
        return
    for one in found:
        check(machine, one, whole=False)


@pytest.mark.deep
@settings(max_examples=60, deadline=None)
@given(machine=machines(), data=st.data())
def test_lines_that_are_lost(machine: Machine, data: st.DataObject) -> None:
    lines = machine.render().split("\n")
    gone = data.draw(st.sets(st.integers(1, len(lines) - 1), max_size=5))
    for one in readings("\n".join(line for number, line in enumerate(lines) if number not in gone)):
        check(machine, one, whole=False)


@pytest.mark.deep
@settings(max_examples=60, deadline=None)
@given(one=machines(), other=machines(), said=st.booleans())
def test_two_nodes_in_one_text(one: Machine, other: Machine, said: bool) -> None:
    if said:
        texts = [f"{node}: {line}" for node, machine in (("n1", one), ("n2", other))
                 for line in machine.render().split("\n")]
        text = "\n".join(texts)
    else:
        text = f"[root@n1 ~]# nvidia-smi topo -m\n{one.render()}\n[root@n2 ~]# nvidia-smi topo -m\n{other.render()}"
    found = readings(text)
    assert len(found) == 2
    check(one, found[0], whole=True)
    check(other, found[1], whole=True)
    assert [reading.known.get("node") for reading in found] == (["n1", "n2"] if said else [None, None])


@pytest.mark.parametrize("text", ["", "GPU0", "GPU0 GPU1\n", "GPU0\tGPU1\tCPU Affinity\n", "NIC0: mlx5_0\n",
                                  "the GPU0 X is fine\n"])
def test_what_is_no_matrix(text: str) -> None:
    assert read(Document("x", lines=tuple(text.split("\n")))) == ()


# --- what is said ---------------------------------------------------------------------------------------------------


def matrix(rows: list[list[str]], tail: str = "0-31,64-95\t0\t\tN/A", legend: bool = True) -> Reading:
    names = [f"GPU{n}" for n in range(len(rows))]
    text = "\t".join(["", *names, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]) + "\n" + "".join(
        "\t".join([name, *row, tail]) + "\n" for name, row in zip(names, rows, strict=True))
    return readings(text + (LEGEND if legend else ""))[0]


def mesh(count: int, label: str, *off: int) -> list[list[str]]:
    return [[" X " if a == b else "SYS" if a in off or b in off else label for b in range(count)]
            for a in range(count)]


def said(reading: Reading, *, note: bool = False) -> str:
    return "\n".join(finding.what for finding in reading.findings if finding.note == note)


def test_a_gpu_off_the_fabric_is_a_fault() -> None:
    found = matrix(mesh(8, "NV18", 2))
    assert "GPU2 has no NVLink, its 7 peers do" in said(found)
    assert found.known["faulty_gpus"] == [2]


def test_bridges_are_no_faults() -> None:
    pair = [[" X ", "NV4", "NODE"], ["NV4", " X ", "NODE"], ["NODE", "NODE", " X "]]
    found = matrix(pair)
    assert "GPU2 has no NVLink" in said(found, note=True)
    assert said(found) == ""
    assert "faulty_gpus" not in found.known


def test_topo_mp_tells_nothing_of_nvlink() -> None:
    text = "$ nvidia-smi topo -mp\n\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNODE\t0-7\nGPU1\tNODE\t X \t0-7\n"
    found = readings(text)[0]
    assert (found.kind, found.known["links"]) == ("nvidia-smi topo -mp", None)
    assert "NVLink is unknown" in said(found)


def test_six_entries_are_no_whole_list() -> None:
    found = matrix(mesh(2, "NV4"), tail="0,2,4,6,8,10\t0\t\tN/A")
    assert found.known["affinity_truncated"]
    assert found.assumed == ({"if": "always", "values": None},)


def test_the_cpus_of_a_job_are_refused() -> None:
    assert "job or container" in matrix(mesh(2, "NV4"), tail="3\t0\t\tN/A").refused
    text = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tSYS\t0-3\t0\nGPU1\tSYS\t X \t\t1\n\nLegend:\n"
    assert "empty" in readings(text)[0].refused


def test_affinity_of_no_cpu_at_all_is_a_job() -> None:
    for tail in ("\t\t\tN/A", " " * 24 + "N/A"):
        text = ("        GPU0    GPU1    CPU Affinity    NUMA Affinity   GPU NUMA ID\n"
                f"GPU0     X      NV4     {tail}\nGPU1    NV4      X      {tail}\n{LEGEND}")
        text = text if " " in tail else re.sub("(?<=[0-9X4DA]) {2,8}(?=[GCNX]|\\t)", "\t", text)
        found = readings(text)[0]
        assert "empty" in found.refused, tail
        assert (found.missing, found.known["gpu_numa"]) == ((), [None, None])


@pytest.mark.parametrize("rows", [
    ["GPU0     X      SYS     0-47    0", "GPU1    SYS      X      0-47    0"],        # the third field is cut off
    ["GPU0     X      SYS     0-47", "GPU1    SYS      X      0-47"],
])
def test_a_field_is_what_it_stands_below(rows: list[str]) -> None:
    """The header lost its indentation, so nothing stands below anything."""
    text = "GPU0    GPU1    CPU Affinity    NUMA Affinity   GPU NUMA ID\n" + "\n".join(rows) + "\n" + LEGEND
    found = readings(text)[0]
    assert found.known["gpu_numa"] in ([0, 0], [None, None])
    assert set(found.known["gpu_cpu_affinity_os"]) <= {"0-47", None}


@pytest.mark.parametrize("cpus", ["0-23,4", "24-3", "0-23,12-35", "7,5"])
def test_ids_that_do_not_ascend_are_no_list(cpus: str) -> None:
    found = matrix(mesh(2, "NV4"), tail=f"{cpus}\t0\t\tN/A")
    assert found.known["gpu_cpu_affinity_os"] == [None, None]
    assert found.refused


def test_the_last_field_of_all_may_be_cut() -> None:
    text = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0-11\nGPU1\tNV4\t X \t0-1\n```\nAny idea?\n"
    assert readings(text)[0].known["gpu_cpu_affinity_os"] == ["0-11", None]
    assert readings(text.replace("```", LEGEND))[0].known["gpu_cpu_affinity_os"] == ["0-11", "0-1"]


def test_numa_affinity_that_is_empty_is_said() -> None:
    found = matrix(mesh(2, "NV4"), tail="0-7\t\t\tN/A")
    assert "NUMA affinity of GPU 0-1 is empty" in said(found)
    assert (found.known["gpu_cpu_affinity_os"], found.known["gpu_numa"]) == (["0-7", "0-7"], [None, None])


def test_one_gpu_has_no_link_whatever_was_asked() -> None:
    text = "$ nvidia-smi topo -mp\n\tGPU0\tNIC0\tCPU Affinity\nGPU0\t X \tPIX\t0-7\nNIC0\tPIX\t X \t\n"
    assert readings(text)[0].known["links"] == [[-1]]


def test_more_cells_than_columns_are_refused() -> None:
    found = readings("GPU0 GPU1 CPU Affinity\nGPU0 X NV1 SYS 0-7\nGPU1 NV1 X SYS 8-15\n")[0]
    assert "more than the header" in found.refused


def test_a_legend_that_is_cut_shows_nothing() -> None:
    text = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tPIX\t0-7\nGPU1\tPIX\t X \t0-7\n"
    assert readings(text)[0].known["links"] == [[-1, 0], [0, -1]]
    assert not readings(text)[0].value.nvlink_proven
    assert readings(f"{text}\nLegend:\n\n  X    = Self\n")[0].known["links"] is None
    assert readings(text.replace("PIX", "SOC"))[0].value.nvlink_proven      # drivers that wrote SOC had no -mp


def test_what_was_asked_inside_a_job() -> None:
    text = ("$ srun -N1 --gpus 2 nvidia-smi topo -m\n"
            "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0-7\nGPU1\tNV4\t X \t0-7\n")
    assert "asked by srun" in said(readings(text)[0], note=True)
    assert "asked by" not in said(readings(text.replace("srun -N1 --gpus 2 ", ""))[0], note=True)


def test_near_gpus_of_two_numa_nodes_are_one_contradiction() -> None:
    text = "\tGPU0\tGPU1\tGPU2\tCPU Affinity\tNUMA Affinity\n" + "".join(
        "\t".join([f"GPU{n}", *(" X " if n == m else "NODE" for m in range(3)), "0-7", f"{n // 2}\n"])
        for n in range(3)) + LEGEND
    assert said(readings(text)[0]).count("so within one NUMA node") == 1
    assert "GPU0, GPU1 and GPU2 are NODE" in said(readings(text)[0])


@pytest.mark.parametrize("last", ["m", "mlx", "mlx5"])
def test_a_name_that_is_cut_names_no_device(last: str) -> None:
    text = ("\tGPU0\tNIC0\tNIC1\tCPU Affinity\nGPU0\t X \tPIX\tSYS\t0-7\nNIC0\tPIX\t X \tSYS\t\n"
            f"NIC1\tSYS\tSYS\t X \t\n{LEGEND}\nNIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: {last}\n")
    assert sorted(readings(text)[0].known["nics"]) == ["NIC1", "mlx5_0"]
    assert f"{last}_bond_0" in readings(f"{text[:-1]}_bond_0\n")[0].known["nics"]


def test_remarks_behind_a_row() -> None:
    text = "GPU0 GPU1 CPU Affinity\nGPU0 X NV4 0-7\nGPU1 NV4 X 8-15  \u2190 the other socket\n"
    assert readings(text)[0].known["gpu_cpu_affinity_os"] == ["0-7", "8-15"]
    assert readings(text.replace("\u2190", "# is"))[0].known["gpu_cpu_affinity_os"] == ["0-7", "8-15"]


@pytest.mark.parametrize("text", [
    "GPU0 X" + " " * 50_000 + "y", "| GPU0\n|" + "-" * 50_000 + "x", "GPU0 " * 20_000, "GPU0 X " * 2000,
    "GPU0 GPU1 CPU Affinity " * 3000 + "GPU0 X GPU1 X", "\\tGPU0\\tX" * 8000, "\\nGPU0 X" + "'" * 50_000,
])
def test_long_lines_take_no_longer(text: str) -> None:
    start = time.process_time()
    with contextlib.suppress(ParseError):
        read(Document("x", lines=tuple(text.split("\n"))))
    assert time.process_time() - start < 5


def test_a_matrix_of_peer_access_is_another_question() -> None:
    text = " \tGPU0\tGPU1\n GPU0\tX\tOK\n GPU1\tOK\tX\n\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n"
    assert readings(text) == ()


def test_rows_that_contradict_are_named() -> None:
    found = matrix([[" X ", "NV4"], ["SYS", " X "]])
    assert not found.known["symmetric"]
    assert "contradicts itself" in said(found)
    with pytest.raises(ParseError, match="shifted"):
        matrix([["SYS", " X "], ["SYS", " X "]])


def test_a_label_that_is_not_known_is_no_zero() -> None:
    found = matrix([[" X ", "MTL"], ["MTL", " X "]])
    assert found.known["links"][0][1] is None
    assert "MTL" in said(found)


@pytest.mark.parametrize(("end", "whole"), [("\n", True), ("", False)])
def test_a_matrix_without_its_legend(end: str, whole: bool) -> None:
    text = ("\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV4\t0-7\t0\nGPU1\tNV4\t X \t8-15\t1" + end)
    one, = readings(text)
    assert one.known["gpu_numa"] == ([0, 1] if whole else [0, None])
    assert one.known["gpu_cpu_affinity_os"] == ["0-7", "8-15"]
    assert (one.refused == "") is whole
