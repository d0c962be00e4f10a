"""What mlxlink tells of one port, as measurements with what is expected."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from hpcadmin.check import Measurement, ParseError, PortView
from hpcadmin.checklib import finite, integer, shown
from hpcadmin.checklib.mlxlink import COUNTERS, EYE, MODULE, OPERATIONAL, SUPPORTED, TESTING, TROUBLE, Told

# Gb/s of one lane of InfiniBand.
LANES = {"SDR": 2.5, "DDR": 5.0, "QDR": 10.0, "FDR10": 10.0, "FDR": 14.0, "EDR": 25.0, "HDR": 50.0, "NDR": 100.0,
         "XDR": 200.0}
UP = ("LinkUp", "ETH_AN_FSM_ENABLE", "ETH_AN_FSM_AN_GOOD_CHECK", "Phy Up")
NOT_TOLD = ("N/A", "", "-", "Unspecified", "_N/A_")
# What the InfiniBand specification asks for, and what each cable of the vendor was tested to at the factory (NVIDIA,
# DGX SuperPOD cabling guide: less than one wrong bit of 1e12, of 1e15).
SPECIFIED, TESTED = 1e-12, 1e-15
_BER = re.compile(r"([0-9]{1,2}(?:\.[0-9]{1,3})?)[Ee]-([0-9]{1,3})\Z")
_RATE = re.compile(r"([0-9]{1,4}(?:\.[0-9])?)G(?:b?E)?(?:_([0-9])X)?\Z")
_IB = re.compile(r"(?:IB-)?([SDQFEHNX]DR(?:10)?)\Z")
_RANGE = re.compile(r"(.{1,200}?) ?\[(-?[0-9.]{1,12})\.\.(-?[0-9.]{1,12})\]\Z")
_LIST = re.compile(r"\(([^()]{0,400})\)\Z")
_FINE = re.compile(r"no issues? (?:was |were )?(?:observed|found)|\Aok\Z|\A\Z", re.IGNORECASE)
_FAULTS = ("Module FW Fault", "DataPath FW Fault", "Tx Fault [per lane]", "Tx LOS [per lane]", "Tx CDR LOL [per lane]",
           "Rx LOS [per lane]", "Rx CDR LOL [per lane]", "Tx Adaptive EQ Fault [per lane]")
_NAMES = ("Identifier", "Vendor Name", "Vendor Part Number", "Vendor Serial Number")
_OPTICS = (("Temperature [C]", "module_temperature", "C"), ("Voltage [mV]", "module_voltage", "mV"),
           ("Bias Current [mA]", "bias", "mA"), ("Rx Power Current [dBm]", "rx_power", "dBm"),
           ("Tx Power Current [dBm]", "tx_power", "dBm"))


def rate_of(speed: str, lanes: int) -> float | None:
    """Gb/s of a port with this word for its speed: InfiniBand by lane ("IB-NDR"), Ethernet as a whole ("400G")."""
    infiniband, ethernet = _IB.match(speed), _RATE.match(speed)
    if infiniband and infiniband[1] in LANES:
        return LANES[infiniband[1]] * lanes
    return float(ethernet[1]) if ethernet else None


def transport_of(speed: str) -> str:
    """How limits name it: "IB NDR", "Ethernet 400G"."""
    infiniband = _IB.match(speed)
    return f"IB {infiniband[1]}" if infiniband else f"Ethernet {speed.replace('bE', '').partition('_')[0]}"


def measured(told: Told, view: PortView | None) -> list[Measurement]:
    """All that is told. ParseError where a value that decides is none, or is contradicted by another one."""
    state = _needed(told, OPERATIONAL, "State")
    idle = view is not None and not view.up
    if state != "Active":
        return _down(told, state, idle=idle)
    if TESTING in told.sections or f"{COUNTERS} (PRBS)" in told.sections:
        return [Measurement("state", "in PRBS test mode", expected="Active")]
    lanes = integer(_needed(told, OPERATIONAL, "Width").rstrip("xX"), "Width", least=1, most=16)
    speed = _needed(told, OPERATIONAL, "Speed")
    rate = rate_of(speed, lanes)
    if rate is None:
        raise ParseError(f"Speed is {shown(speed)!r}, which is no known speed")
    transport = transport_of(speed)
    found = [*_operational(told, view, rate, lanes), *_trouble(told), *_counters(told, rate, lanes), *_module(told),
             *_eye(told, lanes, rate)]
    return [replace(m, transport=transport) for m in found]


def _needed(told: Told, section: str, key: str) -> str:
    value = told.get(section, key)
    if value is None:
        raise ParseError(f"{section} has no {key}", hint="the output is cut, or of a version that is not known")
    return value


def _down(told: Told, state: str, *, idle: bool) -> list[Measurement]:
    _needed(told, OPERATIONAL, "Physical state")
    _needed(told, TROUBLE, "Recommendation")
    why = [f"{key}: {shown(value)}" for key in ("Recommendation", "Status Opcode")
           if (value := told.get(TROUBLE, key)) and value not in NOT_TOLD]
    why += told.said[:3]
    if idle:
        return [Measurement("state", shown(state), key=False), Measurement("unused", "not up in the inventory either",
                                                                           key=False)]
    return [Measurement("state", shown(state) or "nothing", expected="Active", warnings=tuple(why))]


def _operational(told: Told, view: PortView | None, rate: float, lanes: int) -> Iterator[Measurement]:
    physical, fec = (_needed(told, OPERATIONAL, key) for key in ("Physical state", "FEC"))
    loop, negotiated = (_needed(told, OPERATIONAL, key) for key in ("Loopback Mode", "Auto Negotiation"))
    yield Measurement("state", "Active", expected="Active")
    yield Measurement("physical_state", shown(physical), expected=physical if physical in UP else "LinkUp")
    best = _best(told, lanes)
    said = []
    if best is not None and rate < best:
        said.append(f"the port and its cable can {best:g} Gb/s")
    wanted = view.rate_gbps if view is not None else None
    yield Measurement("rate", rate, "Gb/s", expected=wanted or rate, warnings=tuple(said))
    yield Measurement("lanes", lanes, key=False)
    known = fec not in NOT_TOLD
    bare = fec.lower().replace("-", " ") == "no fec" and rate / lanes > 30      # four levels a symbol: never without
    yield Measurement("fec", shown(fec) or "nothing", expected=fec if known and not bare else "one")
    yield Measurement("loopback", shown(loop) or "nothing", expected="No Loopback")
    said = [] if negotiated == "ON" else [f"auto negotiation is {shown(negotiated) or 'not told'}"]
    yield Measurement("auto_negotiation", shown(negotiated), expected=shown(negotiated), warnings=tuple(said))


def _best(told: Told, lanes: int) -> float | None:
    """The fastest rate that both the port and the cable can, as far as they say so."""
    both: list[set[float]] = []
    for key, value in told.sections.get(SUPPORTED, {}).items():
        if key.startswith(("Enabled Link Speed", "Supported Cable Speed")):
            inside = _LIST.search(value)
            words = (inside[1] if inside else value).split(",")
            both.append({rate for word in words if (rate := rate_of(word.strip(), lanes)) is not None})
    return max(set.intersection(*both), default=None) if len(both) == 2 and all(both) else None


def _trouble(told: Told) -> Iterator[Measurement]:
    opcode, words = _needed(told, TROUBLE, "Status Opcode"), shown(_needed(told, TROUBLE, "Recommendation"))
    number = integer(opcode, "Status Opcode", most=65535)
    fine = bool(_FINE.search(words.rstrip(". ")))
    unknown = "not available" in words.lower()
    said = [] if fine else [words]
    if fine and number:
        said = [f"the recommendation is {words!r} all the same"]
    yield Measurement("status_opcode", number, expected=number if unknown and number else 0, warnings=tuple(said))


def ber(text: str, what: str) -> float:
    """A bit error rate as the tool writes it: one digit and a power of ten. 15E-255 is what it says for none."""
    match = _BER.match(text)
    if not match:
        raise ParseError(f"{what} is {shown(text)!r}, which is no bit error rate")
    digits, power = float(match[1]), int(match[2])
    if (digits, power) == (15, 255):
        return 0.0
    if not 0 < digits < 10 or power == 255:
        raise ParseError(f"{what} is {shown(text)}, which the tool never writes", hint="cut within a number?")
    value = float(f"{match[1]}e-{match[2]}")
    if value >= 0.5:
        raise ParseError(f"{what} is {shown(text)}: no link is up with every second bit wrong")
    return value


def _counters(told: Told, rate: float, lanes: int) -> Iterator[Measurement]:
    minutes = finite(_needed(told, COUNTERS, "Time Since Last Clear [Min]"), "Time Since Last Clear", most=1e9)
    errors = [integer(word.strip(), "Raw Physical Errors Per Lane", most=2 ** 64)
              for word in _needed(told, COUNTERS, "Raw Physical Errors Per Lane").split(",")]
    if len(errors) != lanes:
        raise ParseError(f"Raw Physical Errors Per Lane has {len(errors)} lanes, Width {lanes}")
    bits = minutes * 60 * rate * 1e9
    yield Measurement("since_clear", minutes, "min", key=False)
    proof = () if bits * SPECIFIED >= 3 else (
        f"only {minutes:g} minutes counted: that proves no BER of {SPECIFIED:g}",)
    yield from _rates(told, bits, proof)
    raw = ber(_needed(told, COUNTERS, "Raw Physical BER"), "Raw Physical BER")
    said = []
    if bits and sum(errors) > 100 and raw and not 0.03 < sum(errors) / bits / raw < 30:
        said.append(f"{sum(errors)} raw errors in {minutes:g} minutes do not make a raw BER of {raw:g}")
    if sum(errors) > 100 and not raw:
        said.append(f"{sum(errors)} raw errors, but no raw BER")
    yield Measurement("raw_ber", raw, "errors/bit", warnings=tuple(said))
    yield Measurement("raw_errors", sum(errors), "count", key=False)
    for key, name, words in (("Link Down Counter", "link_downs", "times the link went down"),
                             ("Link Error Recovery Counter", "link_recoveries", "times the link had to recover")):
        value = told.get(COUNTERS, key)
        if value is None or value in NOT_TOLD:
            yield Measurement(name, "not told", expected="not told", warnings=(f"no {key} is told",))
        else:
            count = integer(value, key)
            yield Measurement(name, count, expected=count, warnings=(f"{count} {words}",) if count else ())


def _rates(told: Told, bits: float, proof: tuple[str, ...]) -> Iterator[Measurement]:
    """Effective: after the error correction; symbol: after what was sent again, too, where the link does that."""
    speed = told.get(OPERATIONAL, "Speed") or ""
    again = (_IB.match(speed) or ["", ""])[1] in ("HDR", "NDR", "XDR")
    for kind, name in (("Effective Physical", "effective"), ("Symbol", "symbol")):
        count, value = told.get(COUNTERS, f"{kind} Errors"), told.get(COUNTERS, f"{kind} BER")
        if kind == "Symbol" and (count in NOT_TOLD or count is None) and (value in NOT_TOLD or value is None):
            if again:
                yield Measurement("symbol_ber", "not told", expected="not told", warnings=(
                    "no Symbol BER is told: what the applications see is not known",))
            continue
        if count is None or value is None:
            raise ParseError(f"{kind} Errors and {kind} BER are not both told")
        errors, rate = integer(count, f"{kind} Errors", most=2 ** 64), ber(value, f"{kind} BER")
        said = list(proof) if not rate else []
        if errors and not rate:
            said.append(f"{errors} {name} errors, but no {name} BER")
        if rate and not errors:
            said.append(f"{name} BER {rate:g}, but no {name} errors")
        final = kind == "Symbol" or not again
        if final and rate > TESTED:
            said.append(f"{name} BER {rate:g}: cables are tested to {TESTED:g}")
        yield Measurement(f"{name}_ber", rate, "errors/bit", warnings=tuple(said))
        yield Measurement(f"{name}_errors", errors, "count", key=False)


def _module(told: Told) -> Iterator[Measurement]:
    rows = told.sections.get(MODULE)
    if rows is None:
        yield Measurement("module", "not told", expected="not told", warnings=("nothing is told of the module",))
        return
    words = [rows[key] for key in (*_NAMES, "Cable Type") if rows.get(key, "") not in NOT_TOLD]
    lost = [key for key in (*_NAMES, *(key for key, _, _ in _OPTICS)) if key not in rows]
    said = [f"the module does not tell {', '.join(lost)}"] if lost else []
    yield Measurement("module", shown(", ".join(words)) or "N/A", expected=shown(", ".join(words)) or "N/A",
                      warnings=tuple(said))
    yield from _optics(rows)
    faults = [f"{key.partition(' [')[0]} {rows[key]}" for key in _FAULTS
              if rows.get(key, "N/A") not in NOT_TOLD and re.sub(r"[0,\s]|N/A", "", rows[key])]
    if rows.get("Module State", "N/A") not in (*NOT_TOLD, "Ready state"):
        faults.append(f"Module State {rows['Module State']}")
    paths = rows.get("DataPath state [per lane]", "N/A")
    if paths not in NOT_TOLD and set(re.split(r"\s*,\s*", paths)) - {"DPActivated", "N/A"}:
        faults.append(f"DataPath state {paths}")
    yield Measurement("module_faults", shown("; ".join(faults)) or "none", expected="none")


def _optics(rows: dict[str, str]) -> Iterator[Measurement]:
    """Within the thresholds of alarm that the module itself has. Copper tells N/A, and has none."""
    outside, without, values = [], [], False
    for key, name, unit in _OPTICS:
        value = rows.get(key, "N/A")
        if value in NOT_TOLD:
            continue
        match = _RANGE.match(value)
        lanes = [finite(word.strip(), key, least=-1000, most=1e6) for word in (match[1] if match else value).split(",")]
        values = True
        low, high = (finite(match[n], key, least=-1000, most=1e6) for n in (2, 3)) if match else (0.0, 0.0)
        if low < high:
            outside += [f"{key.partition(' [')[0]} {lane:g} {unit}, not within {low:g} and {high:g}" for lane in lanes
                        if not low <= lane <= high]
        else:
            without.append(key.partition(" [")[0])
        yield Measurement(name, min(lanes) if name.endswith("power") else max(lanes), unit, key=False)
    if not values:
        if rows.get("Digital Diagnostic Monitoring") == "Yes":
            yield Measurement("optics", "N/A", expected="within thresholds")
        return
    said = (f"no thresholds for {', '.join(without)}: not judged",) if without else ()
    yield Measurement("optics", shown("; ".join(outside[:4])) or "within thresholds", expected="within thresholds",
                      warnings=said)


def _eye(told: Told, lanes: int, rate: float) -> Iterator[Measurement]:
    """Shown where it is told, never judged. ParseError where it ends within."""
    titles = [title for title in told.sections if title.upper().startswith(EYE.upper())]
    for rows in (told.sections[title] for title in titles):
        four = rate / lanes > 30
        last = ["Phase Eye Opening [psec]"] if "Physical Grade" in rows else ["Upper Grades", *(
            ["Mid Grades", "Lower Grades"] if four else [])]
        lost = [key for key in last if key not in rows]
        if lost:
            raise ParseError(f"{titles[0]} ends before {lost[0]}", hint="the output is cut")
        if len(rows[last[-1]].split(",")) < lanes:
            raise ParseError(f"{last[-1]} is told of fewer than {lanes} lanes", hint="the output is cut")
        grades = next((rows[key] for key in ("Physical Grade", "Lower Grades", "Upper Grades") if key in rows), "")
        yield Measurement("eye", shown(grades), key=False)


def problems(found: Sequence[Measurement]) -> list[str]:
    """What is not as it should be, in words."""
    return [f"{m.name} is {m.value}, not {m.expected}" + (f" ({'; '.join(m.warnings)})" if m.warnings else "")
            for m in found if m.expected is not None and m.value != m.expected]
