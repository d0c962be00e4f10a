"""Runs the checks in a worker, and watches it: what hangs is given up by name, the rest is done by a fresh worker."""

import errno
import marshal
import os
import select
import struct
import time

from hpcadmin.health.node import load, procs, tool
from hpcadmin.health.node.api import GOOD, RANK, UNKNOWN, BadConfig, Check, Finding, NoAnswer, plain
from hpcadmin.health.node.config import Entry
from hpcadmin.health.node.door import Door

MYPY = False
if MYPY:
    import signal
    from typing import Any, Callable
else:
    import _signal as signal  # signal makes enums of everything: 1 ms

DEADLINE_S = 45.0
MAX_MESSAGE = 16 << 20
HEAD = struct.Struct("=I")


class Result:
    """What became of one entry."""

    __slots__ = ("facts", "hardware", "key", "reason", "seconds", "status")

    def __init__(self, key: str, status: str, reason: str, facts: "list[dict[str, Any]]", *, hardware: bool = False,
                 seconds: float = 0.0) -> None:
        self.key, self.status, self.reason, self.facts = key, status, reason, facts
        self.hardware, self.seconds = hardware, seconds

    def tree(self) -> "dict[str, Any]":
        return {"check": self.key, "status": self.status, "reason": self.reason, "facts": self.facts,
                "hardware": self.hardware, "seconds": round(self.seconds, 4)}


class Outcome:
    """All results, what the checks want remembered, what hangs: key -> pid, start, since, what; what came too late."""

    __slots__ = ("hung", "kept", "late", "results")

    def __init__(self) -> None:
        self.results = []  # type: list[Result]
        self.kept = {}  # type: dict[str, Any]
        self.hung = {}  # type: dict[str, Any]
        self.late = []  # type: list[str]


class Worker:
    """The worker process, as the parent sees it."""

    def __init__(self, pid: int, fd: int) -> None:
        self.pid, self.fd = pid, fd
        self.buffer = bytearray()
        self.doing, self.at, self.group = "", "", 0
        self.begun, self.limit = 0.0, 0.0


def run(entries: "list[Entry]", make_door: "Callable[..., Door]", site: str = "", *, deadline_s: float = DEADLINE_S,
        last: "dict[str, Any] | None" = None, hung: "dict[str, Any] | None" = None, late: "object" = ()) -> Outcome:
    """Every entry gets a result, in order, within the deadline.

    late: what did not end in time at the last run. It comes last, so that ten mounts that hang hide no lost GPU.
    """
    outcome = Outcome()
    outcome.hung.update(hung or {})
    until = time.monotonic() + deadline_s
    left = []
    for entry in entries:
        one = outcome.hung.get(entry.key)
        if one:
            outcome.results.append(Result(entry.key, UNKNOWN, "still hangs since %s: %s (process %d)"
                                          % (one["since"], one["what"], one["pid"]), []))
        else:
            left.append(entry)
    slow = {key for key in late if isinstance(key, str)} if isinstance(late, (list, tuple)) else set()  # type: set[str]
    left.sort(key=lambda entry: entry.key in slow)
    while left:
        if until - time.monotonic() < 0.05:
            outcome.results += [_not_run(entry.key, deadline_s) for entry in left]
            break
        worker = _start(left, lambda say: make_door(say=say, last=last, hung=outcome.hung), site)
        done = _attend(worker, outcome, until, deadline_s)
        if not done:                            # it came to nothing before it said what it was about to do
            outcome.results.append(Result(left[0].key, UNKNOWN, "the check could not be begun", []))
            done.add(left[0].key)
        left = [entry for entry in left if entry.key not in done]
    order = {entry.key: number for number, entry in enumerate(entries)}
    outcome.results.sort(key=lambda result: order[result.key])
    # The deadline may have left them no time to show that they are well.
    outcome.late += [result.key for result in outcome.results
                     if result.status == UNKNOWN and result.key in slow and result.key not in outcome.late]
    return outcome


def _not_run(key: str, deadline_s: float) -> Result:
    return Result(key, UNKNOWN, "not run: the deadline of %g s for all checks was reached" % deadline_s, [])


