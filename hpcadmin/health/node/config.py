"""The configuration on the node: JSON, compiled from the site's TOML; which entries are for this node and this call."""

from hpcadmin.health.node import masks, quickjson, trust
from hpcadmin.health.node.api import MODES, BadConfig

MYPY = False
if MYPY:
    from typing import Any

SCHEMA = 1
DEFAULT = "/etc/hpcadmin/health.json"
OWN_KEYS = ("use", "id", "nodes", "when", "timeout_s")
MAX_ENTRIES = 2000
MAX_TIMEOUT_S = 40


class Entry:
    """One use of a check: its key names it in results."""

    __slots__ = ("key", "nodes", "params", "timeout_s", "use", "when")

    def __init__(self, use: str, params: "dict[str, Any]", ident: str = "", *, nodes: "list[str] | None" = None,
                 when: "tuple[str, ...]" = ("health",), timeout_s: "float | None" = None) -> None:
        self.use, self.params, self.nodes, self.when, self.timeout_s = use, params, nodes or [], when, timeout_s
        self.key = "%s:%s" % (use, ident) if ident else use

    def here(self, node: str, mode: str) -> bool:
        return mode in self.when and (not self.nodes or masks.any_matches(self.nodes, node, node=True))


class Config:
    """What the file says."""

    __slots__ = ("checks", "entries", "path", "tools")

    def __init__(self, entries: "list[Entry]", checks: str = "", tools: "list[str] | None" = None) -> None:
        self.entries, self.checks, self.tools = entries, checks, tools or []


def load(path: str) -> Config:
    """The configuration of a file that nobody else can have written."""
    data = trust.read(path)
    try:
        return parse(quickjson.loads(data.decode("utf-8")))
    except (ValueError, RecursionError) as exc:
        raise BadConfig("%s is not JSON: %s" % (path, exc)) from exc
    except BadConfig as exc:
        raise BadConfig("%s: %s" % (path, exc)) from exc


def parse(tree: "Any") -> Config:
    """The tree of the JSON (or TOML) file. Everything is looked at: a wrong word is an error, not a default."""
    if not isinstance(tree, dict):
        raise BadConfig("no object at the top")
    strange = sorted(set(tree) - {"schema", "check", "checks", "tools", "source"})
    if strange:
        raise BadConfig("unknown key %s" % strange[0])
    if tree.get("schema", SCHEMA) != SCHEMA:
        raise BadConfig("schema %s is not %d: build hpcadmin-health and the configuration with one release"
                        % (tree.get("schema"), SCHEMA))
    listed = tree.get("check", [])
    if not isinstance(listed, list) or len(listed) > MAX_ENTRIES:
        raise BadConfig("check must be a list of at most %d entries" % MAX_ENTRIES)
    entries = [_entry(number, raw) for number, raw in enumerate(listed, 1)]
    keys = set()  # type: set[str]
    for entry in entries:
        if entry.key in keys:
            raise BadConfig("two entries are called %s: give each an id" % entry.key)
        keys.add(entry.key)
    checks = tree.get("checks", "")
    if not isinstance(checks, str):
        raise BadConfig("checks must be the path of a folder")
    return Config(entries, checks, texts(tree, "tools", "the top"))


def _entry(number: int, raw: "Any") -> Entry:
    where = "check %d" % number
    if not isinstance(raw, dict) or not isinstance(raw.get("use"), str):
        raise BadConfig("%s does not say which check to use" % where)
    where += " (%s)" % raw["use"]
    ident = raw.get("id", "")
    if not isinstance(ident, str) or not all(c.isalnum() or c in "_.-/" for c in ident) or len(ident) > 60:
        raise BadConfig("%s: id must be of letters, digits and _.-/" % where)
    when = tuple(texts(raw, "when", where) or ["health"])
    if not all(mode in MODES for mode in when):
        raise BadConfig("%s: when must be of %s" % (where, ", ".join(MODES)))
    seconds = raw.get("timeout_s")
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, (int, float))
                                or not 0 < seconds <= MAX_TIMEOUT_S):
        raise BadConfig("%s: timeout_s must be a number up to %d" % (where, MAX_TIMEOUT_S))
    nodes = texts(raw, "nodes", where)
    for mask in nodes:
        if mask.lstrip("!")[:1] == "/":
            try:
                masks.matches(mask, "")
            except ValueError as exc:
                raise BadConfig("%s: %s" % (where, exc)) from exc
    params = {name: value for name, value in raw.items() if name not in OWN_KEYS}
    return Entry(raw["use"], params, ident, nodes=nodes, when=when, timeout_s=seconds)


def texts(tree: "dict[str, Any]", name: str, where: str) -> "list[str]":
    value = tree.get(name, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise BadConfig("%s: %s must be a list of texts" % (where, name))
    return value
