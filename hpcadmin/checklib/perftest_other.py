"""Other forms of perftest's results: the JSON report, and the list of a wrapper that runs many pairs."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from hpcadmin.check import Measurement, ParseError, Reading
from hpcadmin.checklib import finite, shown
from hpcadmin.checklib.perftest_rows import UNITS, Row, bandwidth_row, latency_row

_BARE_KEY = re.compile(r"(?m)^\s{0,8}(sl)\s{0,4}:")        # the program forgets its quotes
_TIMES = {"t_min": "t_min[usec]", "t_max": "t_max[usec]", "t_typical": "t_typical[usec]", "t_avg": "t_avg[usec]",
          "t_stdev": "t_stdev[usec]", "percentile_99": "99% percentile[usec]",
          "percentile_99.9": "99.9% percentile[usec]", "tps_average": "tps average"}


def is_json(text: str) -> bool:
    return text.lstrip()[:1] == "{" and "\"test_info\"" in text[:4000]


def json_report(text: str) -> tuple[dict[str, str], Row]:
    """The head (by the names of the text form) and the row of a JSON report. ParseError when it is not whole."""
    try:
        found = json.loads(_BARE_KEY.sub(r'"\1":', text), parse_float=str, parse_int=str, parse_constant=str)
    except (ValueError, RecursionError) as exc:
        raise ParseError(f"the JSON report is cut off or broken: {shown(str(exc))}") from exc
    info, results = found.get("test_info"), found.get("results")
    if not isinstance(info, dict) or not isinstance(results, dict):
        raise ParseError("the JSON report has no test_info or no results")
    head = {name: str(info[key]) for name, key in (
        ("Device", "Device"), ("Link type", "Link_type"), ("Connection type", "Connection_type"), ("Mtu", "Mtu"),
        ("Number of qps", "Number_of_qps"), ("GID index", "GID_index"), ("rdma_cm QPs", "rdma_cm_QPs"),
        ("Transport type", "Transport_type")) if key in info}
    head["title"] = str(info.get("test", "")).replace("_", " ").replace("RDMA ", "RDMA_").replace(
        "CMP AND SWAP", "CMP_AND_SWAP").replace("FETCH AND ADD", "FETCH_AND_ADD").replace(" imm ", "_imm ")
    return head, _json_row(results)


def _json_row(results: dict[str, Any]) -> Row:
    for key in ("MsgSize", "n_iterations"):
        if not str(results.get(key, "")).isdigit():
            raise ParseError(f"the JSON report has no {key}")
    size, iterations = int(results["MsgSize"]), int(results["n_iterations"])
    for key, value in results.items():
        finite(str(value), key)
    if size < 1 or iterations < 1:
        raise ParseError(f"{iterations} iterations of {size} bytes")
    if "BW_average" not in results:
        if "t_avg" not in results:
            raise ParseError("the JSON report has neither a bandwidth nor a time")
        return latency_row(size, iterations, {_TIMES[k]: str(v) for k, v in results.items() if k in _TIMES})
    fitting = []
    for unit in ("Gb/sec", "MiB/sec"):
        table = {f"BW average[{unit}]": str(results["BW_average"]), "MsgRate[Mpps]": str(results.get("MsgRate", ""))}
        if "BW_peak" in results:
            table[f"BW peak[{unit}]"] = str(results["BW_peak"])
        try:
            fitting.append(bandwidth_row(size, iterations, table))
        except ParseError as exc:
            last = exc
    if not fitting:
        raise last
    if len(fitting) > 1 or "MsgRate" not in results:
        raise ParseError(f"the unit of {shown(str(results['BW_average']))} is not in the JSON report",
                         hint="the message rate does not show it either")
    return fitting[0]


_RESULTS = "results from rank"


def is_wrapper(lines: Sequence[str]) -> bool:
    return "config end" in lines or any(line.startswith(_RESULTS) for line in lines)


def wrapper(lines: Sequence[str], program: str) -> Reading:
    """A wrapper's list: a line of results for each line of pairs, without a unit."""
    command = next((line.split(": ", 1)[1] for line in lines
                    if line.startswith("The prefix of cmd to run is: ")), "")
    pairs = _between(lines, "config:", "config end")
    begin = next((n for n, line in enumerate(lines) if line.startswith(_RESULTS)), len(lines))
    given = [line for line in lines[begin + 1:] if line and set(line) <= set("0123456789.,-+eE ninfaNIFA")]
    problems = [f"a list of a wrapper around {shown(command or program)}, no table of perftest: the unit of its values "
                "is not in it"]
    if command and command.split()[0].rsplit("/", 1)[-1] != program:
        return Reading(problems=(f"not of {program}: {shown(command)}",))
    size = re.search(r"(?:^| )-s ?([0-9]{1,12})(?: |$)", command)
    found: list[Measurement] = []
    failed = total = 0
    for number, line in enumerate(pairs, 1):
        words = [word.strip() for word in given[number - 1].rstrip(", ").split(",")] if number <= len(given) else []
        asked = len(line.split(";"))
        total += asked
        failed += words.count("-1")
        if len(words) != asked:
            problems.append(f"line {number} of {len(pairs)} before \"config end\" has {asked} pairs, and "
                            f"{len(words)} results")
        for place, word in enumerate(words[:asked], 1):
            if word != "-1":
                found += _pair(word, int(size[1]) if size else None, f"config line {number} pair {place}", problems)
    usable = bool(found) and not failed and not any("is not" in p or "not within" in p for p in problems[1:])
    if not pairs:
        problems.append("no list of pairs up to \"config end\"")
    if len(given) > len(pairs):
        problems.append(f"{len(given)} lines of results for {len(pairs)} lines of pairs")
        usable = False
    if failed:
        quoted = next(line for line in given if "-1" in line.split(","))
        most = max((line for line in given if "-1" in line.split(",")), key=len, default=quoted)
        problems.append(f"{failed} of {total} pairs failed (-1): {shown(most)} after \"config end\"")
    values = [float(m.value) for m in found]
    note = f"{len(found)} of {total} pairs up to \"config end\" have a value" + (
        f", {min(values):g} to {max(values):g}" if values else "")
    return Reading(tuple(found), tuple(problems), usable, (note,))


def _pair(word: str, size: int | None, mode: str, problems: list[str]) -> list[Measurement]:
    try:
        value = finite(word, mode)
    except ParseError as exc:
        problems.append(str(exc))
        return []
    if not value:
        problems.append(f"{mode} is not above 0")
        return []
    return [Measurement("bw_pair", value, "", size, mode=mode, key=False)]


def _between(lines: Sequence[str], first: str, last: str) -> list[str]:
    if first not in lines or last not in lines:
        return []
    return [line for line in lines[lines.index(first) + 1:lines.index(last)] if line]


__all__ = ["UNITS", "is_json", "is_wrapper", "json_report", "wrapper"]
