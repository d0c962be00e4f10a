"""hpcadmin-health: looks at this node, says one line, remembers the rest."""

import os
import time

from hpcadmin.health.node import config, tool, watch
from hpcadmin.health.node.api import BAD, GOOD, RANK, UNKNOWN, BadConfig, plain
from hpcadmin.health.node.door import Door
from hpcadmin.health.node.state import FOLDER, State, still_hung

MYPY = False
if MYPY:
    import signal
    from typing import Any
else:
    import _signal as signal  # signal makes enums of everything: 1 ms

EXITS = {GOOD: 0, BAD: 1, UNKNOWN: 3}
USAGE = 2
GRACE_S = 8.0                                   # slurmd kills at 60 s
HELP = """usage: hpcadmin-health [--as prolog|epilog] [--config FILE.json] [--drain] [--json FILE] [CHECK...]

  --as prolog|epilog   the entries for prolog or epilog; unknown is status 0, and no Slurm command is run
  --config FILE        instead of %s
  --nhc-conf FILE      runs an nhc.conf instead
  --checks DIR         a folder of own checks
  --drain              drains this node in Slurm if a check of its own hardware is bad
  --json FILE          all results as JSON; - for standard output instead of the line
  --state DIR          instead of %s
  --root DIR           looks at a copy of a node's files below DIR; nothing is remembered
  --node NAME          the node's name, instead of the host's
  --deadline SECONDS   for all checks together (45)
  --facts              what this node is made of, as JSON: fit to be accepted (check drift)
  --list               the checks and their parameters
  CHECK                only these entries, by check or by name; without a configuration with default parameters

status: 0 good, 1 bad, 2 wrong usage, 3 unknown
""" % (config.DEFAULT, FOLDER)
VALUED = ("--as", "--config", "--nhc-conf", "--checks", "--json", "--state", "--root", "--node", "--deadline")
PLAIN = ("--drain", "--list", "--facts", "--help", "-h", "--version")


class Usage(Exception):  # noqa: N818 - read as "wrong usage"
    """The command line cannot be followed."""


class Options:
    """The command line."""

    def __init__(self, args: "list[str]") -> None:
        self.given = {}  # type: dict[str, str]
        self.flags = set()  # type: set[str]
        self.names = []  # type: list[str]
        rest = list(args)
        while rest:
            word = rest.pop(0)
            name, equals, value = word.partition("=")
            if name in VALUED:
                if not equals:
                    if not rest:
                        raise Usage("%s needs a value" % name)
                    value = rest.pop(0)
                self.given[name] = value
            elif word in PLAIN:
                self.flags.add(word)
            elif word[:1] == "-":
                raise Usage("no option %s (see --help)" % plain(word, 60))
            else:
                self.names.append(word)
        self.mode = self.given.get("--as", "health")
        if self.mode not in ("health", "prolog", "epilog") or self.given.get("--as") == "health":
            raise Usage("--as takes prolog or epilog, not %s" % plain(self.mode, 40))
        self.root = self.given.get("--root", "")
        try:
            self.deadline_s = float(self.given.get("--deadline", watch.DEADLINE_S))
        except ValueError:
            self.deadline_s = 0.0
        if not 0 < self.deadline_s <= 3600:
            raise Usage("--deadline takes a number of seconds")
        if "--drain" in self.flags and (self.mode != "health" or self.root):
            raise Usage("--drain does not go with --as or --root: Slurm drains by the exit status there")

    def get(self, name: str, default: str = "") -> str:
        return self.given.get(name, default)


def main(args: "list[str]") -> int:
    """The exit status of hpcadmin-health ARGS."""
    lenient = any(word == "--as" or word.startswith("--as=") for word in args)
    try:
        options = Options(args)
        if options.flags & {"-h", "--help"}:
            out(HELP)
            return 0
        if "--version" in options.flags:
            from hpcadmin.health.node.version import VERSION
            out("hpcadmin-health %s\n" % VERSION)
            return 0
        if "--list" in options.flags:
            from hpcadmin.health.node.listing import listing
            out(listing(options.get("--checks")))
            return 0
        limit_all(options.deadline_s)
        if "--facts" in options.flags:
            import json

            from hpcadmin.health.node.inventory import collect
            out(json.dumps(collect(Door(options.root)), sort_keys=True, indent=1) + "\n")
            return 0
        return go(options)
    except Usage as exc:
        err("hpcadmin-health: %s\n" % exc)
        return 0 if lenient else USAGE
    except Exception as exc:  # noqa: BLE001 - the root: a defect must be unknown, since Slurm drains on a traceback's status 1
        err("hpcadmin-health: defect: %s: %s\n" % (type(exc).__name__, plain(exc)))
        return 0 if lenient else EXITS[UNKNOWN]


def limit_all(deadline_s: float) -> None:
    """Also what is done before and after the checks ends in time: a configuration or state on a disk that hangs."""
    def late(number: int, frame: object) -> None:
        raise OSError("configuration, state or output: no answer in time")
    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, deadline_s + GRACE_S)


