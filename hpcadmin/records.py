"""Frozen records to JSON and back, by their type hints. Reading is strict: what does not fit is an error."""

from __future__ import annotations

import json
import math
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from hpcadmin.errors import StoreError


def to_plain(value: Any) -> Any:
    """Only dict, list, str, int, float, bool, None; a float that is not finite raises StoreError."""
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(k): to_plain(v) for k, v in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise StoreError(f"{value} cannot be stored")
    return value


def dumps(value: Any, *, indent: int | None = None) -> str:
    text = json.dumps(to_plain(value), indent=indent, ensure_ascii=False, allow_nan=False,
                      separators=None if indent else (",", ":"))
    # Half of a surrogate pair (undecodable bytes of an output) becomes JSON's own escape: UTF-8 has no form for it.
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def loads(cls: Any, text: str, *, where: str) -> Any:
    """The record in a JSON text. Raises StoreError naming the field that does not fit."""
    try:
        plain = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise StoreError(f"not JSON: {exc}", where=where) from exc
    return from_plain(cls, plain, where=where)


def from_plain(cls: Any, plain: Any, *, where: str) -> Any:
    """`plain` as the type `cls`; raises StoreError with the path of what is wrong."""
    try:
        return _decode(cls, plain, "")
    except _BadValueError as exc:
        raise StoreError(str(exc), where=where, hint="written by another version, or damaged") from exc


class _BadValueError(Exception):
    pass


@cache
def _hints(cls: Any) -> dict[str, Any]:
    return get_type_hints(cls)


def _decode(cls: Any, value: Any, path: str) -> Any:
    if is_dataclass(cls):
        return _decode_record(cls, value, path)
    origin = get_origin(cls)
    if origin in (Union, types.UnionType):
        return _decode_union(cls, value, path)
    if origin is tuple:
        return _decode_tuple(cls, value, path)
    if origin is not None and isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            raise _BadValueError(f"{path or 'value'} is not a table")
        return {str(k): _decode(get_args(cls)[1], v, f"{path}.{k}") for k, v in value.items()}
    if isinstance(cls, type) and issubclass(cls, Enum):
        try:
            return cls(value)
        except ValueError as exc:
            raise _BadValueError(f"{path} is {value!r}, not one of {', '.join(str(m.value) for m in cls)}") from exc
    if isinstance(value, float) and not math.isfinite(value):
        raise _BadValueError(f"{path or 'value'} is {value}, not a number")
    if cls is float and isinstance(value, int) and not isinstance(value, bool):
        return value
    if cls is Any or (isinstance(value, cls) and not (cls is int and isinstance(value, bool))):
        return value
    raise _BadValueError(f"{path or 'value'} is {type(value).__name__}, expected {getattr(cls, '__name__', cls)}")


def _decode_record(cls: Any, value: Any, path: str) -> Any:
    if not isinstance(value, dict):
        raise _BadValueError(f"{path or cls.__name__} is not a table")
    hints = _hints(cls)
    known = {f.name: f for f in fields(cls)}
    unknown = sorted(set(value) - set(known))
    if unknown:
        raise _BadValueError(f"{path or cls.__name__} has unknown fields: {', '.join(unknown[:5])}")
    kwargs = {}
    for name, item in known.items():
        if name in value:
            kwargs[name] = _decode(hints[name], value[name], f"{path}.{name}" if path else name)
        elif item.default is MISSING and item.default_factory is MISSING:
            raise _BadValueError(f"{path or cls.__name__} lacks {name!r}")
    return cls(**kwargs)


def _decode_union(cls: Any, value: Any, path: str) -> Any:
    options = get_args(cls)
    if value is None:
        if type(None) in options:
            return None
        raise _BadValueError(f"{path} is null")
    exact = [o for o in options if isinstance(o, type) and type(value) is o]
    for option in exact or [o for o in options if o is not type(None)]:
        try:
            return _decode(option, value, path)
        except _BadValueError:
            if len(options) <= 2:
                raise
    raise _BadValueError(f"{path} is {type(value).__name__}, which fits none of {options}")


def _decode_tuple(cls: Any, value: Any, path: str) -> Any:
    if not isinstance(value, list):
        raise _BadValueError(f"{path} is not a list")
    args = get_args(cls)
    if len(args) == 2 and args[1] is Ellipsis:
        return tuple(_decode(args[0], v, f"{path}[{i}]") for i, v in enumerate(value))
    if len(args) != len(value):
        raise _BadValueError(f"{path} has {len(value)} items, expected {len(args)}")
    return tuple(_decode(a, v, f"{path}[{i}]") for i, (a, v) in enumerate(zip(args, value, strict=True)))
