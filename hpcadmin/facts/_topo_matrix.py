"""The matrix of `nvidia-smi topo -m` from its rows: what is in the text, what is cut off, and what may be a stump."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from hpcadmin.errors import ParseError
from hpcadmin.facts import _links
from hpcadmin.facts._base import cpu_list, quote
from hpcadmin.facts._topo_legend import follows, legend_in, near_cpus
from hpcadmin.facts._topo_text import Block
from hpcadmin.facts._topo_words import Row, Tail, is_gpu
from hpcadmin.text import fold_ids

_ASKED = re.compile(r"topo[ \t]{1,4}(-mp|--matrix_pci|-m|--matrix|-p2p)(?![a-z_])")
_INSIDE = re.compile(r"\b(srun|(?:kubectl|docker|podman|crictl|nerdctl) (?:exec|run)|singularity|apptainer|enroot)\b")
_NUMBERED = re.compile(r"(.*?)([0-9]{1,6})\Z")


@dataclass(frozen=True)
class Matrix:
    """labels: by row and column, as printed; what is not in the text is not in there.

    count: of GPUs; None where the text does not tell. fields: columns behind the cells. legend: "nvlink" when it
    explains NV#, "plain" when it does not, "old" in the words of drivers that knew no NVLink, "" without one.
    """

    gpus: tuple[int, ...]
    nics: tuple[str, ...]
    devices: tuple[str, ...]         # RDMA device of each NIC; "": not in the text
    labels: Mapping[tuple[str, str], str]
    tails: Mapping[str, Tail]
    fields: int = 0
    count: int | None = None
    command: str = ""                # "-m", "-mp"; "": not in the text
    inside: str = ""                 # what it was asked by: "srun", "kubectl exec"
    legend: str = ""
    header: bool = True
    missing: tuple[str, ...] = ()
    unsound: bool = False            # what is missing concerns GPUs
    guessed: tuple[str, ...] = ()    # NICs that are named by their place alone
    who: str = ""
    first: int = 1
    last: int = 1
    lines: Mapping[str, int] = field(default_factory=dict)
    old: bool = False                # SOC where drivers write SYS since
    near_cpus: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  # GPUs near a CPU, as `topo -c` says below

    def label(self, row: str, column: str) -> str:
        """Of either of the two cells; "" when neither is in the text."""
        return self.labels.get((row, column)) or self.labels.get((column, row), "")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"GPU{number}" for number in self.gpus)

    @property
    def nvlink_told(self) -> bool:
        """Whether a GPU pair without NV# has no NVLink: topo -mp leaves them out."""
        if any(label.startswith("NV") for label in self.labels.values()):
            return True
        if self.command == "-mp" or self.legend == "plain":
            return False
        return self.command == "-m" or self.legend != "" or not self.unsound

    def gpu_labels(self) -> tuple[tuple[str, ...], ...]:
        names = self.names
        return tuple(tuple("X" if a == b else self.label(a, b) for b in names) for a in names)

    @property
    def nvlink_proven(self) -> bool:
        """Whether the text itself shows that it is of topo -m, or of a driver that had no -mp yet: SOC was its word."""
        shown = self.command == "-m" or self.legend != "" or self.old
        return self.nvlink_told and (shown or len(self.gpus) == 1 or any(
            label.startswith("NV") for label in self.labels.values()))

    def links(self) -> list[list[int | None]] | None:
        """Counts of NVLinks as they stand in each row; None when the text does not tell of NVLink."""
        if not self.nvlink_told and self.count != 1:
            return None
        names = self.names
        return [[-1 if a == b else _links.count(self.labels.get((a, b)) or self.label(a, b)) for b in names]
                for a in names]


@dataclass
class _Work:
    block: Block
    open_end: bool
    names: list[str] = field(default_factory=list)
    labels: dict[tuple[str, str], str] = field(default_factory=dict)
    tails: dict[str, Tail] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    unsound: bool = False
    right: bool = False              # the text is cut at its right
    guessed: tuple[str, ...] = ()

    @property
    def last_line(self) -> int:
        """The last line of the text that says something."""
        return next((number for number, text in reversed(self.block.stream) if text.strip()), 0)


