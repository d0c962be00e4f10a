"""Sockets, cores per socket and threads per core of one output of lscpu, as far as it does not contradict itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from hpcadmin.facts._base import clean
from hpcadmin.facts._lscpu_text import Block, number_in
from hpcadmin.facts._reading import Finding


@dataclass
class Work:
    """What was understood of a block, and what is to be said of it."""

    block: Block
    findings: list[Finding] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    known: dict[str, object] = field(default_factory=dict)
    refused: str = ""

    def say(self, what: str, key: str = "", *, note: bool = False) -> None:
        self.findings.append(Finding(what, self.block.line_of(key), note))


def counts(work: Work, online: tuple[int, ...]) -> tuple[int | None, int | None, int | None]:
    """Sockets, cores per socket and threads per core as far as they are sure."""
    block = work.block
    sockets, cores, threads = (block.one(key) for key in ("sockets", "cores", "threads"))
    if block.values.keys() & {"books", "drawers", "sockets_per_book", "books_per_drawer"}:
        return _mainframe(work, threads, len(online))
    if len(block.models) > 1:
        return _hybrid(work, online)
    if 0 in (sockets, cores, threads):
        work.refused = (f"contradictory: {sockets} sockets of {cores} cores of {threads} threads: taken inside a "
                        "container that shows a part of the CPUs")
        return None, None, None
    if block.values.get("sockets") == "-" or ("clusters" in block.values and sockets is None):
        work.say("the kernel names no sockets, only clusters: sockets are unknown", "sockets")
    if no_packages(block):
        work.say(f"{sockets or '?'} sockets of {cores or '?'} cores are printed, but socket ids are unknown (\"-\" in "
                 "the table below): sockets are undetermined", "sockets")
        work.known |= {"sockets_printed": sockets, "cores_per_socket_printed": cores,
                       "cores_total": sockets * cores if sockets and cores else None}
        return None, None, threads
    count = len(online) or number_in(block.values.get("cpus"))
    if sockets and cores and threads and count:
        product = sockets * cores * threads
        if product != count:
            work.say(f"{sockets} sockets x {cores} cores x {threads} threads are {product}, but {count} CPUs are "
                     "online: contradictory (uneven cores or sockets, or CPUs offline)", "cores")
            return sockets, None, None
        work.known["cores_total"] = sockets * cores
        if cores == 1 and sockets > 2:
            l3 = block.values.get("l3", "")
            shared = " that share one L3" if "(1 instance" in l3 else ""
            work.say(f"{sockets} sockets of one core{shared}: the made-up topology of a virtual machine", "sockets",
                     note=True)
    return sockets, cores, threads


def no_packages(block: Block) -> bool:
    columns = [table.column("socket") for table in block.tables]
    return any(column and all(text in ("-", "") for text in column) for column in columns)


def _mainframe(work: Work, threads: int | None, online: int) -> tuple[int | None, int | None, int | None]:
    """s390: the printed hierarchy is the machine's, the partition has a part of it."""
    block = work.block
    steps = [(name, block.one(key)) for name, key in (
        ("cores/socket", "cores"), ("sockets/book", "sockets_per_book"), ("books/drawer", "books_per_drawer"),
        ("sockets", "sockets"), ("books", "books"), ("drawers", "drawers"))]
    told = [(name, count) for name, count in steps if count is not None]
    total = 1
    for _, count in told:
        total *= count
    count = online or number_in(block.values.get("cpus")) or 0
    printed = ", ".join(f"{count} {name}" for name, count in told)
    work.known["sockets_printed"] = printed
    used = _sockets_used(block)
    if threads and total * threads == count and not no_packages(block) and len(set(used)) < 2 and (cores := block.one(
            "cores")):
        work.known["cores_total"] = total
        return total // cores, cores, threads
    shown = f"; in sockets of {', '.join(map(str, used))} CPUs" if used else ""
    work.say(f"the printed hierarchy of books and drawers ({printed}: {total} cores) is the machine's, this partition "
             f"has {count} CPUs{shown}: sockets are undetermined", "cores")
    if threads:
        work.known["cores_total"] = count // threads
    if used:
        work.known["sockets_used"] = used
    return None, None, threads


def _sockets_used(block: Block) -> list[int]:
    column = block.tables[0].column("socket") if block.tables else None
    seen: dict[str, int] = {}
    for text in column or ():
        seen[text] = seen.get(text, 0) + 1
    return list(seen.values())


def _hybrid(work: Work, online: tuple[int, ...]) -> tuple[int | None, int | None, int | None]:
    """A block for each kind of core: each with counts of its own, which add up."""
    models = work.block.models
    cores = [number_in(model.get("cores")) for model in models]
    threads = {number_in(model.get("threads")) for model in models}
    sockets = {number_in(model.get("sockets")) for model in models}
    kinds = ", ".join(f"{count or '?'} {clean(model.get('model', '?'), 60)}"
                      for model, count in zip(models, cores, strict=True))
    work.say(f"heterogeneous: {len(models)} core types ({kinds}); cores per socket are not one number", "model")
    work.known["clusters"] = [{"model": clean(model.get("model", "")), "cores": count}
                              for model, count in zip(models, cores, strict=True)]
    same_threads = threads.pop() if len(threads) == 1 else None
    same_sockets = sockets.pop() if len(sockets) == 1 else None
    if None not in cores:
        total = sum(count or 0 for count in cores) * (same_sockets or 1)
        work.known["cores_total"] = total
        if same_threads and online and total * same_threads != len(online):
            work.say(f"the core types add up to {total} cores of {same_threads} threads, but {len(online)} CPUs are "
                     "online: contradictory", "cores")
    return same_sockets, None, same_threads
