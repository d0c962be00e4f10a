"""The report that nccl-tests writes with -J FILE.json, as a run. Its environment and arguments are not kept."""

from __future__ import annotations

import re
from typing import Any

from hpcadmin.check import ParseError
from hpcadmin.checklib import finite, positive, strict_json
from hpcadmin.checklib.nccl_run import IN, OUT, TYPE_BYTES, Half, Header, Params, Rank, Row, Run

_START = re.compile(r"(?:\A|\n)[ \t\ufeff]{0,16}\{(?=\s{0,64}(?:[\"}]|\Z))")
_TABLE = re.compile(r"algbw[ \t]{1,16}busbw")
_PLACE = 1e-6               # numbers have six decimals
_NAMES = ("size", "count", "type", "redop", "root", *("time", "algbw", "busbw", "#wrong") * 2)


def start_of(text: str) -> int | None:
    """Where a report begins: the tool writes it without a line end within. Other JSON may stand beside a table."""
    match = _START.search(text)
    if match is None or "# nThread" in text[:match.end()]:
        return None
    return match.end() - 1 if '"minimum_bytes"' in text or not _TABLE.search(text) else None


def run_of(text: str, start: int) -> tuple[Run, tuple[str, ...], str]:
    """The run, the errors that NCCL reported at its end, and the text around. ParseError where it is not one whole."""
    try:
        report, end = strict_json.decoder().raw_decode(text, start)
    except (ValueError, RecursionError) as exc:
        raise ParseError(f"the JSON report is not whole: {str(exc)[:120]}") from None
    around = f"{text[:start]}\n{text[end:]}"
    if "{" in around:
        raise ParseError("more than one JSON report, or something between them")
    if _TABLE.search(around):
        raise ParseError("a JSON report and a table in one text: two outputs, which may be of two runs")
    if not isinstance(report, dict) or "config" not in report:
        raise ParseError("not a report of nccl-tests: no config")
    run = Run(json=True)
    try:
        _fill(run, report)
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise ParseError(f"the JSON report lacks something or has another form: {str(exc)[:120]}") from None
    errors = report.get("errors", [])
    return run, tuple(str(e) for e in errors if e) if isinstance(errors, list) else ("errors is no list",), around


def _fill(run: Run, report: dict[str, Any]) -> None:
    config = report["config"]
    factor = "step_factor" in config
    run.params.append(Params(_whole(config["minimum_bytes"]), _whole(config["maximum_bytes"]),
                             _whole(config["step_factor" if factor else "step_bytes"]), factor,
                             config["validation"] != 0))
    run.lists = 1
    for device in config.get("devices", []):
        run.ranks.append(Rank(_whole(device["rank"]), str(device["hostname"]).strip(), _whole(device["device"]),
                              str(device["device_hex"]).strip("[] ").lower(), str(device["device_info"]).strip()))
    program = str(report.get("args", [""])[0]) if report.get("args") else ""
    if program.endswith("_perf"):
        run.starts, run.ends = [program], [program]
    run.headers.append(Header(_NAMES, (OUT, IN), "ok"))
    for result in report.get("results") or []:
        try:
            run.rows.append(_row(run, result))
        except (ParseError, KeyError, TypeError) as exc:
            run.torn.append((f"a result is not whole: {str(exc)[:120]}", len(run.rows)))
    if isinstance(report.get("out_of_bounds"), dict):
        count, okay = report["out_of_bounds"]["count"], report["out_of_bounds"]["okay"]
        run.bounds.append((_whole(count), "OK" if okay in (True, "true") else "FAILED"))
    if isinstance(report.get("average_bus_bandwidth"), dict):
        average = report["average_bus_bandwidth"]
        verdict = {"true": "OK", "false": "FAILED"}.get(str(average.get("okay")).lower(), "")
        run.averages.append((_number(average["bandwidth"], "average bus bandwidth"), verdict))
    run.closed = "end_time" in report


def _row(run: Run, result: dict[str, Any]) -> Row:
    size, count = _whole(result["size"]), _whole(result["count"])
    kind, root = str(result["type"]), str(result["root"]).strip()
    if kind not in TYPE_BYTES:
        raise ParseError(f"unknown type {kind[:20]!r} at {size} bytes")
    modes = {}
    for mode, name in ((OUT, "out_of_place"), (IN, "in_place")):
        body = result[name]
        if body is not None:
            run.cputime = run.cputime or "cpu_time" in body
            wrong = body["nwrong"]
            time = _plain(body["time" if "time" in body else "cpu_time"])
            modes[mode] = Half(positive(time, f"time at {size} bytes"), _number(body["alg_bw"], "alg_bw"),
                               _number(body["bus_bw"], "bus_bw"),
                               None if wrong is None else _number(wrong, "nwrong"), (_PLACE, _PLACE, _PLACE))
    if not modes:
        raise ParseError(f"no values at {size} bytes")
    shown = f"{size} {count} {kind} {result['redop']} {root} " + " ".join(
        f"{m}: {h.time_us:g} us {h.algbw:g} {h.busbw:g} GB/s" for m, h in modes.items())
    return Row(size, count, TYPE_BYTES[kind], str(result["redop"]), root, modes, shown)


def _plain(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ParseError(f"{str(value)[:40]!r} is not a number")
    return f"{value:.6f}"


def _number(value: object, what: str) -> float:
    return finite(_plain(value), what)


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 10 ** 18:
        raise ParseError(f"{str(value)[:40]!r} is not a whole number")
    return value
