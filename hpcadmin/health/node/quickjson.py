"""JSON by the C parts of Python's json alone: importing json costs as much as half of ten checks."""

MYPY = False
if MYPY:
    from typing import Any

BLANK = " \t\n\r"


class _Plain:
    """What json.JSONDecoder() tells the scanner."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int = float, int

    def __init__(self) -> None:
        self.memo = {}  # type: dict[str, str]

    @staticmethod
    def parse_constant(name: str) -> float:
        raise ValueError("%s is no number of JSON" % name)


def loads(text: str) -> "Any":
    """The value; ValueError if it is not JSON, NaN and infinity included."""
    try:
        from _json import make_scanner
    except ImportError:                         # a Python without them
        import json
        return json.loads(text, parse_constant=_Plain.parse_constant)
    settings = _Plain()  # type: Any
    start = len(text) - len(text.lstrip(BLANK))
    try:
        value, end = make_scanner(settings)(text, start)
    except StopIteration as exc:
        raise ValueError("no value at character %d" % (exc.value or 0)) from None
    if text[end:].strip(BLANK):
        raise ValueError("more than one value (character %d)" % end)
    return value


def dumps(tree: "Any") -> str:
    """In one line, ASCII, keys sorted."""
    try:
        from _json import encode_basestring_ascii, make_encoder
    except ImportError:
        import json
        return json.dumps(tree, sort_keys=True, allow_nan=False)
    encode = make_encoder({}, _strange, encode_basestring_ascii, None, ": ", ", ", True, False, False)
    return "".join(encode(tree, 0))


def _strange(value: object) -> object:
    raise TypeError("%s cannot be written as JSON" % type(value).__name__)