# the parent's side

def _attend(worker: Worker, outcome: Outcome, until: float, deadline_s: float) -> "set[str]":
    """Takes the worker's results until it ends or hangs; the keys that have a result now."""
    done = set()  # type: set[str]
    while True:
        now = time.monotonic()
        limit = min(worker.limit or now + 5, until)
        ready = select.select([worker.fd], [], [], max(0.0, limit - now))[0]
        if not ready:
            _give_up(worker, outcome, done, until, deadline_s)
            return done
        piece = os.read(worker.fd, 1 << 18)
        if not piece:
            _ended(worker, outcome, done)
            return done
        worker.buffer += piece
        for message in _messages(worker):
            _take(worker, message, outcome, done)


def _messages(worker: Worker) -> "list[Any]":
    found = []
    while len(worker.buffer) >= HEAD.size:
        size = HEAD.unpack_from(worker.buffer)[0]
        if len(worker.buffer) < HEAD.size + size:
            break
        found.append(marshal.loads(bytes(worker.buffer[HEAD.size:HEAD.size + size])))  # noqa: S302 - our own child's
        del worker.buffer[:HEAD.size + size]
    return found


def _take(worker: Worker, message: "Any", outcome: Outcome, done: "set[str]") -> None:
    kind = message[0]
    if kind == "begin":
        worker.doing, worker.at, worker.begun = message[1], "", time.monotonic()
        worker.limit = worker.begun + message[2]
    elif kind == "at":
        worker.at = message[1]
    elif kind == "tool":
        worker.group, worker.at = message[1], message[2] if message[1] else ""
    elif kind == "stuck":
        outcome.hung[message[2]] = _hung(message[1], message[2])
    elif kind == "end":
        _, key, status, reason, facts, hardware, seconds, kept = message
        outcome.results.append(Result(key, status, reason, facts, hardware=hardware, seconds=seconds))
        outcome.kept.update(kept)
        done.add(key)
        worker.doing, worker.limit = "", 0.0


def _give_up(worker: Worker, outcome: Outcome, done: "set[str]", until: float, deadline_s: float) -> None:
    """The time is up: kill the worker and its tool, and wait for neither longer than a moment."""
    for kill, pid in ((os.killpg, worker.group), (os.kill, worker.pid)):
        if pid:
            try:
                kill(pid, signal.SIGKILL)
            except OSError:
                continue
    os.close(worker.fd)
    moment = time.monotonic() + 0.3
    while tool.ended(worker.pid) is None and time.monotonic() < moment:
        time.sleep(0.005)
    if not worker.doing:
        return
    seconds = time.monotonic() - worker.begun
    what = worker.at or worker.doing.partition(":")[0]
    start = procs.start_of(worker.pid)
    if time.monotonic() >= until and worker.limit > until:
        reason = "%s was cut off by the deadline of %g s for all checks" % (what, deadline_s)
    else:
        reason = "%s did not answer in %.1f s" % (what, seconds)
        outcome.late.append(worker.doing)
    outcome.results.append(Result(worker.doing, UNKNOWN, plain(reason), [], seconds=seconds))
    done.add(worker.doing)
    if start >= 0:
        outcome.hung[worker.doing] = _hung(worker.pid, what)


def _hung(pid: int, what: str) -> "dict[str, Any]":
    return {"pid": pid, "start": procs.start_of(pid), "what": what,
            "since": time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime())}


def _ended(worker: Worker, outcome: Outcome, done: "set[str]") -> None:
    """The worker has closed its pipe: by its work's end, or because it was killed (memory, a defect of ours)."""
    os.close(worker.fd)
    until = time.monotonic() + 2
    status = tool.ended(worker.pid)
    while status is None and time.monotonic() < until:
        time.sleep(0.001)
        status = tool.ended(worker.pid)
    if worker.doing:
        outcome.results.append(Result(worker.doing, UNKNOWN, "the check's process ended with status %s" % status, []))
        done.add(worker.doing)


# the worker's side

