"""The error counters of RDMA ports: what has grown between two readings, and what had come together before."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Union

from hpcadmin.check import Measurement, Subject
from hpcadmin.checklib.links import INFINIBAND, Port
from hpcadmin.text import printable

# Error counters, where each of them stays once it is full (IBTA PortCounters: 4, 8 or 16 bits), and how many there may
# be before the test: the thresholds that infiniband-diags proposes (etc/error_thresholds).
ERRORS = {
    "symbol_error": (0xFFFF, 10), "link_error_recovery": (0xFF, 10), "link_downed": (0xFF, 10),
    "port_rcv_errors": (0xFFFF, 10), "port_rcv_remote_physical_errors": (0xFFFF, 100),
    "port_xmit_discards": (0xFFFF, 100), "port_xmit_constraint_errors": (0xFF, 100),
    "port_rcv_constraint_errors": (0xFF, 100), "local_link_integrity_errors": (0xF, 10),
    "excessive_buffer_overrun_errors": (0xF, 10), "VL15_dropped": (0xFFFF, 100),
}
# Of /sys/…/hw_counters: packets that came damaged.
DAMAGED = ("rx_icrc_encapsulated",)
# Packets sent again or out of turn, by the names of several drivers: a fabric that loses nothing has none.
AGAIN = (
    "out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err", "implied_nak_seq_err",
    "roce_adp_retrans", "roce_adp_retrans_to", "roce_slow_restart", "roce_slow_restart_trans",
    "req_transport_retries_exceeded", "completer_retry_err", "rcvd_seq_err", "out_of_seq_request",
    "retry_exceeded_err", "send_err", "to_retransmits", "seq_err_naks_rcvd", "max_retry_exceeded", "rx_drops",
    "retrans_pkts", "retrans_timeout_events",
)
TRAFFIC = ("port_xmit_data", "port_rcv_data")          # in 4 bytes each
PACKETS = ("port_xmit_packets", "port_rcv_packets", "hw sent_pkts", "hw rcvd_pkts", "hw tx_pkts", "hw rx_pkts")
WAIT = "port_xmit_wait"                                # ticks in which a packet waited for credits: no error
COUNTERS = (*ERRORS, *TRAFFIC, *PACKETS[:2], WAIT)
HW_COUNTERS = ("link_downed", *DAMAGED, *AGAIN, *(name[3:] for name in PACKETS[2:]))
_KNOWN = {*COUNTERS, *(f"hw {name}" for name in HW_COUNTERS)}
_FULL = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
_COUNT = re.compile(r"[0-9]{1,20}\Z")
_NONE = "N/A (no PMA)"

Counted = Union[int, str]


def value(port: Port, name: str) -> Counted | None:
    """The count, or why it is none; None where it is not told."""
    text = port.counts.get(name)
    if text is None or text == "0":
        return None if text is None else 0
    if not _COUNT.match(text):
        return f"{printable(text, limit=40)!r} is not a count"
    count = int(text)
    full = ERRORS.get(name.removeprefix("hw "), (0, 0))[0] if not name.startswith("hw ") else 0
    if count in _FULL or (full and count == full):
        return f"stands at {count}, where it is full"
    if count > _FULL[1]:
        return f"{count} is more than 64 bits hold"
    return count


def strange(port: Port) -> list[str]:
    """Counters whose value is none: the text is damaged."""
    return [f"{port.name}: {name.removeprefix('hw ')} is {printable(text, limit=40)!r}, which is not a count"
            for name, text in port.counts.items()
            if text != "0" and name in _KNOWN and text != _NONE and not _COUNT.match(text)]


def without(port: Port) -> bool:
    """Whether the port has no error counter at all, and says so. A card of Ethernet may count in its own way only."""
    told = [port.counts.get(name) for name in ERRORS]
    hardware = port.told.get("link_layer") != INFINIBAND and any(name.startswith("hw ") for name in port.counts)
    return not hardware and all(text in (None, _NONE) for text in told)


def error_names(port: Port) -> list[str]:
    """The error counters that it has."""
    if all(port.counts.get(name) in (None, _NONE) for name in ERRORS):
        own = ["hw link_downed"] if "hw link_downed" in port.counts else []     # of Soft-RoCE, which has no others
    else:
        own = list(ERRORS)
    return [*own, *(f"hw {name}" for name in DAMAGED if f"hw {name}" in port.counts)]


def so_far(port: Port, subject: Subject) -> Iterator[Measurement]:
    """What had come together since the counters were cleared: never a failure by itself."""
    shown, said = [], []
    for name in error_names(port):
        count, plain = value(port, name), name.removeprefix("hw ")
        if isinstance(count, int):
            if count:
                yield Measurement(f"{plain}_so_far", count, "count", subject=subject, key=False)
            most = ERRORS.get(plain, (0, 10))[1]
            if count > most:
                said.append(f"{plain} {count} so far, usual are at most {most}")
                shown.append(f"{plain} {count}")
        elif count is not None:
            said.append(f"{plain} {count}")
            shown.append(f"{plain} {count}")
    names = [name for name in error_names(port) if name not in port.counts]
    if names:
        said.append(f"{', '.join(names)} not told")
        shown.append("not all told")
    if without(port):
        shown, said = ["not counted"], ["it has no error counters: nothing is known of its errors"]
    text = "; ".join(shown) or "few"
    yield Measurement("errors_so_far", text, subject=subject, expected=text, warnings=tuple(said))


def grown(looks: Sequence[Port], seconds: float, subject: Subject) -> Iterator[Measurement]:
    """What has grown between the first and the last; `errors` is 0 where none has. A count that cannot be told is a
    text where a number is expected: an error."""
    before, now = looks[0], looks[-1]
    names = list(dict.fromkeys(name for port in looks for name in error_names(port)))
    found = [_grown(name, counts, seconds, subject) for name in names
             if (counts := [value(port, name) for port in looks]) != [counts[0]] * len(counts)
             or not isinstance(counts[0], int)]          # most stand where they were
    yield from (m for m in found if m.value != 0)
    if names and all(m.value == 0 for m in found):
        yield Measurement("errors", 0, "count", subject=subject)
    again, told = [], {*before.counts, *now.counts}
    for plain in AGAIN:
        if f"hw {plain}" not in told:
            continue
        more = _difference(value(before, f"hw {plain}"), value(now, f"hw {plain}"))
        usual = plain == "out_of_sequence" and now.told.get("link_layer") == INFINIBAND    # adaptive routing does that
        if more and not usual:
            again.append(f"{plain} {more}")
    text = ", ".join(again) or "none"
    said = (f"packets were sent again or came out of turn: {text}",) if again else ()
    yield Measurement("sent_again", text, subject=subject, expected=text, warnings=said)
    moved = traffic_mib(before, now)
    if moved is not None:
        yield Measurement("traffic", moved, "MiB", subject=subject, key=False)
    waited = _difference(value(before, WAIT), value(now, WAIT))
    if isinstance(waited, int) and waited:
        yield Measurement(WAIT, waited, "count", subject=subject, key=False)


def _grown(name: str, counts: Sequence[Counted | None], seconds: float, subject: Subject) -> Measurement:
    plain, before, now = name.removeprefix("hw "), counts[0], counts[-1]
    why = next((f"{plain} {count}: whether it grows cannot be seen" for count in reversed(counts)
                if isinstance(count, str)), "")
    if not why and None in counts:
        why = f"{plain} is not told in both readings"
    known = [count for count in counts if isinstance(count, int)]
    fell = next((pair for pair in pairwise(known) if pair[1] < pair[0]), None)
    if not why and fell:
        why = f"{plain} fell from {fell[0]} to {fell[1]}: it was cleared in between"
    if why or not isinstance(before, int) or not isinstance(now, int):
        return Measurement(plain, "unknown", subject=subject, expected=0, warnings=(why,))
    said = (f"from {before} to {now} within {seconds:.0f} s",) if now > before else ()
    return Measurement(plain, now - before, "count", subject=subject, warnings=said)


def _difference(before: Counted | None, now: Counted | None) -> Counted | None:
    if before is None and now is None:
        return None
    if not isinstance(before, int) or not isinstance(now, int):
        return "unknown"
    return now - before if now >= before else "unknown"


def traffic_mib(before: Port, now: Port) -> int | None:
    """What passed the port in both directions, None where that is not told."""
    moved = [_difference(value(before, name), value(now, name)) for name in TRAFFIC]
    counts = [more for more in moved if isinstance(more, int)]
    return sum(counts) * 4 // 2 ** 20 if len(counts) == len(TRAFFIC) else None


def idle(before: Port, now: Port) -> bool:
    """Whether nothing at all passed the port, as far as it counts."""
    moved = [_difference(value(before, name), value(now, name)) for name in (*TRAFFIC, *PACKETS)]
    return any(more == 0 for more in moved) and not any(moved)
