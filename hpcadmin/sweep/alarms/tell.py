"""Tells what is to be told, and keeps how far each channel has come. Nothing here stops a sweep: a channel that does
not work is named, and tried again the next time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from hpcadmin import records
from hpcadmin.errors import StoreError
from hpcadmin.files import read_bounded, write_atomic
from hpcadmin.state import make_private
from hpcadmin.sweep.alarms import compose
from hpcadmin.sweep.alarms.config import Alarms, Post
from hpcadmin.sweep.alarms.model import AlarmError, Facts, Health, Message
from hpcadmin.sweep.alarms.outbox import Kept, mark_of, trouble_changes, untold, wanted
from hpcadmin.sweep.alarms.watch import unmeasured
from hpcadmin.sweep.ledger import fold
from hpcadmin.sweep.ledger_file import read_ledger
from hpcadmin.sweep.model import Change, Problem
from hpcadmin.text import printable

MAX_KEPT_BYTES = 4 * 1024 * 1024
MAX_ROUNDS = 30             # messages for one channel in one go; what is beyond waits for the next
FACTS = "facts.json"


def alarms_dir(folder: Path) -> Path:
    """folder: the sweep's."""
    return folder / "alarms"


def keep_facts(folder: Path, facts: Facts) -> None:
    write_atomic(make_private(alarms_dir(folder)) / FACTS, records.dumps(facts) + "\n", mode=0o600)


def tell(folder: Path, cluster: str, alarms: Alarms, *, digest: bool = False, wait_s: float = 60.0,
         clock: Callable[[], float] = time.time) -> tuple[str, ...]:
    """All that is not told yet, by every channel. What went wrong, a line each; raises nothing."""
    if not alarms.posts:
        return ()
    try:
        with _locked(make_private(alarms_dir(folder)), wait_s) as mine:
            if not mine:
                return ("another process tells alarms: what is new is told the next time",)
            return _Bell(folder, cluster, alarms, clock).ring(digest=digest)
    except StoreError as exc:
        return (f"nothing was told: {exc}", *unable(cluster, alarms, str(exc), clock=clock))


def unable(cluster: str, alarms: Alarms, why: str, *, clock: Callable[[], float] = time.time) -> tuple[str, ...]:
    """For a sweep that could not begin, and has no ledger to write to: told at once, and every time."""
    now = clock()
    change = Change("begins", Problem("sweep", "unable", f"the sweep could not begin: {why}", since=now))
    return send_all(alarms, lambda post: Message(f"unable-{int(now)}.{post.name}", "trouble", now, cluster, "",
                                                 (change,)))


def test(cluster: str, alarms: Alarms, *, clock: Callable[[], float] = time.time) -> dict[str, str]:
    """One message by every channel that sends any, whatever it is for: channel -> what went wrong, "" where nothing
    did."""
    now = clock()
    answers = _sent(alarms, lambda post: Message(f"test-{int(now)}.{post.name}", "test", now, cluster, "", (),
                                                 ("this was asked for: hpcadmin sweep alarms --test",)))
    return {name: _words(answer) if answer else "" for name, answer in answers.items()}


def send_all(alarms: Alarms, message: Callable[[Post], Message]) -> tuple[str, ...]:
    return tuple(f"{name}: {_words(answer)}" for name, answer in _sent(alarms, message).items() if answer)


def _sent(alarms: Alarms, message: Callable[[Post], Message]) -> dict[str, str | Exception]:
    return at_once({post.name: (_sender(post, message(post)), post.common.timeout_s) for post in alarms.posts
                    if post.channel.send is not None})


def standing(folder: Path, alarms: Alarms) -> list[dict[str, object]]:
    """Of each channel what it is, whether it works, and how many changes it has yet to tell (None: it is new)."""
    rows: list[dict[str, object]] = []
    if not alarms.posts:
        return rows
    bell = _Bell(folder, "", alarms, time.time)
    for post in alarms.posts:
        kept = bell.kept[post.name]
        left = untold(bell.entries, kept.mark) if kept.mark is not None else None
        count = None if left is None else sum(
            len(wanted(batch.changes, post.common.tell, post.common.only)) for batch in left)
        rows.append({"name": post.name, "kind": post.kind, "last_ok": kept.last_ok, "untold": count,
                     "failing_since": kept.failing_since, "error": kept.error})
    return rows


