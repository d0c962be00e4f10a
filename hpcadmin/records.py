"""Frozen records to JSON and back, by their type hints. Reading is strict: what does not fit is an error."""

from __future__ import annotations

import gc
import json
import marshal
import math
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from operator import attrgetter
from typing import Any, Union, get_args, get_origin, get_type_hints

from hpcadmin.errors import StoreError

_INFINITE = float("inf")
_SCALARS = frozenset({str, int, bool, type(None)})
_NO_TYPES: frozenset[type] = frozenset()
_LARGE = 1 << 20             # characters of a text
_MAX_POOL = 4096             # different texts of one field that are worth sharing
_PARSE = json.JSONDecoder().decode
Decode = Callable[[Any], Any]


def to_plain(value: Any, *, sparse: bool = False) -> Any:
    """Only dict, list, str, int, float, bool, None; a float that is not finite raises StoreError.

    sparse: without the fields that have their default value (reading puts them in again).
    """
    kind = type(value)
    if kind in _SCALARS or (kind is float and -_INFINITE < value < _INFINITE):
        return value
    if kind is tuple or kind is list:
        return [item if type(item) in _SCALARS else to_plain(item, sparse=sparse) for item in value]
    if _IS_RECORD[kind]:
        return _plain_record(kind, value, sparse)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(k): to_plain(v, sparse=sparse) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_plain(v, sparse=sparse) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise StoreError(f"{value} cannot be stored")
    return value


def _plain_record(kind: type, value: Any, sparse: bool) -> dict[str, Any]:
    names, get, defaults = _fields(kind)
    values = get(value) if len(names) > 1 else (get(value),)
    found = dict(zip(names, values, strict=True))
    if sparse:
        found = {name: item for name, item in found.items() if item is not defaults[name] and item != defaults[name]}
    for name, item in found.items():
        if type(item) not in _SCALARS:
            found[name] = to_plain(item, sparse=sparse)
    return found


class _Records(dict[type, bool]):
    """Which types are records."""

    def __missing__(self, kind: type) -> bool:
        return self.setdefault(kind, is_dataclass(kind))


_IS_RECORD = _Records()


@cache
def _fields(kind: Any) -> tuple[tuple[str, ...], Callable[[Any], Any], dict[str, Any]]:
    """(names, a getter of all of them, their default values)."""
    known = fields(kind)
    names = tuple(item.name for item in known)
    defaults = {item.name: item.default_factory() if item.default_factory is not MISSING else item.default
                for item in known}
    return names, attrgetter(*names) if names else lambda value: None, defaults


@cache
def _heads(kind: Any) -> tuple[tuple[str, Any, str], ...]:
    """Of each field its name as JSON writes it, its default value, and both together."""
    return tuple((f'"{name}":', default, "" if default is MISSING else f'"{name}":{_text_of(default, False)}')
                 for name, default in _fields(kind)[2].items())


_LINE = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_WRITTEN: dict[type, Callable[[Any], str]] = {
    str: json.encoder.encode_basestring, int: int.__repr__, bool: lambda value: "true" if value else "false",
    type(None): lambda value: "null"}


def dumps(value: Any, *, indent: int | None = None, sparse: bool = False) -> str:
    text = _text_of(value, sparse) if indent is None else json.dumps(
        to_plain(value, sparse=sparse), indent=indent, ensure_ascii=False, allow_nan=False,
        separators=None if indent else (",", ":"))
    # Half of a surrogate pair (undecodable bytes of an output) becomes JSON's own escape: UTF-8 has no form for it.
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _text_of(value: Any, sparse: bool) -> str:
    """What `_LINE` makes of `to_plain`, without the tables in between: a run writes half a million records."""
    kind: Any = type(value)
    written = _WRITTEN.get(kind)
    if written is not None:
        return written(value)
    if kind is float and -_INFINITE < value < _INFINITE:
        return float.__repr__(value)
    if kind is tuple or kind is list:
        return f"[{','.join([_text_of(item, sparse) for item in value])}]" if value else "[]"
    if _IS_RECORD[kind]:
        names, get, _ = _fields(kind)
        told = zip(_heads(kind), get(value) if len(names) > 1 else (get(value),), strict=False)
        if sparse:
            return _braced([head + _text_of(item, True) for (head, usual, _), item in told
                            if item is not usual and item != usual])
        return _braced([both if item is usual else head + _text_of(item, False) for (head, usual, both), item in told])
    return _text_of(value.value, sparse) if isinstance(value, Enum) else _LINE.encode(to_plain(value, sparse=sparse))