def go(options: Options) -> int:
    begun = time.time()
    state = State(options.get("--state", FOLDER)) if not options.root else None
    last = state.read(options.mode) if state else {}
    problem = ""
    try:
        settings, notes = read_config(options)
        entries = choose(options, settings)
    except BadConfig as exc:
        settings, notes, entries, problem = config.Config([]), [], [], str(exc)
    site = options.get("--checks") or settings.checks
    folders = tuple(settings.tools) + tool.PATH
    memory = last.get("memory")
    memory = memory if isinstance(memory, dict) else {}

    def door(**more: "Any") -> Door:
        made = Door(options.root, folders, **more)
        made.node = node(options)
        made.forgetful = state.note if state else ""
        return made

    boot = Door(options.root).boot_id()
    same_boot = last.get("boot") == boot
    outcome = watch.run(entries, door, site, deadline_s=options.deadline_s, last=memory,
                        hung=still_hung(last) if same_boot else {}, late=last.get("late"))
    if problem or not outcome.results:
        outcome.results.append(watch.Result("configuration", UNKNOWN, plain(
            problem or "no check is configured for node %s and %s" % (node(options), options.mode)), []))
    status = max((result.status for result in outcome.results), key=lambda one: RANK[one])
    line = summary(status, outcome.results)
    tree = {"status": status, "line": line, "time": begun, "seconds": round(time.time() - begun, 4),
            "mode": options.mode, "node": node(options), "boot": boot,
            "results": [result.tree() for result in outcome.results], "notes": notes}
    profile = simulated(options.root)
    if profile:
        tree["simulated"] = profile
    if "--drain" in options.flags:
        tree["drain"] = maybe_drain(outcome.results, node(options), folders)
    if state and not options.names:
        keys = {entry.key for entry in settings.entries}
        kept = {key: value for key, value in memory.items() if key.partition(" ")[0] in keys}
        kept.update(outcome.kept)
        state.write(options.mode, dict(tree, memory=kept, hung=outcome.hung, late=outcome.late))
    if state and state.note:
        tree["notes"] = [*notes, state.note]
    tell(options, tree, line)
    return 0 if options.mode != "health" and status == UNKNOWN else EXITS[status]


def simulated(root: str) -> str:
    """The profile of hardware that this node only pretends to have."""
    try:
        return plain(Door(root).text("/etc/hpcadmin/simulated"), 40)
    except OSError:
        return ""


def read_config(options: Options) -> "tuple[config.Config, list[str]]":
    """The configuration, and notes on what in it is not run."""
    if "--nhc-conf" in options.given:
        from hpcadmin.health.node import nhc
        return nhc.load(options.get("--nhc-conf"), node(options), options.root)
    path = options.get("--config", config.DEFAULT)
    if options.names and "--config" not in options.given and not os.path.lexists(path):
        return config.Config([]), ["no configuration: default parameters"]
    return config.load(path), []


def choose(options: Options, settings: config.Config) -> "list[config.Entry]":
    """The entries for this node and call; named ones whatever they are for."""
    if not options.names:
        return [entry for entry in settings.entries if entry.here(node(options), options.mode)]
    chosen = []
    for name in options.names:
        found = [entry for entry in settings.entries if name in (entry.key, entry.use)]
        chosen += found or [config.Entry(name.partition(":")[0], {})]
    return list({entry.key: entry for entry in chosen}.values())


def node(options: Options) -> str:
    given = (options.get("--node") or os.environ.get("SLURMD_NODENAME", "")).rstrip(".")
    return given or Door(options.root).host() or os.uname()[1].split(".")[0]


def summary(status: str, results: "list[watch.Result]") -> str:
    """One line: what is wrong, worst first; fit for Reason."""
    if status == GOOD:
        return "good: %d check%s" % (len(results), "" if len(results) == 1 else "s")
    worst = [result for result in results if result.status == status]
    parts = ["%s: %s" % (result.key, result.reason or status) for result in worst]
    line = "hpcadmin: " if status == BAD else "unknown: "
    room = 200 - len(line) - 12
    shown = plain(parts[0], room)
    count = 1
    for part in parts[1:]:
        if len(shown) + len(part) + 2 > room:
            break
        shown += ", " + part
        count += 1
    return plain(line + shown + (" (+%d more)" % (len(parts) - count) if count < len(parts) else ""))


def maybe_drain(results: "list[watch.Result]", name: str, folders: "tuple[str, ...]") -> str:
    own = [result for result in results if result.status == BAD and result.hardware]
    if not own:
        return "not drained: no fault of this node's own hardware"
    from hpcadmin.health.node import drain
    return drain.drain(drain.node_name(name), summary(BAD, own), drain.runner(folders))


def tell(options: Options, tree: "dict[str, Any]", line: str) -> None:
    target = options.get("--json")
    if target:
        import json
        text = json.dumps(tree, sort_keys=True, indent=1) + "\n"
        if target == "-":
            out(text)
            return
        try:
            write_new(target, text)
        except OSError as exc:
            err("hpcadmin-health: %s: %s\n" % (target, exc.strerror))
    out(line + "\n")
    if tree.get("drain"):
        err("hpcadmin-health: %s\n" % tree["drain"])


def write_new(path: str, text: str) -> None:
    """A new file in the old one's place: no link that somebody laid there is followed."""
    fresh = "%s.%d.new" % (path, os.getpid())
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    try:
        data = text.encode("ascii", "backslashreplace")
        while data:
            data = data[os.write(fd, data):]
        os.rename(fresh, path)
    except OSError:                             # a full disk: nothing half stays behind
        os.unlink(fresh)
        raise
    finally:
        os.close(fd)


def out(text: str) -> None:
    _write(1, text)


def err(text: str) -> None:
    _write(2, text)


def _write(fd: int, text: str) -> None:
    """Nobody may read any more: that changes no verdict."""
    data = text.encode("ascii", "backslashreplace")
    try:
        while data:
            data = data[os.write(fd, data):]
    except OSError:
        return