class _Bell:
    """One run of all channels. Each answer is kept before anything else is sent."""

    def __init__(self, folder: Path, cluster: str, alarms: Alarms, clock: Callable[[], float]) -> None:
        self.folder = alarms_dir(folder)
        self.cluster, self.alarms, self.clock = cluster, alarms, clock
        self.entries = read_ledger(folder)
        self.history = fold(self.entries)
        self.said: list[str] = []
        self.kept = {post.name: self._read(post) for post in alarms.posts}
        self.failed: set[str] = set()
        self.tellers = [post for post in alarms.posts if post.channel.send is not None]

    def ring(self, *, digest: bool) -> tuple[str, ...]:
        self._news()
        if digest and self.alarms.digest != "never":
            self._digest()
        self._boards()
        self._trouble()
        return tuple(self.said)

    def _news(self) -> None:
        for _ in range(MAX_ROUNDS):
            jobs: dict[Post, tuple[Message, Kept]] = {}
            for post in self.tellers:
                if post.name not in self.failed and (job := self._next(post)) is not None:
                    jobs[post] = job
            if not jobs:
                return
            self._send(jobs)

    def _next(self, post: Post) -> tuple[Message, Kept] | None:
        """The next message of a channel, and what is kept when it is sent."""
        kept, now = self.kept[post.name], self.clock()
        batches = untold(self.entries, kept.mark) if kept.mark is not None else None
        if batches is None:
            why = ("this channel is new; from now on it tells what begins, changes and ends" if kept.mark is None else
                   "the ledger is not the one that this channel told from: this is all that there is")
            message = compose.first(self.history, now, why, name=post.name, cluster=self.cluster)
            return self._filtered(post, message), replace(kept, mark=mark_of(self.entries))
        for batch in batches:
            changes = wanted(batch.changes, post.common.tell, post.common.only)
            kept = replace(kept, mark=batch.mark)
            if changes:
                return compose.news(batch, changes, self.kept[post.name], self.history, name=post.name,
                                    cluster=self.cluster), kept
        if kept != self.kept[post.name]:
            self._keep(post, kept)              # nothing in it was for this channel
        return None

    def _filtered(self, post: Post, message: Message) -> Message:
        return replace(message, items=wanted(message.items, post.common.tell, post.common.only))

    def _digest(self) -> None:
        now = self.clock()
        today = compose.day(now)
        not_known = unmeasured(self._facts().measured)
        jobs: dict[Post, tuple[Message, Kept]] = {}
        for post in self.tellers:
            kept = self.kept[post.name]
            if not post.digest or kept.digest == today or post.name in self.failed:
                continue
            message = self._filtered(post, compose.digest(
                self.history, kept, now, name=post.name, cluster=self.cluster, failing=self._failing(),
                drained=sorted(self.history.ours), unmeasured=not_known))
            if message.items or self.alarms.digest == "always":
                jobs[post] = message, replace(kept, digest=today)
        self._send(jobs)

    def _boards(self) -> None:
        """What may be shown is kept before it is: else a kill would leave an alert that nobody ends."""
        now = self.clock()
        facts = self._facts()
        jobs: dict[str, tuple[Callable[[], str], float]] = {}
        shown: dict[str, tuple[str, ...]] = {}
        for post in self.alarms.posts:
            if post.channel.show is None:
                continue
            kept = self.kept[post.name]
            state = compose.state(self.history, facts, [self._health(one, post) for one in self.alarms.posts],
                                  now, cluster=self.cluster, shown=kept.shown)
            problems = {change.problem.key: change.problem for change in
                        wanted(compose.lasting(state.problems), post.common.tell, post.common.only)}
            self._keep(post, replace(kept, shown=tuple(sorted({*kept.shown, *problems}))))
            shown[post.name] = tuple(sorted(problems))
            jobs[post.name] = _shower(post, replace(state, problems=problems)), post.common.timeout_s
        answers = at_once(jobs)
        for post in self.alarms.posts:
            if post.name in answers:
                self._took(post, answers[post.name], replace(self.kept[post.name], shown=shown[post.name]))

    def _trouble(self) -> None:
        """Each channel that works says which others do not, once, and once that they do again."""
        now = self.clock()
        jobs: dict[Post, tuple[Message, Kept]] = {}
        for post in self.tellers:
            if post.name in self.failed:
                continue
            kept = self.kept[post.name]
            failing = {name: why for name, why in self._failing().items() if name != post.name}
            changes = wanted(trouble_changes(failing, kept.trouble, now), post.common.tell, post.common.only)
            told = replace(kept, trouble=failing)
            if changes:
                jobs[post] = Message(f"trouble-{int(now)}.{post.name}", "trouble", now, self.cluster, "", changes), told
            elif failing.keys() != kept.trouble.keys():
                self._keep(post, told)
        self._send(jobs)

    def _send(self, jobs: Mapping[Post, tuple[Message, Kept]]) -> None:
        answers = at_once({post.name: (_sender(post, message), post.common.timeout_s)
                           for post, (message, _) in jobs.items()})
        for post, (_, kept) in jobs.items():
            self._took(post, answers[post.name], kept)

    def _took(self, post: Post, answer: str | Exception, kept: Kept) -> None:
        now = self.clock()
        if isinstance(answer, Exception):
            self.failed.add(post.name)
            before = self.kept[post.name]
            why = _words(answer)
            self.said.append(f"{post.name} could not tell, and is tried again the next time: {why}")
            self._keep(post, replace(before, failing_since=before.failing_since or now, error=why))
            return
        if answer:
            self.said.append(f"{post.name}: {printable(answer, limit=300)}")
        self._keep(post, replace(kept, last_ok=now, failing_since=0.0, error=""))

    def _failing(self) -> dict[str, str]:
        return {name: kept.error for name, kept in self.kept.items() if kept.failing_since}

    def _health(self, post: Post, shower: Post) -> Health:
        """What is shown works, or it is not shown."""
        kept = self.kept[post.name]
        if post is shower:
            return Health(post.name, post.kind, self.clock())
        return Health(post.name, post.kind, kept.last_ok, kept.failing_since, kept.error)

    def _facts(self) -> Facts:
        try:
            if not (self.folder / FACTS).exists():
                return Facts()
            text = read_bounded(self.folder / FACTS, limit=MAX_KEPT_BYTES).decode("utf-8", "replace")
            found: Facts = records.loads(Facts, text, where=FACTS)
        except StoreError as exc:
            self.said.append(f"what the last sweep saw cannot be read: {exc}")
            return Facts()
        return found

    def _read(self, post: Post) -> Kept:
        path = self.folder / f"{post.name}.json"
        try:
            if not os.path.lexists(path):
                return Kept()
            text = read_bounded(path, limit=MAX_KEPT_BYTES).decode("utf-8", "replace")
            found: Kept = records.loads(Kept, text, where=str(path))
        except StoreError as exc:
            self.said.append(f"{exc}: {post.name} counts as new")
            return Kept()
        return found

    def _keep(self, post: Post, kept: Kept) -> None:
        write_atomic(self.folder / f"{post.name}.json", records.dumps(kept) + "\n", mode=0o600)
        self.kept[post.name] = kept


