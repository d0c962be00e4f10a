"""Damaged outputs of iperf and ping: what is damaged never passes, a changed digit gives what the row then says.

    python tests/test_corrupt_ethernet.py        # how many of which damage got which verdict
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

import pytest
from check_samples import Sample, sound_samples

from hpcadmin.check import Check, Limit, ParseError, Status, Subject
from hpcadmin.judge import judge
from hpcadmin.registry import load_checks
from hpcadmin.rundata import PlannedTest, TestResult

NO_NUMBERS = ("nan", "inf", "-inf", "-7", "1,024.5", "9,41", "0x10", "1e999", "--", "")
ERRORS = ("iperf3: error - unable to connect to server: Connection refused\n",
          "iperf3: interrupt - the client has terminated\n", "iperf3: error - the server is busy running a test\n",
          "srun: error: node01: task 0: Segmentation fault (core dumped)\n",
          "slurmstepd: error: *** STEP 7.0 ON node01 CANCELLED AT 2026-11-30T10:00:00 DUE TO TIME LIMIT ***\n",
          "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0\n",
          "[  71.2] Out of memory: Killed process 4711 (iperf3)\n")
# Lines of a JSON that nothing is taken from may go; these may not.
NEEDED = re.compile(r'\t"(?:(?:start|end)":\t\{|(?:intervals|streams|sum|sum_sent|sum_received|connected|test_start'
                    r'|protocol|num_streams|sender|receiver|udp)":)|[{}\]]')
COUNTED = re.compile(r'\t"(?:seconds|bytes|bits_per_second|lost_packets|packets|lost_percent|jitter_ms|num_streams)":')


@dataclass(frozen=True)
class Case:
    """A sound output with its run, and the bound that its value reaches just so."""

    name: str
    check: Check
    sample: Sample
    limits: tuple[Limit, ...]

    @property
    def text(self) -> str:
        return self.sample.text

    def verdict(self, text: str | None = None, **end: object) -> Status:
        outputs = self.sample.outputs(text)
        at = len(outputs) - 1
        outputs[at] = replace(outputs[at], **end)
        test = PlannedTest("t1", self.check.name, Subject(("node01", "node02")), (), 1)
        try:
            result = TestResult(test, tuple(self.check.parse(outputs, self.sample.context)))
        except ParseError as exc:
            result = TestResult(test, (), str(exc))
        return max((v.status for v in judge([result], self.limits)), key=lambda status: status.rank)


def limits_of(check: Check, sample: Sample) -> tuple[Limit, ...]:
    measured = check.parse(sample.outputs(), sample.context)
    least = min((float(m.value) for m in measured if m.name == "bandwidth" and m.key), default=1.0)
    return (Limit(check.name, "bandwidth", "Gb/s", min=0.98 * least, source="the sample", date="2026-11-30"),
            Limit(check.name, "loss", "%", max=0.1, source="the sample", date="2026-11-30"))


@cache
def cases() -> tuple[Case, ...]:
    check = load_checks()["ethernet"]
    return tuple(Case(s.path.stem, check, s, limits_of(check, s)) for s in sound_samples()
                 if s.check == "ethernet" and s.path.stem.startswith("whole") and s.path.stem not in (
                     "whole_iperf2", "whole_iperf2_csv"))        # say not when they end: never better than WARN


def structural(case: Case) -> Iterator[tuple[str, str]]:
    """(what was done, the damaged text). None of them may pass."""
    text = case.text
    lines = text.splitlines(keepends=True)
    step = max(1, len(lines) // 150)
    yield from (("cut at a line", "".join(lines[:n])) for n in range(0, len(text.rstrip().splitlines()), step))
    yield from (("cut within a line", text[:n])
                for n in range(0, len(text.rstrip()) - 1, max(1, len(text) // 300)))
    is_json = '"test_start"' in text
    end = max((n for n, line in enumerate(lines) if line.startswith('\t"end"')), default=0)
    for n, line in enumerate(lines):
        without = "".join(lines[:n] + lines[n + 1:])
        heads = case.name == "whole_iperf2_udp" and "Interval" in line      # it may have one or two of them
        inside = NEEDED.search(line) and "cpu_util" not in line and n < len(lines) - 1 and "server_" not in line
        if (inside if is_json else needed_text(line)) and not heads:
            yield "line lost", without
            if not is_json or '": ' not in line.replace("\t", " "):
                yield "line doubled", "".join([*lines[:n + 1], *lines[n:]])
        if any(word in line for word in (" connected ", "onnecting to", "PING ")):
            continue                                     # names, addresses and ports
        wanted = (n > end and COUNTED.match(line.replace("\t\t", "\t").replace("\t\t", "\t"))) if is_json \
            else needed_text(line)
        if wanted:
            for place in list(re.finditer(r"(?<![\w.:/\[])\d[\d.]*(?![\w.:\]])", line))[:8]:
                for bad in NO_NUMBERS:
                    yield f"number is {bad or 'lost'}", "".join(
                        [*lines[:n], line[:place.start()] + bad + line[place.end():], *lines[n + 1:]])
            yield from (("unit changed", text.replace(line, line.replace(a, b, 1), 1)) for a, b in (
                ("Gbits", "Mbits"), ("Mbits", "Kbits"), ("Gbits", "GBytes"), ("MBytes", "GBytes")) if a in line)
    for error in ERRORS:
        yield "error line before", error + text
        yield "error line after", text + error
    half = "".join(lines[:len(lines) // 2])
    yield from (("two runs", joined) for joined in (text + text, text + half, half + text))
    if is_json and "# hpcadmin" not in text:
        error = '"error":\t"interrupt - the server has terminated"'
        yield "an error of its own", re.sub(r"\n\}\s*\Z", f",\\n\\t{error}\\n}}\\n", text)


def needed_text(line: str) -> bool:
    """Lines without which a text of iperf or ping tells less."""
    words = (" connected ", "sender", "receiver", "iperf Done", "Server Report", "/sec", "Interval", "transmitted,",
             "Connecting to", "Client connecting", "PING")
    return any(word in line for word in words) and "(omitted)" not in line


def by_hand(text: str, limits: tuple[Limit, ...]) -> bool | None:
    """What a reader of the end of one JSON says, in a few lines of its own; None where it is not one."""
    try:
        doc = json.loads(text)
        end, asked = doc["end"], doc["start"]["test_start"]
    except (ValueError, KeyError):
        return None
    rows = [end[k] for k in ("sum_sent", "sum_received")] + ([end["sum"]] if "sum" in end else [])
    near = all(r["seconds"] and abs(r["bytes"] * 8 / r["seconds"] - r["bits_per_second"])
               <= 0.02 * r["bits_per_second"] for r in rows)
    long = min(r["seconds"] for r in rows[:2]) >= 0.9 * asked["duration"]
    if asked["protocol"] == "TCP":
        return near and long and end["sum_received"]["bits_per_second"] / 1e9 >= (limits[0].min or 0)
    got = end["sum_received"]
    return near and long and got["packets"] >= 1000 and got["lost_packets"] == end["sum"]["lost_packets"] == sum(
        s["udp"]["lost_packets"] for s in end["streams"]) and got["lost_packets"] <= got["packets"] / 1000


def digits(case: Case) -> Iterator[tuple[str, bool]]:
    """(a JSON with one digit of the received sum changed, whether it then still is good by hand)."""
    if '"test_start"' not in case.text or "# hpcadmin" in case.text:
        return
    begin = case.text.rindex('"sum_received"')
    for place in re.finditer(r'"(seconds|bits_per_second|lost_packets|packets)":\t(\d[\d.]*)', case.text[begin:]):
        for at in range(*place.span(2)):
            old = case.text[begin + at]
            for new in {"1", "9", str((int(old) + 1) % 10)} - {old} if old.isdigit() else ():
                text = case.text[:begin + at] + new + case.text[begin + at + 1:]
                good = by_hand(text, case.limits)
                if good is not None:
                    yield text, good


NAMES = [case.name for case in cases()]
pytestmark = pytest.mark.deep


@pytest.mark.parametrize("case", cases(), ids=NAMES)
def test_whole(case: Case) -> None:
    assert case.verdict() is Status.PASS


@pytest.mark.parametrize("case", cases(), ids=NAMES)
def test_structural_damage_never_passes(case: Case) -> None:
    done = [(what, text) for what, text in structural(case) if text != case.text]
    assert len(done) >= 200
    for what, text in done:
        assert case.verdict(text) is not Status.PASS, (what, text)


def test_a_changed_digit_gives_what_the_row_then_says() -> None:
    done = 0
    for case in cases():
        for text, good in digits(case):
            done += 1
            assert not (case.verdict(text) is Status.PASS and not good), text[text.rindex('"sum_received"'):]
            if good:
                assert case.verdict(text) in (Status.PASS, Status.WARN), text[text.rindex('"sum_received"'):]
    assert done > 50


@pytest.mark.parametrize("case", cases(), ids=NAMES)
@pytest.mark.parametrize("end", [{"exit_status": 1}, {"exit_status": None}, {"exit_status": 137}, {"timed_out": True},
                                 {"truncated": True}], ids=str)
def test_a_bad_end_never_passes(case: Case, end: dict) -> None:
    assert case.verdict(**end) is not Status.PASS


@pytest.mark.parametrize("case", cases(), ids=NAMES)
def test_noise_changes_nothing(case: Case) -> None:
    text = case.text
    noise = b"\xff\xfe noise \x80\n".decode("utf-8", "replace") * 200
    for other in (text.replace("\n", "\r\n"), "".join(f"\x1b[1m{line}\x1b[0m\n" for line in text.split("\n")),
                  noise + text + noise):
        assert case.verdict(other) is Status.PASS


def test_ten_megabytes_of_noise() -> None:
    for case in cases()[:3]:
        assert case.verdict("a line of another program, 17 of 23\n" * 280_000 + case.text) is Status.PASS


def main() -> None:
    counts: Counter[tuple[str, str]] = Counter()
    for case in cases():
        counts.update((what, case.verdict(text).value) for what, text in structural(case) if text != case.text)
    for (what, status), count in sorted(counts.items()):
        sys.stdout.write(f"{what:<28} {status:<10} {count:>7}\n")


if __name__ == "__main__":
    main()
