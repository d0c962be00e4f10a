"""What the author of a check needs: Check, Param, good, bad, fault, unknown."""

MYPY = False
if MYPY:
    from typing import Any, Callable

    from hpcadmin.health.node.door import Door

GOOD, BAD, UNKNOWN = "good", "bad", "unknown"
RANK = {GOOD: 0, UNKNOWN: 1, BAD: 2}
MODES = ("health", "prolog", "epilog")
KINDS = ("number", "text", "flag", "texts", "mask", "masks", "numbers")
MAX_REASON = 200
REQUIRED = object()


class NoAnswer(Exception):  # noqa: N818 - it is an answer of its own kind: unknown
    """Something could not be measured: the result is unknown, with this text."""


class BadConfig(Exception):  # noqa: N818 - read as "bad configuration"
    """A configuration that cannot be followed."""


class Finding:
    """One thing that a check found."""

    __slots__ = ("facts", "own", "reason", "status")

    def __init__(self, status: str, reason: str, facts: "dict[str, object]", own: bool = False) -> None:
        self.status, self.reason, self.facts, self.own = status, reason, facts, own

    def __repr__(self) -> str:
        return "%s(%r, %r)" % (self.status, self.reason, self.facts)


def good(**facts: object) -> Finding:
    return Finding(GOOD, "", facts)


def bad(reason: str, **facts: object) -> Finding:
    return Finding(BAD, reason, facts)


def fault(reason: str, **facts: object) -> Finding:
    """Bad, and a fault of this node's own hardware. Only a check that declares hardware=True may say so."""
    return Finding(BAD, reason, facts, own=True)


def unknown(reason: str, **facts: object) -> Finding:
    return Finding(UNKNOWN, reason, facts)


class Param:
    """A parameter of a check: its kind is one of KINDS; None as default: not asked for."""

    __slots__ = ("choices", "default", "kind", "name", "text")

    def __init__(self, name: str, kind: str, default: object, text: str, choices: "tuple[str, ...]" = ()) -> None:
        if kind not in KINDS:
            raise BadConfig("parameter %s: no kind %s" % (name, kind))
        self.name, self.kind, self.default, self.text, self.choices = name, kind, default, text, choices

    def value(self, given: object) -> object:
        """The given value, if it is of this kind."""
        fits = {"number": _number, "text": _text, "mask": _text, "flag": _flag}.get(self.kind)
        if fits is None:
            one = _number if self.kind == "numbers" else _text
            if not isinstance(given, list) or not all(one(item) for item in given):
                raise BadConfig("%s must be a list of %s" % (self.name, "numbers" if one is _number else "texts"))
        elif not fits(given):
            raise BadConfig("%s must be a %s" % (self.name, self.kind))
        if self.choices and any(item not in self.choices for item in (given if isinstance(given, list) else [given])):
            raise BadConfig("%s must be one of %s" % (self.name, ", ".join(self.choices)))
        return given


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 1e300  # no NaN


def _text(value: object) -> bool:
    return isinstance(value, str) and len(value) < 4096 and "\0" not in value


def _flag(value: object) -> bool:
    return isinstance(value, bool)


class Params:
    """The values of one use of a check, as attributes."""

    def __init__(self, values: "dict[str, Any]") -> None:
        self.__dict__.update(values)

    if MYPY:
        def __getattr__(self, name: str) -> "Any": ...


class Check:
    """A check: what it is called, what it takes, and the function that looks.

    hardware: it may find faults of this node's own hardware (fault()), on which --drain may act.
    """

    __slots__ = ("hardware", "name", "params", "run", "timeout_s", "title")

    def __init__(self, name: str, title: str, run: "Callable[[Door, Params], list[Finding]]", *,
                 params: "tuple[Param, ...]" = (), hardware: bool = False, timeout_s: float = 10) -> None:
        self.name, self.title, self.run, self.params = name, title, run, params
        self.hardware, self.timeout_s = hardware, timeout_s

    def take(self, given: "dict[str, object]") -> Params:
        """The parameters, complete and of the right kinds."""
        names = [param.name for param in self.params]
        strange = sorted(set(given) - set(names))
        if strange:
            raise BadConfig("no parameter %s; known: %s" % (strange[0], ", ".join(names) or "none"))
        values = {}
        for param in self.params:
            if param.name in given:
                values[param.name] = param.value(given[param.name])
            elif param.default is REQUIRED:
                raise BadConfig("%s must be given" % param.name)
            else:
                values[param.name] = param.default
        return Params(values)


def plain(text: object, limit: int = MAX_REASON) -> str:
    """Text that is safe in Slurm's Reason and in a log: printable ASCII without quotes, one line, bounded."""
    kept = str(text)[:limit * 4]
    kept = kept.replace(";", ",")
    out = "".join(c if " " <= c <= "~" and c not in "\"'`\\$;|&<>" else " " if c.isspace() or c in "\"'`" else "?"
                  for c in kept)
    out = " ".join(out.split())
    return out if len(out) <= limit else out[:limit - 3] + "..."


def percent(part: float, whole: float) -> float:
    return 100.0 * part / whole if whole else 0.0