def _sender(post: Post, message: Message) -> Callable[[], str]:
    return lambda: post.channel.send(post.settings, message, post.common.timeout_s) if post.channel.send else ""


def _shower(post: Post, state: object) -> Callable[[], str]:
    def shown() -> str:
        if post.channel.show is not None:
            post.channel.show(post.settings, state, post.common.timeout_s)  # type: ignore[arg-type]
        return ""
    return shown


def at_once(jobs: Mapping[str, tuple[Callable[[], str], float]]) -> dict[str, str | Exception]:
    """All of them at the same time, each for so many seconds at most. One that hangs for longer is left behind: its
    thread ends with this process, and what it had to tell is told again."""
    answers: dict[str, str | Exception] = {}

    def work(name: str, job: Callable[[], str]) -> None:
        try:
            answers.setdefault(name, job())
        except Exception as exc:  # noqa: BLE001  (a channel is a plug-in: whatever it does, the others tell)
            answers.setdefault(name, exc)

    threads = {name: threading.Thread(target=work, args=(name, job), daemon=True) for name, (job, _) in jobs.items()}
    begun = time.monotonic()
    for thread in threads.values():
        thread.start()
    for name, thread in threads.items():
        timeout_s = jobs[name][1]
        thread.join(max(0.0, begun + timeout_s + 1 - time.monotonic()))
        answers.setdefault(name, AlarmError(f"did not come to its end within {timeout_s:g} s"))
    return {name: answers[name] for name in jobs}


def _words(answer: str | Exception) -> str:
    if isinstance(answer, str):
        return printable(answer, limit=300)
    text = str(answer) if isinstance(answer, AlarmError) else f"{type(answer).__name__} (a fault in the channel)"
    return printable(" ".join(text.split()), limit=300)


@contextlib.contextmanager
def _locked(folder: Path, wait_s: float) -> Iterator[bool]:
    """One process tells at a time: two would tell the same."""
    path = folder / "lock"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise StoreError(f"cannot be opened: {exc.strerror}", where=str(path)) from exc
    try:
        end = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    yield False
                    return
                time.sleep(0.1)
            except OSError as exc:
                raise StoreError(f"cannot be locked: {exc.strerror}", where=str(path)) from exc
        yield True
    finally:
        os.close(fd)
