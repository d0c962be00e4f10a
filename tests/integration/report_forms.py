"""What the forms of a report say of one measurement, and what the raw outputs of the run say: read by other programs'
readers, and the raw outputs by a few lines that share nothing with hpcadmin."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import openpyxl
from markdown_it import MarkdownIt
from prometheus_client.parser import text_string_to_metric_families

Row = tuple[str, int, float]        # test, message size, value
ROOT = Path(__file__).resolve().parents[2]
FORMS = ("csv", "html", "json", "junit", "markdown", "prometheus", "table", "xlsx")
_FRAME = re.compile(rb"HPCADMIN-FRAME 1 id=(\S+) .* status=(\S+) .* bytes=(\d+) crc=\d+ flags=\S+\n")


def outputs_of(run: Path, name: str = "*.log") -> list[tuple[str, str]]:
    """(test, text) of all outputs in the jobs' logs: a header says how many bytes come."""
    found = []
    for log in sorted(run.glob(f"jobs/*/{name}")):
        raw, at = log.read_bytes(), 0
        while match := _FRAME.match(raw, at):
            at = match.end() + int(match[3])
            found.append((match[1].decode(), raw[match.end():at].decode()))
            at += 1
        assert at == len(raw), f"{log}: something else at byte {at}"
    return found


def rows_of(run: Path, read: Callable[[Sequence[str]], tuple[int, float] | None]) -> Counter[Row]:
    """read: (size, value) of the words of a line, None for lines that have none."""
    return Counter((test, *value) for test, text in outputs_of(run) for line in text.splitlines()
                   if (value := read(line.split())) is not None)


def form_rows(texts: Mapping[str, bytes], check: str, name: str, factor: float = 1e6) -> dict[str, Counter[Row]]:
    """The same of the forms that have every value; test "" where a form does not say it. factor: of Prometheus."""
    lines = csv.DictReader(io.StringIO(texts["csv"].decode()))
    told = json.loads(texts["json"])
    jsonschema.validate(told, json.loads((ROOT / "docs/report.schema.json").read_text()))
    sheet = openpyxl.load_workbook(io.BytesIO(texts["xlsx"]))["Values"]
    head, *cells = [list(line) for line in sheet.iter_rows(values_only=True)]
    workbook = [dict(zip(head, line, strict=True)) for line in cells]
    samples = [s for family in text_string_to_metric_families(texts["prometheus"].decode()) for s in family.samples]
    return {
        "csv": Counter((r["test"], int(r["size_bytes"]), float(r["value"])) for r in lines
                       if (r["kind"], r["check"], r["measurement"]) == ("measurement", check, name)),
        "json": Counter((m["test"], m["measurement"]["size_bytes"], m["measurement"]["value"])
                        for m in told["measurements"] if (m["check"], m["measurement"]["name"]) == (check, name)),
        "xlsx": Counter((r["test"], r["size_bytes"], r["value"]) for r in workbook
                        if (r["kind"], r["check"], r["measurement"]) == ("measurement", check, name)),
        "prometheus": Counter(("", int(s.labels["size_bytes"]), round(s.value / factor, 6)) for s in samples
                              if s.name.startswith("hpcadmin_measured") and s.labels["check"] == check
                              and s.labels["measurement"] == name)}


def junit_values(text: bytes, check: str, name: str) -> set[float]:
    """Judged values as the test cases say them."""
    root = ElementTree.fromstring(text)  # noqa: S314  (our own)
    said = " ".join("\n".join([case.findtext("system-out") or "", *(e.get("message", "") for e in case)])
                    for case in root.iter("testcase") if check in (case.get("classname") or ""))
    return {float(found) for found in re.findall(rf"\b{re.escape(name)}: ([0-9.e+-]+) ", said)}


class _Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.loads: list[str] = []          # what a page would fetch

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "iframe", "object")
        self.loads += [v or "" for k, v in attrs if k in ("src", "srcset") or (k == "href" and tag == "link")]

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def page_text(page: bytes) -> str:
    """The words of a page that needs nothing else to be read."""
    reader = _Text()
    reader.feed(page.decode())
    assert [v for v in reader.loads if not v.startswith("data:")] == []
    return " ".join(" ".join(reader.words).split())


def markdown_text(text: bytes) -> str:
    return page_text(MarkdownIt("commonmark").enable("table").render(text.decode()).encode())


def shown(value: float) -> str:
    """Four digits, as people read them."""
    return f"{value:.4g}"