def build(block: Block, *, open_end: bool = False) -> Matrix:
    """open_end: the text's last line has no line end. Raises ParseError when the matrix contradicts itself."""
    work = _Work(block, open_end)
    header = block.header
    fields = header.tails if header.whole else max((row.tail.last() for row in block.rows), default=0)
    gpu_rows = [row for row in block.rows if is_gpu(row.name)]
    if header.there:
        whole_rows = [row for row in gpu_rows if len(row.cells) == len(header.names)]
        work.right = not header.whole if header.tails or whole_rows != gpu_rows else any(
            row.tail.last() for row in gpu_rows)
        work.right = work.right or (len(whole_rows) > 1 and all(row.tail.last() < fields for row in whole_rows))
    work.names = _names(work) if header.there else _guess_names(work)
    rows = [_placed(row, work) for row in block.rows]
    _fill(rows, work, fields)
    gpus = [name for name in work.names if is_gpu(name)]
    nics = [name for name in work.names if not is_gpu(name)]
    count = _count(gpus, nics, work)
    _tell_missing(rows, gpus, nics, fields, work)
    below = bisect_right(block.stream, block.rows[-1].end, key=lambda line: line[0])
    around = block.stream[below:block.after + 1]
    legend, means = legend_in(around, nics, work.last_line if open_end else 0)
    above = bisect_left(block.stream, header.line, key=lambda line: line[0])
    before = [text for _, text in block.stream[block.before:above]]
    asked = [match[1] for match in map(_ASKED.search, before) if match]
    inside = [match[1] for match in map(_INSIDE.search, filter(_ASKED.search, before)) if match]
    return Matrix(
        gpus=tuple(int(name[3:]) for name in gpus), nics=tuple(nics),
        devices=tuple(legend.get(nic, "" if nic.startswith("NIC") else nic) for nic in nics),
        labels=work.labels, tails=work.tails, fields=fields, count=count,
        command={"--matrix": "-m", "--matrix_pci": "-mp"}.get(asked[-1], asked[-1]) if asked else "", legend=means,
        header=header.there, inside=inside[-1] if inside else "", old=any(row.old for row in rows),
        missing=tuple(work.missing), unsound=work.unsound, guessed=work.guessed, who=block.who,
        first=header.line, last=max(row.end for row in block.rows), lines={row.name: row.line for row in block.rows},
        near_cpus=near_cpus(around if not open_end else [line for line in around if line[0] != work.last_line]))


# --- names of the columns ---------------------------------------------------------------------------------------------


def _names(work: _Work) -> list[str]:
    names = list(work.block.header.names)
    rows = [row.name for row in work.block.rows]
    if work.right and not work.block.header.tails and names[-1] not in rows and not follows(names):
        names.pop()                  # NIC1 may be what is left of NIC10
    if len(set(names)) != len(names):
        raise ParseError("a column of nvidia-smi topo -m appears twice")
    for name in rows:
        if name not in names:
            if not work.right:
                raise ParseError(f"row {quote(name)} has no column of its own")
            names.append(name)
    return names


def _guess_names(work: _Work) -> list[str]:
    """Without a header: each row has its X in its own column. NVLinks go to GPUs; what has none is taken for a NIC."""
    names = [row.name for row in work.block.rows]
    columns = max(len(row.cells) for row in work.block.rows)
    work.missing.append("the header is missing" + ("" if columns == len(names) else
                        f": of {columns} columns {len(names)} are known by their rows"))
    if columns > len(names):
        work.unsound = True
        linked = [place for row in work.block.rows for place, label in enumerate(row.cells)
                  if label.startswith("NV") and place >= len(names)]
        if is_gpu(names[-1]) and any(label.startswith("NV") for row in work.block.rows for label in row.cells):
            names += [f"GPU{n}" for n in range(len(names), max(linked, default=-1) + 1)]
            nics = [f"NIC{n}" for n in range(columns - len(names))]
            if nics:
                work.guessed = tuple(nics)
                work.missing.append(f"columns {len(names) + 1}-{columns} are taken for NICs, as no NVLink goes there")
            names += nics
    return names


