"""What is told when: once for each change, by every channel; retried, never lost; whoever is killed tells it again."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from hpcadmin import records
from hpcadmin.errors import SiteError
from hpcadmin.site import parse_site
from hpcadmin.sweep.alarms import config, tell
from hpcadmin.sweep.alarms.config import Alarms, Common, Post, read_alarms
from hpcadmin.sweep.alarms.model import AlarmError, Channel, Facts, Message, State
from hpcadmin.sweep.alarms.outbox import Mark, untold, wanted
from hpcadmin.sweep.alarms.words import body, subject
from hpcadmin.sweep.ledger_file import LedgerFile
from hpcadmin.sweep.model import Change, Entry, Problem
from hpcadmin.toml_text import read_toml

DAY = 86400.0
NOW = 1_790_000_000.0


@dataclass
class Ear:
    """A channel that keeps what it is told. down: what it raises instead."""

    heard: list[Message] = field(default_factory=list)
    seen: list[State] = field(default_factory=list)
    down: BaseException | None = None
    then: Callable[[], None] | None = None

    def send(self, _settings: Any, message: Message, _timeout_s: float) -> str:
        if self.down is not None:
            raise self.down
        self.heard.append(message)
        if self.then is not None:
            self.then()
        return ""

    def show(self, _settings: Any, state: State, _timeout_s: float) -> None:
        if self.down is not None:
            raise self.down
        self.seen.append(state)

    @property
    def lines(self) -> list[str]:
        return [f"{item.what} {item.problem.key}" for message in self.heard for item in message.items]


@dataclass(frozen=True)
class NoSettings:
    pass


class House:
    """A ledger, and channels that tell from it."""

    def __init__(self, folder: Path, **posts: Common) -> None:
        self.folder, self.now = folder, NOW
        self.ears = {name: Ear() for name in posts}
        self.boards = {name for name, common in posts.items() if common.kind == "board"}
        self.posts = tuple(Post(name, "ear", Channel(
            NoSettings, send=None if name in self.boards else self.ears[name].send,
            show=self.ears[name].show if name in self.boards else None), NoSettings(), common)
            for name, common in posts.items())

    def night(self, *changes: tuple[str, str], run: str = "", end: bool = True) -> str:
        self.now += DAY
        run = run or f"s{int(self.now)}"
        book = LedgerFile(self.folder)
        book.write(Entry("begin", self.now, run, int(self.now // DAY)))
        for what, key in changes:
            book.write(Entry("problem", self.now, run, node=key.partition("/")[2], result=what, text=f"{key} is bad",
                             key=key, signature=f"drained {self.now}"))
        if end:
            book.write(Entry("end", self.now, run, int(self.now // DAY), result="1", looked=True))
        book.close()
        return run

    def tell(self, **how: Any) -> tuple[str, ...]:
        alarms = Alarms(self.posts, how.pop("when", "always"))
        return tell.tell(self.folder, "alpha", alarms, clock=lambda: self.now, **how)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path / "sweep", a=Common(), b=Common())


def test_each_change_is_told_once_by_each(house: House) -> None:
    house.night()
    assert house.tell() == ()
    for ear in house.ears.values():             # a channel that is new says so
        assert len(ear.heard) == 1 and ear.heard[0].notes and not ear.lines
    house.night(("begins", "node/n1"), ("begins", "budget"))
    house.tell()
    house.tell()
    house.night()
    house.tell()
    house.night(("changes", "node/n1"))
    house.tell()
    house.night(("ends", "node/n1"))
    house.tell()
    for ear in house.ears.values():
        assert ear.lines == ["begins node/n1", "begins budget", "changes node/n1", "ends node/n1"]
        assert len({message.id for message in ear.heard}) == len(ear.heard) == 4
    assert house.ears["a"].heard[-1].items[0].problem.since == NOW + 2 * DAY


def test_what_fails_is_told_the_next_time_and_by_the_others(house: House) -> None:
    house.night()
    house.tell()
    house.ears["a"].down = AlarmError("connection refused", where="h:25")
    house.night(("begins", "node/n1"))
    said = house.tell()
    assert said == ("a could not tell, and is tried again the next time: h:25: connection refused",)
    assert house.ears["b"].lines == ["begins node/n1", "begins alarm/a"]
    house.night(("begins", "node/n2"))
    assert len(house.tell()) == 1
    assert house.ears["b"].lines[2:] == ["begins node/n2"]          # and once
    house.ears["a"].down = None
    house.night()
    assert house.tell() == ()
    assert house.ears["a"].lines == ["begins node/n1", "begins node/n2"]
    assert "did not work from" in house.ears["a"].heard[1].notes[0]
    assert house.ears["b"].lines[3:] == ["ends alarm/a"]


def test_a_channel_that_is_broken_hinders_nobody(house: House) -> None:
    house.ears["a"].down = ZeroDivisionError("secret")
    said = house.tell()
    assert said == ("a could not tell, and is tried again the next time: ZeroDivisionError (a fault in the channel)",)
    assert len(house.ears["b"].heard) == 2


@pytest.mark.deep
def test_a_channel_that_hangs_is_left_behind(tmp_path: Path) -> None:
    house = House(tmp_path, a=Common(timeout_s=0.1), b=Common())
    house.ears["a"].then = lambda: time.sleep(30)
    begun = time.monotonic()
    assert "did not come to its end within 0.1 s" in house.tell()[0]
    assert time.monotonic() - begun < 10 and len(house.ears["b"].heard) == 2


def test_killed_between_the_ledger_and_the_telling(house: House) -> None:
    house.night()
    house.tell()
    house.night(("begins", "node/n1"), end=False)       # killed after its entries, before any channel
    house.night(("begins", "node/n2"))
    house.tell()
    assert house.ears["a"].lines == ["begins node/n1", "begins node/n2"]


class KilledError(BaseException):
    """As by SIGKILL: nothing after it runs."""


@pytest.mark.parametrize("at", range(1, 9))
def test_killed_at_each_write(house: House, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is told at least once; twice only what was sent when it was killed."""
    house.night()
    house.tell()
    for ear in house.ears.values():
        ear.heard.clear()
    house.night(("begins", "node/n1"))
    house.night(("begins", "node/n2"))
    real, count = tell.write_atomic, 0

    def write(path: Path, data: str, *, mode: int) -> None:
        nonlocal count
        count += 1
        if count == at:
            raise KilledError
        real(path, data, mode=mode)

    monkeypatch.setattr(tell, "write_atomic", write)
    with contextlib.suppress(KilledError):
        house.tell()
    monkeypatch.setattr(tell, "write_atomic", real)
    house.night(("begins", "node/n3"))
    house.tell()
    for ear in house.ears.values():
        assert list(dict.fromkeys(ear.lines)) == ["begins node/n1", "begins node/n2", "begins node/n3"]
        assert len(ear.lines) <= 4
        twice = [message.id for message in ear.heard]
        assert len(set(twice)) == 3                     # what came twice has the same id


