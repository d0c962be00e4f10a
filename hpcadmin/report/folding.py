"""Rows of a report for people: nodes and pairs with the same to say are one row, worst first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hpcadmin.check import Status, Verdict
from hpcadmin.hosts import fold
from hpcadmin.peers import number_problem
from hpcadmin.report.summary import CheckRow, NodeRow, Summary, measurement_name, verdict_text
from hpcadmin.text import number, plural

_MOST_PAIRS = 6       # of one node that are listed one by one
_LONGEST_LIST = 60    # of folded nodes
_LONGEST_SOURCE = 36  # of a limit; longer ones are on the page, and shown with --all
VerdictRow = tuple[Status, str, str, str]           # status, check, where, what


def folded_rows(summary: Summary, *, everything: bool = False) -> list[VerdictRow]:
    """Every verdict that is not PASS, or has something to say; with `everything`, every verdict."""
    wanted = [v for v in summary.verdicts if everything or
              (v.status.counts and v.status is not Status.PASS) or (v.status is Status.PASS and v.reason)]
    return _folded(wanted, summary.culprits, fold_pairs=not everything)


def short_list(nodes: Iterable[str], *, everything: bool = False) -> str:
    """A hostlist; a long one is cut behind a number, and says how many nodes there are."""
    names = list(dict.fromkeys(nodes))
    text = fold(names)
    if everything or len(text) <= _LONGEST_LIST:
        return text
    cut = max(text.rfind(",", 0, _LONGEST_LIST), text.find(","))
    return f"{text[:cut]},…{']' if text[:cut].rfind('[') > text[:cut].rfind(']') else ''} ({len(names)} nodes)"


def node_groups(summary: Summary) -> list[tuple[tuple[Status, str, str], list[NodeRow]]]:
    """(status, "4 of 4", why) -> nodes, worst first."""
    groups: dict[tuple[Status, str, str], list[NodeRow]] = {}
    for row in summary.nodes:
        groups.setdefault((row.status, f"{row.passed} of {row.tests}", row.why), []).append(row)
    return sorted(groups.items(), key=lambda item: -item[0][0].rank)


def measured_text(row: CheckRow, *, everything: bool = False) -> str:
    parts = []
    for v in row.values:
        limits = "; ".join(
            f"{x.text()}, {x.source}" if x.source and (everything or len(x.source) <= _LONGEST_SOURCE) else x.text()
            for x in (v.limits if everything else v.limits[:2]))
        parts.append(f"{v.text()} ({limits})" if limits else v.text())
    if row.by_peers:
        parts.append(f"{plural(row.by_peers, 'node')} worse than the others")
    if not parts and row.as_expected and row.status is Status.PASS:
        return f"{plural(row.as_expected, 'value')} as expected"
    return "; ".join(parts) or row.reason


def _folded(verdicts: Sequence[Verdict], culprits: Mapping[str, str], *, fold_pairs: bool,
            ) -> list[VerdictRow]:
    """Rows of status, check, subject and text. Nodes with the same thing to say are one row, and so are many pairs
    with the same result, those of each node to blame by themselves."""
    groups: dict[tuple[Status, str, str, str], list[str]] = {}
    alone: list[tuple[Status, str, str, str]] = []
    of_node: dict[tuple[Status, str, str, str], list[Verdict]] = {}
    for v in verdicts if fold_pairs else ():
        if len(v.subject.nodes) == 2:
            culprit = culprits.get(v.test, "")
            name = measurement_name(v.measurement) if v.measurement else ""
            key = (v.status, v.check, culprit if culprit in v.subject.nodes else "", name)
            of_node.setdefault(key, []).append(v)
    folded = {key: found for key, found in of_node.items()
              if len(found) > (1 if key[0] is Status.UNJUDGED else _MOST_PAIRS)}
    many = {v for found in folded.values() for v in found}
    alone += [_pairs_row(key, found) for key, found in folded.items()]
    for v in verdicts:
        if v in many:
            continue
        text = verdict_text(v)
        if len(v.subject.nodes) == 1:
            groups.setdefault((v.status, v.check, v.subject.device, text), []).append(v.subject.nodes[0])
        else:
            nodes = v.subject.nodes
            where = str(v.subject) if len(nodes) == 2 else short_list(nodes, everything=not fold_pairs)
            alone.append((v.status, v.check, where, text))
    rows = [(status, check, f"{short_list(nodes, everything=not fold_pairs)} {device}".strip(), text)
            for (status, check, device, text), nodes in groups.items()] + alone
    return sorted(rows, key=lambda r: (-r[0].rank, r[1], r[2]))


def _pairs_row(key: tuple[Status, str, str, str], found: Sequence[Verdict]) -> tuple[Status, str, str, str]:
    status, check, node, name = key
    partners = short_list(n for v in found for n in v.subject.nodes if n != node)
    pairs = len({(frozenset(v.subject.nodes), v.test) for v in found})        # one has a value each way, or several
    where = f"{node} - {partners}" if node else f"{plural(pairs, 'pair')} of {partners}"
    values = [float(v.measurement.value) for v in found if v.measurement and not number_problem(v.measurement.value)]
    if not values:
        return status, check, where, f"{plural(pairs, 'pair')}, the first: {found[0].reason}"
    limit, m = found[0].limit, found[0].measurement
    unit = m.unit if m else ""
    count = f"{plural(pairs, 'pair')}: " if node else ""
    low, high = number(min(values)), number(max(values))
    text = f"{count}{name} {low if low == high else f'{low} to {high}'} {unit}".rstrip()
    wanted = "" if m is None or m.expected is None else f"expected {m.expected}"
    why = limit.text() if limit else "no limit known" if status is Status.UNJUDGED else wanted
    return status, check, where, f"{text}, {why}" if why else text
