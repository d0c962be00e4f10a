"""What the ports of a node are, against what the inventory and the other ports of the node say they should be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf

from hpcadmin.check import Measurement, NodeView, PortView, Subject
from hpcadmin.checklib.links import INFINIBAND, MOST_LID, Port
from hpcadmin.text import printable

_SPLIT = ("HDR", "NDR", "XDR")        # two lanes of these are half a port that was split on purpose
_NO_SM = {"INIT": "no subnet manager has set it up", "ARMED": "the subnet manager has not finished with it"}


def facts(ports: Mapping[str, Port], node: NodeView) -> list[Measurement]:
    """State, link, layer, rate, width and LIDs of every port. ParseError for words and numbers that are none."""
    known = {view.name: view for view in node.ports}
    every = [port for port in ports.values() if port.told]
    kinds: dict[tuple[str, ...], list[Port]] = {}
    for port in every:
        kinds.setdefault(port.kind, []).append(port)
    where = (node.name,) if node.name else ()
    return [m for alike in kinds.values() for port in alike
            for m in _Place(port, every, alike, known.get(port.name), Subject(where, port.name)).facts()]


def missing(ports: Mapping[str, Port], node: NodeView, earlier: Mapping[str, Port] | None = None) -> list[Measurement]:
    """Devices and ports of the inventory, or of an earlier reading, that are not told; and those that are new."""
    where = (node.name,) if node.name else ()
    here = {port.device for port in ports.values()}
    lost = [device for device in node.rdma_devices if device not in here]
    lost += [view.name for view in node.ports if view.device in here and view.name not in ports]
    lost += [name for name in earlier or {} if name not in ports and name.rpartition("/")[0] not in lost]
    found = [Measurement("device", "missing", subject=Subject(where, name), expected="present")
             for name in dict.fromkeys(lost)]
    if node.rdma_devices:
        new = sorted(here - set(node.rdma_devices))
        found += [Measurement("device", "present", subject=Subject(where, name), expected="present",
                              warnings=("it is not in the inventory",)) for name in new]
    return found


def changed(looks: Sequence[Port | None], subject: Subject) -> Iterator[Measurement]:
    """What was not the same at the readings before the last one. None: the port was not there."""
    now = looks[-1]
    assert now is not None  # noqa: S101
    said = [] if all(looks) else ["it was not there at a reading before"]
    said += [f"{name} was {before.told[name]}, now {now.told[name]}" for before in looks if before
             for name in ("state", "phys_state", "rate")
             if name in before.told and name in now.told and before.told[name] != now.told[name]]
    said = list(dict.fromkeys(said))
    if said:
        yield Measurement("steady", "no", subject=subject, expected="yes", warnings=tuple(printable(s) for s in said))


class _Place:
    """One port among those of its node. view: as the inventory has it.

    An inventory may have been made when something was broken already: that it has a port down or slow excuses nothing
    where the ports beside it do better.
    """

    def __init__(self, port: Port, every: Sequence[Port], alike: Sequence[Port], view: PortView | None,
                 subject: Subject) -> None:
        self.port, self.every, self.alike, self.view, self.subject = port, every, alike, view, subject

    def _told(self, name: str, value: float | str, expected: float | str | None, unit: str = "", *,
              key: bool = True, said: Sequence[str] = ()) -> Measurement:
        return Measurement(name, value, unit, subject=self.subject, expected=expected, key=key, warnings=tuple(said))

    def facts(self) -> Iterator[Measurement]:
        yield self._state()
        if self.port.active:
            yield self._told("physical_state", self.port.link, "LinkUp")
        if self.port.layer:
            layer = self.view.link_layer if self.view else ""
            yield self._told("link_layer", self.port.layer, layer or None, key=bool(layer))
        if self.port.active:                    # what is printed of a port that is down means nothing
            yield self._rate()
            yield from self._width()
            yield from self._lids()

    def _state(self) -> Measurement:
        state, link = self.port.state, self.port.link if "phys_state" in self.port.told else ""
        if state == "ACTIVE":
            return self._told("state", state, "ACTIVE")
        if state in _NO_SM:
            return self._told("state", state, "ACTIVE", said=(_NO_SM[state],))
        why = self._wanted() if state == "DOWN" else "it is in no state that a port stays in"
        told = f"its link is {link}" if link else "it is down"
        if why:
            return self._told("state", state, "ACTIVE", said=(f"{told}; {why}",))
        return self._told("state", state, state, said=(
            f"{self.port.name} is {state}: {told}; nothing says that it should be up",))

    def _wanted(self) -> str:
        """Why a port that is down should be up, "" where nothing says so."""
        if self.view and self.view.state == "ACTIVE":
            return "the inventory has it ACTIVE"
        up = sum(other.active for other in self.alike)
        if 2 * up > len(self.alike):
            return f"{up} of {len(self.alike)} ports of its kind are up"
        if not any(other.active for other in self.every):
            return "no port of the node is up"
        if not up and self.port.layer == INFINIBAND and self.port.told.get("phys_state", "") not in (
                "3: Disabled", "Disabled"):
            return "no InfiniBand port of its kind is up"
        return ""

    def _rate(self) -> Measurement:
        """Against the inventory, and against the ports of the same kind beside it."""
        rate = self.port.rate.gbps
        rates = Counter(other.rate.gbps for other in self.alike if other.active)
        fastest = max(rates)
        known = self.view.rate_gbps if self.view and 0 < (self.view.rate_gbps or 0) < inf else None
        expected = max(known, rate) if known else rate if len(self.alike) > 1 else None
        said = list(self.port.rate.doubts)
        if rate < fastest:
            said.append(f"{rates[fastest]} of {sum(rates.values())} ports of its kind run at {fastest:g}")
            if 2 * rates[fastest] > sum(rates.values()):
                expected = max(expected or 0.0, fastest)
        if known and rate > known:
            said.append(f"faster than in the inventory ({known:g})")
        return self._told("rate", _plain(rate), None if expected is None else _plain(expected), "Gb/s", said=said)

    def _width(self) -> Iterator[Measurement]:
        """InfiniBand ports have four lanes, or two where one was split on purpose; Ethernet has any number."""
        rate = self.port.rate
        if rate.lanes is None or self.port.layer != INFINIBAND:
            return
        right = f"{rate.lanes}X" if rate.lanes >= 4 else "4X"
        said = []
        if rate.lanes < 4:
            same = all(other.rate.lanes == rate.lanes for other in self.alike if other.active)
            if rate.lanes == 2 and rate.speed in _SPLIT and same:
                right = f"{rate.lanes}X"
                said.append(f"{rate.lanes} of 4 lanes, as of a port that was split")
        yield self._told("width", f"{rate.lanes}X", right, said=said)

    def _lids(self) -> Iterator[Measurement]:
        if self.port.layer != INFINIBAND:
            return
        for key in ("lid", "sm_lid"):
            if key in self.port.told:
                lid = self.port.lid(key)
                good = 0 < lid <= MOST_LID or lid > 0xFFFF       # longer ones are Omni-Path's
                yield self._told(key, "assigned" if good else f"{lid}: none", "assigned")
                if key == "sm_lid" and good:
                    yield self._told("sm_lid_number", lid, None, key=False)


def _plain(number: float) -> float:
    return int(number) if number == int(number) else number


def folded(found: Sequence[Measurement], where: Subject) -> list[Measurement]:
    """What is good and the same on all ports becomes one line for the node; everything else keeps its port."""
    groups: dict[str, list[Measurement]] = {}
    for m in found:
        groups.setdefault(m.name, []).append(m)
    kept: list[Measurement] = []
    for group in groups.values():
        plain: dict[object, list[Measurement]] = {}
        for m in group:
            if m.warnings or (m.expected is not None and m.value != m.expected):
                kept.append(m)
            else:
                plain.setdefault((m.value, m.expected, m.key), []).append(m)
        kept += [replace(same[0], subject=where) if len(same) > 1 else same[0] for same in plain.values()]
    return kept