def test_a_ledger_that_cannot_be_read_is_told(house: House) -> None:
    house.night()
    house.tell()
    (house.folder / "ledger.jsonl").write_text("rubbish\n")
    said = house.tell()
    assert len(said) == 1 and "nothing was told" in said[0]
    assert [m.items[0].problem.key for m in (house.ears["a"].heard[-1], house.ears["b"].heard[-1])] == ["sweep"] * 2


def test_another_ledger_or_a_damaged_state_tells_all_that_there_is(house: House) -> None:
    house.night(("begins", "node/n1"), ("begins", "node/n2"))
    house.tell()
    (house.folder / "ledger.jsonl").unlink()
    house.night(("begins", "node/n3"))
    house.tell()
    assert house.ears["a"].lines[2:] == ["lasts node/n3"]
    (house.folder / "alarms" / "a.json").write_text('{"mark": 7}')
    assert "a counts as new" in house.tell()[0]
    assert house.ears["a"].lines[3:] == ["lasts node/n3"] and house.ears["b"].lines[3:] == []


def test_digest_once_a_day(house: House) -> None:
    house.night(("begins", "node/n1"))
    house.tell(digest=True)
    assert house.ears["a"].lines == ["lasts node/n1"] * 2 and len(house.ears["a"].heard) == 2
    house.tell(digest=True)
    assert len(house.ears["a"].heard) == 2
    house.night(("ends", "node/n1"))
    house.now += 3600
    house.tell(digest=True)
    last = house.ears["a"].heard[-1]
    assert subject(last) == "hpcadmin alpha: no problem now"
    assert any("exit status 1" in note for note in last.notes) and "no node is drained by us" in last.notes
    house.now += 3 * DAY
    house.tell(digest=True)
    assert "no sweep has run for a day" in house.ears["a"].heard[-1].notes
    house.now += DAY
    count = len(house.ears["a"].heard)
    house.tell(digest=True, when="problems")
    house.tell(digest=True, when="never")
    assert len(house.ears["a"].heard) == count