def _braced(parts: list[str]) -> str:
    return f"{{{','.join(parts)}}}"


class Writer:
    """Records as `dumps` writes them; of a field's value that several of them share, the text is made once."""

    def __init__(self, limit: int = 1 << 26, *, sparse: bool = True) -> None:
        """limit: characters of texts that are kept."""
        self._left = limit
        self._sparse = sparse
        self._texts: dict[int, tuple[Any, str]] = {}         # by identity; the value with it, so that it stays alive

    def dumps(self, record: Any) -> str:
        kind: type = type(record)
        names, get, _ = _fields(kind)
        told = zip(_heads(kind), get(record) if len(names) > 1 else (get(record),), strict=False)
        return _braced([head + self._text(value) for (head, usual, _), value in told
                        if not self._sparse or (value is not usual and value != usual)])

    def _text(self, value: Any) -> str:
        if type(value) in _SCALARS:
            return dumps(value)
        known = self._texts.get(id(value))
        if known is None:
            self._texts[id(value)] = value, ""               # seen once: that is no reason to keep its text
            return dumps(value, sparse=self._sparse)
        if not known[1]:
            known = value, dumps(value, sparse=self._sparse)
            if len(known[1]) <= self._left:
                self._left -= len(known[1])
                self._texts[id(value)] = known
        return known[1]


def loads(cls: Any, text: str, *, where: str) -> Any:
    """The record in a JSON text. Raises StoreError naming the field that does not fit."""
    return _PLAIN_READER.loads(cls, text, where=where)


def from_plain(cls: Any, plain: Any, *, where: str) -> Any:
    """`plain` as the type `cls`; raises StoreError with the path of what is wrong."""
    return _PLAIN_READER.from_plain(cls, plain, where=where)


