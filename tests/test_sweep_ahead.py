"""What of [sweep] would go wrong every night is told before: at load, by sweep install, by sweep --dry-run."""

from __future__ import annotations

from pathlib import Path

import pytest
from looped import looped

from hpcadmin.errors import SiteError
from hpcadmin.site import Site, load_site
from hpcadmin.sweep.ahead import ahead, untested


def site_of(folder: Path, *lines: str) -> Site:
    path = folder / "site.toml"
    path.write_text("\n".join(["[sweep]", *lines, ""]))
    return load_site(str(path))


@looped("line, message", [
    ("nice = 2147483646", "sweep.nice must be at most 2147483645"),
    ("nice = 99999999999999999999999999", "sweep.nice must be at most 2147483645"),
    (f"strike_days = 1{'0' * 400}", "sweep.strike_days must be at most 3650"),
    (f"night_nodes = 1{'0' * 400}", "sweep.night_nodes must be at most 1000000"),
    (f"again = -1{'0' * 400}", "sweep.again must be at least 0"),
    ("health_s = 1e300", "sweep.health_s must be at most 3600"), ("answer_s = nan", "answer_s is nan, not a number"),
    ("health_hours = inf", "health_hours is inf, not a number"),
    ('health_dir = "results"', "sweep.health_dir must be a whole path"),
    ('suite = "ours.toml"', "sweep.suite must be a whole path"),
    ('suite = "site/ours"', "sweep.suite must be a whole path"),
])
def test_what_cannot_be_followed_is_told_when_the_file_is_read(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(SiteError, match=message) as caught:
        site_of(tmp_path, "resume = true", line)
    assert caught.value.where == f"{tmp_path}/site.toml:3"


@looped("line", ["nice = 2147483645", "nice = 0", 'health_dir = "~/results"', 'suite = "nightly"',
                 "suite_minutes = 10080"])
def test_what_can_is_taken(tmp_path: Path, line: str) -> None:
    assert site_of(tmp_path, line).sweep


@looped("lines, line, message", [
    (('suite = "nihgtly"',), 2, "sweep.suite: unknown suite 'nihgtly'"),
    (("resume = true", 'suite = "/nowhere/ours.toml"'), 3, "sweep.suite: no suite file '/nowhere/ours.toml'"),
    (("[sweep.alarms.mial]", "to = []"), 2, "is no kind of channel"),
])
def test_a_mistake_is_refused_before_it_is_installed(tmp_path: Path, lines: tuple[str, ...], line: int,
                                                     message: str) -> None:
    site = site_of(tmp_path, *lines)
    with pytest.raises(SiteError, match=message) as caught:
        ahead(site, 1000)
    assert caught.value.where == f"{tmp_path}/site.toml:{line}"
    if "suite" in message:
        assert untested(site, 1000) == str(caught.value)


def test_what_the_night_will_lack_is_said(tmp_path: Path) -> None:
    lines = ('suite = "nightly"', f'health_dir = "{tmp_path}/none"', "[sweep.alarms.webhook]",
             'url = "https://example.org/x"', 'token_env = "TOKEN"', "[sweep.alarms.slack]", 'url_env = "HOOK"')
    site = site_of(tmp_path, *lines)
    assert [line.removeprefix(f"{tmp_path}/site.toml:") for line in ahead(site, 0)] == [
        "2: sweep.suite: as root no jobs are submitted ([sweep] suite_as_root = true, or another user for the sweep: "
        "sweep install --user)",
        f"3: sweep.health_dir: {tmp_path}/none is not a folder",
        "6: sweep.alarms.webhook.token_env: neither systemd nor cron gives the sweep a variable $TOKEN; a file may be "
        "named instead",
        "8: sweep.alarms.slack.url_env: neither systemd nor cron gives the sweep a variable $HOOK; a file may be named "
        "instead"]
    (tmp_path / "none").mkdir()
    assert len(ahead(site, 1000)) == 2
    assert ahead(site_of(tmp_path, 'suite = "nightly"', "suite_as_root = true"), 0) == []
    assert untested(site_of(tmp_path), 0) == ""