def _start(entries: "list[Entry]", make_door: "Callable[[Any], Door]", site: str) -> Worker:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return Worker(pid, reader)
    status = 1
    try:
        os.close(reader)
        _cut_loose(writer)
        _work(entries, make_door, site, writer)
        status = 0
    finally:
        os._exit(status)


def _cut_loose(kept: int) -> None:
    """No end of the parent's output stays open here: slurmd waits for its end, and we may hang for ever."""
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.closerange(3, kept)
    os.closerange(kept + 1, 1024)
    signal.setitimer(signal.ITIMER_REAL, 0)
    os.umask(0o077)


def _work(entries: "list[Entry]", make_door: "Callable[[Any], Door]", site: str, fd: int) -> None:
    def say(*words: "Any") -> None:
        send(fd, words)

    door = make_door(say)
    for entry in entries:
        try:
            check = load.named(entry.use, site)
            params = check.take(entry.params)
        except BadConfig as exc:
            say("begin", entry.key, 10.0)
            say("end", entry.key, UNKNOWN, plain("configuration: %s" % exc), [], False, 0.0, {})
            continue
        say("begin", entry.key, float(entry.timeout_s or check.timeout_s))
        door.kept, door.entry = {}, entry.key
        begun = time.monotonic()
        findings = look(check, door, params)
        seconds = time.monotonic() - begun
        status, reason, facts = judged(findings)
        own = check.hardware and any(finding.own for finding in findings)
        if not _is_plain(facts):
            status, reason, facts = UNKNOWN, "the check's facts are no plain values", []
        kept = door.kept if _is_plain(door.kept) else {}
        say("end", entry.key, status, reason, facts, own, seconds, kept)


def send(fd: int, words: "Any") -> None:
    body = marshal.dumps(words)
    if len(body) > MAX_MESSAGE:
        raise NoAnswer("more than can be told")
    data = HEAD.pack(len(body)) + body
    while data:
        try:
            data = data[os.write(fd, data):]
        except OSError as exc:
            if exc.errno != errno.EINTR:
                raise


def _is_plain(value: object) -> bool:
    """What both JSON and marshal carry."""
    if isinstance(value, float) and not abs(value) < 1e300:     # JSON knows neither infinity nor NaN
        return False
    if value is None or isinstance(value, (bool, int, float, str)):
        return type(value) in (type(None), bool, int, float, str)
    if isinstance(value, (list, tuple)):
        return type(value) in (list, tuple) and all(_is_plain(item) for item in value)
    return isinstance(value, dict) and type(value) is dict and all(
        type(key) is str and _is_plain(item) for key, item in value.items())


def look(check: Check, door: Door, params: "Any") -> "list[Finding]":
    """What the check finds. Whatever it raises means that nothing is known."""
    try:
        return list(check.run(door, params))
    except NoAnswer as exc:
        return [Finding(UNKNOWN, str(exc), {})]
    except BadConfig as exc:
        return [Finding(UNKNOWN, "configuration: %s" % exc, {})]
    except OSError as exc:
        return [Finding(UNKNOWN, "%s: %s" % (exc.filename or check.name, exc.strerror or exc), {})]
    except Exception as exc:  # noqa: BLE001 - one check's defect must neither drain a node nor stop the others
        trace = exc.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        where = "%s:%d" % (os.path.basename(trace.tb_frame.f_code.co_filename), trace.tb_lineno) if trace else "?"
        return [Finding(UNKNOWN, "defect of the check: %s: %s at %s" % (type(exc).__name__, exc, where), {})]


def judged(findings: "list[Finding]") -> "tuple[str, str, list[dict[str, Any]]]":
    """The worst status, the reasons of that status, all facts."""
    status = GOOD
    for finding in findings:
        if RANK.get(finding.status, RANK[UNKNOWN]) > RANK[status]:
            status = finding.status
    reasons = [plain(finding.reason) for finding in findings if finding.status == status and finding.reason]
    facts = [dict(finding.facts, status=finding.status, **({"reason": plain(finding.reason)} if finding.reason else {}))
             for finding in findings if finding.facts or finding.reason]
    return status, plain(", ".join(reasons)), facts