def test_the_digest_says_what_was_not_measured(house: House) -> None:
    house.night()
    tell.keep_facts(house.folder, Facts("s1", house.now, {}, {}, {"pending_jobs": 3.0}, {
        "gpu_c": "no check gpu_temperature told it\n\x1b[2J", "pending_jobs": ""}))
    house.tell(digest=True)
    (told,) = [note for note in house.ears["a"].heard[-1].notes if "not measured" in note]
    assert told.startswith("not measured by the last sweep: gpu_c: no check gpu_temperature told it") and (
        told.isprintable())


def test_only_what_a_channel_is_for(tmp_path: Path) -> None:
    house = House(tmp_path, new=Common(tell=("begins",)), some=Common(only=("!node/n2", "node/*")),
                  not_alarm=Common(only=("!alarm/*",)))
    house.night()
    house.tell()
    house.night(("begins", "node/n1"), ("begins", "node/n2"), ("begins", "budget"))
    house.tell()
    house.night(("ends", "node/n1"), ("ends", "node/n2"))
    house.tell()
    assert house.ears["new"].lines == ["begins node/n1", "begins node/n2", "begins budget"]
    assert house.ears["some"].lines == ["begins node/n1", "ends node/n1"]
    assert len(house.ears["not_alarm"].lines) == 5


def test_a_board_ends_what_it_showed(tmp_path: Path) -> None:
    house = House(tmp_path, a=Common(), board=Common(kind="board"))
    house.night(("begins", "node/n1"))
    house.tell()
    house.night(("begins", "node/n2"), ("ends", "node/n1"))
    house.ears["board"].down = AlarmError("away")
    house.tell()
    assert house.ears["a"].lines[-1] == "begins alarm/board"
    house.ears["board"].down = None
    house.night()
    house.tell()
    first, second = house.ears["board"].seen
    assert set(first.problems) == {"node/n1"} and first.ended == ()
    assert "node/n2" in second.problems and second.ended == ("node/n1",)
    house.tell()
    assert house.ears["board"].seen[2].ended == ()
    assert first.finished == NOW + DAY and first.status == 1 and first.answered


def test_unable_and_test_messages(house: House) -> None:
    alarms = Alarms(house.posts)
    assert tell.unable("alpha", alarms, "disk full") == ()
    house.ears["b"].down = AlarmError("away")
    assert tell.test("alpha", alarms) == {"a": "", "b": "away"}         # the board sends nothing
    assert "disk full" in subject(house.ears["a"].heard[0]) and house.ears["a"].heard[1].kind == "test"