# --- cells ------------------------------------------------------------------------------------------------------------


def _placed(row: Row, work: _Work) -> Row:
    """The row with the cells of which the column is certain."""
    own = work.names.index(row.name)
    cells = row.cells[:len(work.names)]
    if row.shifted:
        work.unsound = work.unsound or is_gpu(row.name)
        work.missing.append(f"row {row.name} has {len(cells)} cells for {len(work.names)} columns")
        cells = cells[:own + 1] if cells[own:own + 1] == ("X",) else ()
    elif own < len(cells) and cells[own] != "X":
        raise ParseError(f"{row.name} is connected to itself by {cells[own]}: columns are shifted")
    return replace(row, cells=cells)


def _fill(rows: Sequence[Row], work: _Work, fields: int) -> None:
    broken = {row.width for row in rows if is_gpu(row.name) and row.goes_on and not row.tail.last()}
    below = _cut_below(rows, work)
    ends = {row.name: work.right or row.end == work.last_line or len(row.cells) < len(work.names)
            or (is_gpu(row.name) and row.tail.last() < max(fields, 1)) or not work.block.header.there
            or row.width in broken or row.name == below for row in rows}
    for row in rows:
        for column, label in zip(work.names, row.cells, strict=False):
            work.labels[row.name, column] = label
    doubtful = {(row.name, work.names[len(row.cells) - 1]) for row in rows     # NV1 may be what is left of NV18
                if ends[row.name] and row.cells and not row.goes_on and row.cells[-1].startswith("NV")}
    for one, other in sorted(doubtful):
        if (other, one) in doubtful or work.labels.get((other, one)) != work.labels[one, other]:
            del work.labels[one, other]
    sure = [row for row in rows if not ends[row.name]]
    for row in rows:
        if is_gpu(row.name):
            ended = not work.open_end and row.end == work.last_line and row.tail.last() >= max(fields, 1)
            work.tails[row.name] = _without_stump(row.tail, sure, work.right, ended) if ends[row.name] else row.tail
            if ends[row.name] and row.unclear and shape(row.tail.cpus or "") not in {
                    shape(other.tail.cpus or "") for other in sure}:
                work.tails[row.name] = Tail()
            if work.tails[row.name] != row.tail:
                work.missing.append(f"row {row.name} may be cut in its last word")
                work.unsound = True


def _cut_below(rows: Sequence[Row], work: _Work) -> str:
    """The last row when the text may be cut in it, although more text stands below: rows of GPUs are missing, or what
    would follow is (rows of NICs, the legend) and its last field looks like a part of one."""
    last, before = rows[-1], rows[:-1]
    there = {row.name for row in rows}
    if not is_gpu(last.name):
        return ""
    if not there.issuperset(name for name in work.names if is_gpu(name)):
        return last.name
    below = (text for number, text in work.block.stream if number > last.end)
    if there.issuperset(work.names) and any(text.strip(" \t*#").lower() == "legend:" for text in below):
        return ""
    cpus, memory = last.tail.cpus or "", last.tail.memory or ""
    alone = last.tail.last() == 1 and shape(cpus) not in {shape(row.tail.cpus or "") for row in before} and all(
        len(cpus) < len(row.tail.cpus or "") for row in before)
    falls = memory.isdigit() and any(len(memory) < len(row.tail.memory or "") for row in before)
    return last.name if alone or falls else ""


def _without_stump(tail: Tail, sure: Sequence[Row], right: bool, ended: bool) -> Tail:
    """The last field of a row that may be cut in it: kept when other rows confirm it, or when the row has all fields
    and its line an end, and no other row says otherwise (who copies a matrix without its legend copies whole lines)."""
    if tail.memory not in (None, "N/A"):
        return replace(tail, memory=None)
    if tail.memory is None and tail.numa not in (None, "N/A"):
        known = any((row.tail.cpus, row.tail.numa) == (tail.cpus, tail.numa) for row in sure)
        known = known or (ended and bool(sure) and not any(row.tail.numa == tail.numa for row in sure))
        return tail if known and not right else replace(tail, numa=None)
    if tail.last() == 1 and tail.cpus != "N/A":
        shapes = {shape(row.tail.cpus) for row in sure if row.tail.cpus}
        return tail if shape(tail.cpus or "") in shapes and not right else replace(tail, cpus=None)
    return tail