@contextmanager
def without_gc() -> Iterator[None]:
    """For a million new objects without a cycle: looking for cycles among them takes as long as making them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class _BadValueError(Exception):
    """What is wrong, and the path to it, which grows on the way out."""

    def __init__(self, what: str, name: str = "value") -> None:
        super().__init__(what)
        self.what = what
        self.name = name             # what the value is called where there is no path to it
        self.path = ""

    def under(self, part: str) -> _BadValueError:
        dot = "." if self.path and not self.path.startswith("[") else ""
        self.path = f"{part}{dot}{self.path}"
        return self

    def __str__(self) -> str:
        return f"{self.path or self.name} {self.what}"


class Reader:
    """Decoders made once for each type.

    share: types (records, or tuple[X, ...]) of which equal values become one object, and with them the texts that a
    field has again and again; for values that many records have in common.
    """

    def __init__(self, share: Iterable[Any] = ()) -> None:
        self._share = frozenset(share)
        self._made: dict[Any, Decode] = {}

    def loads(self, cls: Any, text: str, *, where: str) -> Any:
        if len(text) > _LARGE:
            with without_gc():
                return self._loads(cls, text, where)
        return self._loads(cls, text, where)

    def _loads(self, cls: Any, text: str, where: str) -> Any:
        try:
            plain = _PARSE(text)
        except (ValueError, RecursionError) as exc:
            raise StoreError(f"not JSON: {exc}", where=where) from exc
        return self.from_plain(cls, plain, where=where)

    def from_plain(self, cls: Any, plain: Any, *, where: str) -> Any:
        try:
            return self._decoder(cls)(plain)
        except _BadValueError as exc:
            raise StoreError(str(exc), where=where, hint="written by another version, or damaged") from exc

    def _decoder(self, cls: Any) -> Decode:
        known = self._made.get(cls)
        if known is None:
            known = self._record(cls) if is_dataclass(cls) else self._other(cls)
            known = self._made[cls] = _shared(known) if cls in self._share else known
        return known

    def _other(self, cls: Any) -> Decode:
        origin = get_origin(cls)
        if origin in (Union, types.UnionType):
            return self._union(cls)
        if origin is tuple:
            return self._tuple(get_args(cls))
        if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
            return _mapping(self._decoder(get_args(cls)[1]))
        if isinstance(cls, type) and issubclass(cls, Enum):
            return _enum(cls)
        return _scalar(cls)

    def _record(self, cls: Any) -> Decode:
        """Fields whose value needs only its type looked at are told from the others, which have a decoder."""
        simple: dict[str, frozenset[type]] = {}
        decoders: dict[str, Decode] = {}
        required = {item.name for item in fields(cls) if item.default is MISSING and item.default_factory is MISSING}

        def decode(value: Any) -> Any:
            if not isinstance(value, dict):
                raise _BadValueError("is not a table", cls.__name__)
            found = value
            for name, item in value.items():
                if type(item) in simple.get(name, _NO_TYPES):
                    continue
                if name not in decoders:
                    raise _unknown(cls, value, decoders)
                if found is value:
                    found = dict(value)
                try:
                    found[name] = decoders[name](item)
                except _BadValueError as exc:
                    raise exc.under(name) from None
            if not required <= found.keys():
                lacking = next(item.name for item in fields(cls) if item.name in required - found.keys())
                raise _BadValueError(f"lacks {lacking!r}", cls.__name__)
            return cls(**found)

        self._made[cls] = decode             # a record may hold records of its own type
        hints = _hints(cls)
        for item in fields(cls):
            decoders[item.name] = self._decoder(hints[item.name])
            simple[item.name] = _simple_types(hints[item.name])
            if self._share and str in simple[item.name]:
                simple[item.name] -= {str}
                decoders[item.name] = _pooled(decoders[item.name])
        return _whole(cls, decoders, simple, decode)

    def _union(self, cls: Any) -> Decode:
        options = get_args(cls)
        decoders: dict[Any, Decode] = {option: self._decoder(option) for option in options if option is not type(None)}

        if len(decoders) == 1 and type(None) in options:
            only = next(iter(decoders.values()))
            return lambda value: None if value is None else only(value)

        def decode(value: Any) -> Any:
            if value is None:
                if type(None) in options:
                    return None
                raise _BadValueError("is null")
            exact = decoders.get(type(value))
            if exact is not None:
                return exact(value)
            for decoder in decoders.values():
                try:
                    return decoder(value)
                except _BadValueError:
                    if len(options) <= 2:
                        raise
            names = [option.__name__ if isinstance(option, type) else str(option) for option in decoders]
            raise _BadValueError(f"is {type(value).__name__}, expected {', '.join(names[:-1])} or {names[-1]}")

        return decode

    def _tuple(self, args: tuple[Any, ...]) -> Decode:
        if len(args) == 2 and args[1] is Ellipsis:
            return _list_of(self._decoder(args[0]), _simple_types(args[0]))
        decoders = [self._decoder(arg) for arg in args]

        def decode(value: Any) -> Any:
            if not isinstance(value, list):
                raise _BadValueError("is not a list")
            if len(decoders) != len(value):
                raise _BadValueError(f"has {len(value)} items, expected {len(decoders)}")
            return _each(decoders, value)

        return decode


def _whole(cls: Any, decoders: Mapping[str, Decode], simple: Mapping[str, frozenset[type]], other: Decode) -> Decode:
    """The decoder of records that have all of their fields, as those of long files do, written out field by field: what
    is of another kind, or wrong, is left to `other`, which takes its time and says what it is."""
    names = list(decoders)
    lines = ["def decode(value):", f"    if type(value) is not dict or len(value) != {len(names)}:",
             "        return other(value)", "    try:"]
    known: dict[str, Any] = {"other": other, "cls": cls, "Bad": _BadValueError}
    for n, name in enumerate(names):
        lines.append(f"        v{n} = value[{name!r}]")
        known[f"d{n}"], kinds = decoders[name], sorted(simple[name], key=lambda kind: kind is type(None))
        tests = []
        for k, kind in enumerate(kinds):
            known[f"t{n}_{k}"] = kind
            tests.append(f"v{n} is not None" if kind is type(None) else f"type(v{n}) is not t{n}_{k}")
        lines += [f"        if {' and '.join(tests)}:"] if tests else []
        lines.append(f"        {'    ' if tests else ''}v{n} = d{n}(v{n})")
    lines += ["    except (KeyError, Bad):", "        return other(value)",
              f"    return cls({', '.join(f'v{n}' for n in range(len(names)))})"]
    exec(_compiled("\n".join(lines)), known)  # noqa: S102  (made of the names of our own fields, as dataclasses do it)
    made: Decode = known["decode"]
    return made if names else other


@cache            # each reader has decoders of its own, and they are of the same text
def _compiled(source: str) -> types.CodeType:
    return compile(source, "<decoder>", "exec")


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)


_PLAIN_READER = Reader()


def _simple_types(hint: Any) -> frozenset[type]:
    """The exact types of a value that is taken as it is. A float is not among them: it must be looked at."""
    options = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    taken: dict[Any, set[type]] = {str: {str}, int: {int}, bool: {bool}, float: {int}, type(None): {type(None)}}
    if not all(option in taken for option in options):
        return _NO_TYPES
    return frozenset(kind for option in options for kind in taken[option])


def _shared(decode: Decode) -> Decode:
    """The same object for equal plain values. marshal tells 1 from true and 1.0, as == does not."""
    pool: dict[bytes, Any] = {}

    def shared(value: Any) -> Any:
        try:
            key = marshal.dumps(value, 2)
        except ValueError:
            return decode(value)
        if key not in pool:
            pool[key] = decode(value)
        return pool[key]

    return shared


def _pooled(decode: Decode) -> Decode:
    pool: dict[str, str] = {}

    def pooled(value: Any) -> Any:
        if type(value) is not str:
            return decode(value)
        known = pool.get(value)
        if known is None:
            known = value
            if len(pool) < _MAX_POOL:
                pool[value] = value
        return known

    return pooled


def _list_of(decode_item: Decode, simple: frozenset[type]) -> Decode:
    def decode(value: Any) -> Any:
        if not isinstance(value, list):
            raise _BadValueError("is not a list")
        if simple and simple.issuperset(map(type, value)):
            return tuple(value)
        try:
            return tuple(map(decode_item, value))
        except _BadValueError:
            return _each([decode_item] * len(value), value)      # once more, to say which one it is

    return decode


def _each(decoders: list[Decode], value: list[Any]) -> tuple[Any, ...]:
    found = []
    for number, (decode, item) in enumerate(zip(decoders, value, strict=True)):
        try:
            found.append(decode(item))
        except _BadValueError as exc:
            raise exc.under(f"[{number}]") from None
    return tuple(found)


def _mapping(decode_item: Decode) -> Decode:
    def decode(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _BadValueError("is not a table")
        found = {}
        for key, item in value.items():
            try:
                found[str(key)] = decode_item(item)
            except _BadValueError as exc:
                raise exc.under(str(key)) from None
        return found

    return decode


def _enum(cls: Any) -> Decode:
    choices = ", ".join(str(member.value) for member in cls)
    members = {member.value: member for member in cls}

    def decode(value: Any) -> Any:
        try:
            return members[value] if type(value) is str and value in members else cls(value)
        except ValueError as exc:
            raise _BadValueError(f"is {value!r}, not one of {choices}") from exc

    return decode


def _scalar(cls: Any) -> Decode:
    def decode(value: Any) -> Any:
        if isinstance(value, float) and not math.isfinite(value):
            raise _BadValueError(f"is {value}, not a number")
        if cls is float and isinstance(value, int) and not isinstance(value, bool):
            return value
        if cls is Any or (isinstance(value, cls) and not (cls is int and isinstance(value, bool))):
            return value
        raise _BadValueError(f"is {type(value).__name__}, expected {getattr(cls, '__name__', cls)}")

    return decode


def _unknown(cls: Any, value: Mapping[str, Any], known: Mapping[str, Any]) -> _BadValueError:
    unknown = sorted(str(name) for name in value if name not in known)
    return _BadValueError(f"has unknown fields: {', '.join(unknown[:5])}", cls.__name__)