def test_two_at_once_tell_once(house: House) -> None:
    from threading import Thread
    house.night(("begins", "node/n1"))
    threads = [Thread(target=house.tell) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(house.ears["a"].heard) == 1


def test_wait_for_the_lock_ends(house: House) -> None:
    house.night()
    house.ears["a"].then = lambda: said.extend(house.tell(wait_s=0))
    said: list[str] = []
    house.tell()
    assert "another process" in said[0]


def test_words_are_bounded() -> None:
    items = tuple(Change("begins", Problem(f"node/n{i}", "", "x" * 5000, f"n{i}")) for i in range(3000))
    message = Message("i", "changes", 1.0, "c" * 500, "s1", items)
    text = body(message, 4000)
    assert len(text.encode()) <= 4000 and "more lines: hpcadmin sweep show s1" in text
    assert len(subject(message)) < 200
    assert len(body(replace(message, items=items[:1]), 100).encode()) <= 100


def test_untold_of_a_mark_that_does_not_fit() -> None:
    entries = [Entry("problem", 1.0, "r1", key="a", result="begins"), Entry("look", 1.0),
               Entry("problem", 2.0, "r2", key="a", result="ends")]
    assert [b.run for b in untold(entries, Mark()) or []] == ["r1", "r2"]
    assert [b.run for b in untold(entries, Mark(1, "r1", "a", "begins")) or []] == ["r2"]
    assert untold(entries, Mark(2, "r2", "a", "ends")) == []
    assert untold(entries, Mark(3, "r2", "a", "ends")) is None and untold(entries, Mark(1, "r0", "a", "ends")) is None


def test_wanted_patterns() -> None:
    changes = [Change("begins", Problem(key, "", "")) for key in ("node/a", "act/a", "budget")]
    keys = [c.problem.key for c in wanted(changes, ("begins",), ("budget", "!*/a"))]
    assert keys == ["budget"]
    assert len(wanted(changes, ("begins",), ())) == 3 and wanted(changes, ("ends",), ()) == ()


def site_of(folder: Path, text: str) -> Any:
    path = folder / "site.toml"
    path.write_text(text)
    return parse_site(read_toml(path), str(path))


def test_config(tmp_path: Path) -> None:
    found = read_alarms(site_of(tmp_path, '''[sweep]
strikes = 3
[sweep.alarms]
digest = "problems"
[sweep.alarms.thresholds]
pending_jobs = 7
[sweep.alarms.mail]
to = ["root"]
[sweep.alarms.ops]
kind = "slack"
url_file = "/etc/hpcadmin/slack"
only = ["node/*"]
[sweep.alarms.syslog]
on = false
'''))
    assert [(post.name, post.kind, post.digest) for post in found.posts] == [
        ("mail", "mail", True), ("ops", "slack", True)]
    assert found.digest == "problems" and found.thresholds.pending_jobs == 7
    assert read_alarms(parse_site({}, "x")) == Alarms()


@pytest.mark.parametrize(("text", "line", "what"), [
    ('digest = "weekly"', 2, "digest must be one of"), ("mail = 3", 2, "mail must be a table"),
    ("[sweep.alarms.mail]\nto = 3", 4, "to is not a list"),
    ("[sweep.alarms.mail]\nto = ['a']\ncolour = 1", 5, "colour is not known"),
    ("[sweep.alarms.pager]\nto = 3", 3, "is no kind of channel"),
    ("[sweep.alarms.x]\nkind = 'pager'", 4, "is no kind of channel"),
    ("[sweep.alarms.slack]\nurl = 'https://h/x'", 4, "holds a secret"),
    ("[sweep.alarms.webhook]\nurl = 'http://h/x'", 4, "https"),
    ("[sweep.alarms.mail]\nto = ['a']\ntimeout_s = 0", 5, "timeout_s must be"),
    ("[sweep.alarms.mail]\nto = ['a']\ntell = ['often']", 5, "tell must be"),
    ("[sweep.alarms.thresholds]\npending = 4", 4, "pending is not known"),
    ("[sweep.alarms.thresholds]\nstorage_ms = -1", 4, "storage_ms must be 0 or more"),
    ("[sweep.alarms.thresholds]\nstorage_ms = inf", 4, "storage_ms"),
    ('[sweep.alarms."a/b"]\nkind = "mail"', 3, "must be a name"),
])
def test_config_that_is_wrong(tmp_path: Path, text: str, line: int, what: str) -> None:
    with pytest.raises(SiteError) as caught:
        read_alarms(site_of(tmp_path, f"[sweep.alarms]\n{text}\n" if not text.startswith("[") else
                            f"[sweep]\nstrikes = 2\n{text}\n"))
    assert what in str(caught.value) and f"site.toml:{line}" in str(caught.value), str(caught.value)


def test_every_channel_is_a_file_with_a_name() -> None:
    found = config.kinds()
    assert set(found) == {"alertmanager", "dingtalk", "feishu", "mail", "prometheus", "slack", "syslog", "webhook"}
    for channel in found.values():
        assert (channel.send is None) != (channel.show is None)


def test_kept_is_private_and_readable(house: House) -> None:
    house.night(("begins", "node/n1"))
    house.tell()
    for path in (house.folder / "alarms").glob("*.json"):
        assert path.stat().st_mode & 0o077 == 0 and json.loads(path.read_text())["mark"]["count"] == 1
    assert records.loads(dict, "{}", where="x") == {}