def shape(cpus: str) -> tuple[tuple[int, int], ...]:
    """Lengths of the ranges and where each begins, from the first on: the same for each socket of a machine."""
    try:
        ids = fold_ids(cpu_list(cpus, "CPU affinity")).split(",")
    except ParseError:
        return ()
    spans = [(int(low), int(high or low)) for low, _, high in (span.partition("-") for span in ids if span)]
    return tuple((high - low + 1, low - spans[0][0]) for low, high in spans)


# --- what is missing --------------------------------------------------------------------------------------------------


def _count(gpus: Sequence[str], nics: Sequence[str], work: _Work) -> int | None:
    """None where the header is cut among the GPUs and nothing shows that the last row is that of the last GPU."""
    ended = bool(nics) or work.block.rows[-1].end != work.last_line
    if work.right and not work.block.header.tails and not ended:
        work.missing.append(f"the header is cut after {gpus[-1] if gpus else 'its beginning'}: there may be more GPUs")
        work.unsound = True
        return None
    if not work.block.header.there and not any(row.tail.last() for row in work.block.rows):
        work.missing.append("whether the rows end here cannot be told")
        work.unsound = True
        return None
    if not work.block.header.there and work.unsound and not nics:
        return None
    return len(gpus)


def _tell_missing(rows: Sequence[Row], gpus: Sequence[str], nics: Sequence[str], fields: int, work: _Work) -> None:
    there = {row.name: row for row in rows}
    for kind, names in (("GPU", gpus), ("NIC", nics)):
        gone = [name for name in names if name not in there]
        if gone:
            work.missing.append(f"{'rows' if len(gone) > 1 else 'row'} {listed(gone)} "
                                f"{'are' if len(gone) > 1 else 'is'} missing")
            work.unsound = work.unsound or kind == "GPU"
    if work.right:
        work.missing.append("the text is cut at its right: the ends of its lines are missing")
        work.unsound = True
        return
    untold = [row for row in rows if is_gpu(row.name) and len(row.cells) == len(work.names) and not row.goes_on]
    if not fields and len(untold) == len(gpus) > 1:
        work.missing.append("the columns of CPU and NUMA affinity are not in the text")
        work.unsound = True
        untold_names = {row.name for row in untold}
        rows = [row for row in rows if row.name not in untold_names]
    for row in rows:
        if row.more:
            work.missing.append(f"row {row.name} has {row.more} cells more than the header has columns")
            work.unsound = work.unsound or is_gpu(row.name)
        elif len(row.cells) < len(work.names) and not row.shifted:
            after = f"after column {work.names[len(row.cells) - 1]}" if row.cells else "at its beginning"
            work.missing.append(f"row {row.name} is cut {after}")
            work.unsound = work.unsound or is_gpu(row.name)
        elif is_gpu(row.name) and work.tails[row.name].cpus is None:
            work.missing.append(f"row {row.name}: its CPU affinity is cut or cannot be told from other fields")
            work.unsound = True
        elif is_gpu(row.name) and work.tails[row.name].last() < fields:
            work.missing.append(f"row {row.name} has {work.tails[row.name].last()} of {fields} fields after its cells")
            work.unsound = True


def listed(names: Sequence[str]) -> str:
    """GPU1-GPU7 for names that follow one another."""
    parts: list[list[str]] = []
    for name in names:
        if parts and follows([parts[-1][-1], name]) and _NUMBERED.sub(r"\1", name) == _NUMBERED.sub(
                r"\1", parts[-1][-1]):
            parts[-1].append(name)
        else:
            parts.append([name])
    return ", ".join(f"{part[0]}-{part[-1]}" if len(part) > 2 else ", ".join(part) for part in parts)
