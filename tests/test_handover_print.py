"""The documents as Chromium prints them: pages that are stamped, numbered and not empty."""

import datetime
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from handover_runs import cluster

from hpcadmin.handover.build import build
from hpcadmin.handover.criteria import Terms
from hpcadmin.handover.page import render
from hpcadmin.report import Options, formats
from hpcadmin.rundata import read_run

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((found for name in NAMES if (found := shutil.which(name))), "")
pytestmark = [pytest.mark.deep, pytest.mark.skipif(
    not CHROMIUM or not shutil.which("pdftotext"), reason="needs chromium, and pdftotext of poppler-utils")]


def printed(page: Path) -> list[str]:
    """The text of each page."""
    pdf = page.with_suffix(".pdf")
    subprocess.run([CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-pdf-header-footer",
                    f"--user-data-dir={page.parent / 'profile'}", f"--print-to-pdf={pdf}", page.as_uri()],
                   check=True, capture_output=True, timeout=120)
    text = subprocess.run(["pdftotext", "-layout", str(pdf), "-"], check=True, capture_output=True, text=True).stdout
    return text.rstrip("\f").split("\f")


@pytest.mark.parametrize("form", ["en", "zh", "plain"])
def test_each_page_is_stamped_numbered_and_not_empty(form: str, tmp_path: Path) -> None:
    run = read_run(cluster(tmp_path / "run", 20, most_rounds=5, simulated="8xH100"))
    page = tmp_path / "page.html"
    page.write_text(formats()["html"].render(run, Options()) if form == "plain"
                    else render(build(run, Terms(), datetime.date(2026, 11, 30)), form), encoding="utf-8")
    pages = printed(page)
    stamp = {"en": "SIMULATED: 8xH100", "zh": "模拟硬件: 8xH100", "plain": "Simulated hardware: 8xH100"}[form]
    number = {"en": r"Page {} of {}", "zh": r"第 *{} *页，共 *{} *页", "plain": r"Page {} of {}"}[form]  # noqa: RUF001
    assert len(pages) > 2
    for place, text in enumerate(pages, 1):
        assert stamp in text, f"page {place} is not stamped"
        assert re.search(number.format(place, len(pages)), text), f"page {place} has no number"
        assert "run" in text
        assert len(text.split()) > 20, f"page {place} is nearly empty"
