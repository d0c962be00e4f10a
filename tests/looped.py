"""Many small cases as one test: `looped` in the place of `pytest.mark.parametrize`, for what takes less time than an
item of pytest does. All cases run; each that fails is told with its name and its place."""

from __future__ import annotations

import functools
import inspect
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import pytest

Test = TypeVar("Test", bound=Callable[..., None])
_MOST_TOLD = 20


def looped(names: str | Sequence[str], cases: Iterable[Any], *,
           ids: Callable[[Any], object] | Sequence[str] | None = None) -> Callable[[Test], Callable[..., None]]:
    """As parametrize has it; several of them one above the other are a product. Fixtures are shared by all cases."""
    own = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    kept = list(cases)

    def name_of(number: int, values: Sequence[Any]) -> str:
        if ids is None:
            return "-".join(repr(value)[:80] for value in values)
        return "-".join(str(ids(value)) for value in values) if callable(ids) else ids[number]

    def of(test: Test) -> Callable[..., None]:
        @functools.wraps(test)
        def all_cases(*args: Any, **kwargs: Any) -> None:
            assert kept, f"{test.__name__} has no case"
            failed, skipped = [], 0
            for number, case in enumerate(kept):
                values = (case,) if len(own) == 1 else tuple(case)
                assert len(values) == len(own), f"{names}: {case!r}"
                try:
                    test(*args, **kwargs, **dict(zip(own, values, strict=True)))
                except pytest.skip.Exception:
                    skipped += 1
                except (Exception, pytest.fail.Exception) as exc:  # noqa: BLE001  (whatever it is, it is told)
                    place = traceback.extract_tb(exc.__traceback__)[-1]
                    failed.append(f"[{name_of(number, values)}] {place.name}:{place.lineno}: {type(exc).__name__}: "
                                  f"{str(exc)[:2000]}")
            if failed:
                told = "\n".join(failed[:_MOST_TOLD])
                pytest.fail(f"{len(failed)} of {len(kept)} cases failed\n{told}", pytrace=False)
            if skipped == len(kept):
                pytest.skip("every case was skipped")
        signature = inspect.signature(test)
        rest = [p for p in signature.parameters.values() if p.name not in own]
        assert len(rest) + len(own) == len(signature.parameters), f"{test.__name__} does not take {names}"
        all_cases.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return all_cases
    return of
