"""gres.conf: its lines, those with NodeName= and those without (gres.conf(5), src/interfaces/gres.c)."""

from __future__ import annotations

from collections.abc import Sequence

from hpcadmin.conf.existing import hostlist
from hpcadmin.conf.existing.nodes import values
from hpcadmin.conf.existing.parts import Fault, GresLine, NodeLine, Statement, Value
from hpcadmin.errors import UsageError
from hpcadmin.facts._slurm_gres import expand_files

# (taken first, other name of it).
_ALIASES = (("cores", "cpus"), ("file", "files"), ("link", "links"))
_FIRST = frozenset({"name", "nodename", "autodetect"})


def line(statement: Statement, faults: list[Fault]) -> GresLine | None:
    """None for a line that Slurm does not read."""
    first = statement.values[0]
    key = first.key.casefold()
    if key not in _FIRST:
        faults.append(Fault(statement.place, "a line of gres.conf begins with NodeName=, Name= or AutoDetect=, not "
                            f"with {first.key}="))
        return None
    own = values(statement, faults)
    if key == "autodetect":
        return GresLine((), "", {"autodetect": first}, (), statement.place)
    if "nodename" in own:
        faults.append(Fault(own["nodename"].place, "NodeName= has to be the first on its line"))
    if key == "name" and "autodetect" in own:
        faults.append(Fault(own["autodetect"].place, "AutoDetect= after Name= does nothing: it stands alone on a "
                            "line, or after NodeName=", fatal=False))
    name = first if key == "name" else own.pop("name", None)
    hosts: tuple[str, ...] = ()
    if key == "nodename":
        try:
            hosts = hostlist.expand(first.text)
        except UsageError as exc:
            faults.append(Fault(statement.place, exc.what))
            return None
        if not hosts:
            faults.append(Fault(statement.place, f"NodeName={first.text[:60]}: names no node"))
            return None
    if name is not None:
        own["name"] = name
    elif "autodetect" not in own:
        faults.append(Fault(statement.place, "has no Name=: Slurm ignores the line", fatal=False))
    _canonical(own)
    return GresLine(hosts, name.text if name else "", own, _files(own, faults), statement.place)


def of_node(node: NodeLine, faults: list[Fault]) -> Sequence[GresLine]:
    """GresConf= of a node line (25.11 on): lines of gres.conf between +, their settings between commas."""
    whole = node.values.get("gresconf")
    found = []
    for part in whole.text.split("+") if whole else ():
        own: dict[str, Value] = {}
        at = ""
        for word in part.split(","):
            key, equals, text = word.partition("=")
            if equals:
                at = key.strip().casefold()
                own[at] = Value(key.strip(), text, whole.place if whole else node.place)
            elif at:                     # Cores=0-3,8-11 has commas of its own
                own[at] = Value(own[at].key, f"{own[at].text},{word}", own[at].place)
        _canonical(own)
        if own:
            name = own["name"].text if "name" in own else ""
            found.append(GresLine(node.hosts, name, own, _files(own, faults), whole.place if whole else node.place))
    return found


def _canonical(own: dict[str, Value]) -> None:
    for key, alias in _ALIASES:
        other = own.pop(alias, None)
        if other is not None:
            own.setdefault(key, other)
    if "link" in own:
        own["links"] = own.pop("link")


def _files(own: dict[str, Value], faults: list[Fault]) -> tuple[str, ...]:
    value = own.get("multiplefiles") or own.get("file")
    if value is None:
        return ()
    try:
        return tuple(expand_files(value.text))
    except UsageError as exc:
        faults.append(Fault(value.place, f"{value.key}={value.text[:60]}: {exc.what}"))
        return ()
