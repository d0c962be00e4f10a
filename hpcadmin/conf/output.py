"""Sections of lines to text through the templates, and back to where each line stands."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hpcadmin.conf.grammar import comment
from hpcadmin.conf.parts import Explained, Line
from hpcadmin.errors import StoreError
from hpcadmin.resources import data_dir

if TYPE_CHECKING:
    import jinja2


def fill(name: str, values: Mapping[str, Any]) -> str:
    """The text of the file `name` from its template."""
    import jinja2  # noqa: PLC0415
    try:
        return _environment().get_template(f"{name}.j2").render(values)
    except jinja2.TemplateError as exc:
        raise StoreError(f"template {name}.j2: {exc}", where=str(data_dir("conf_templates")),
                         hint="reinstall hpcadmin") from exc


@functools.cache
def _environment() -> jinja2.Environment:
    """One, which keeps each template that it has compiled."""
    import jinja2  # noqa: PLC0415
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(str(data_dir("conf_templates"))), undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
        autoescape=False)  # noqa: S701  (no markup; every value has passed grammar.check or the comment filter)
    environment.filters["comment"] = comment
    return environment


def explain(name: str, text: str, lines: Sequence[Line]) -> list[Explained]:
    """Where each line stands. A line that the template adds, changes or drops is a defect."""
    explained = []
    wanted = iter(lines)
    for number, found in enumerate(text.splitlines(), 1):
        if not found or found.startswith("#"):
            continue
        item = next(wanted, None)
        if item is None or item.text != found:
            raise StoreError(f"line {number} of {name} is not one that was asked for: {found[:80]}", where=f"{name}.j2")
        explained.append(Explained(name, number, found, item.whys))
    if next(wanted, None) is not None:
        raise StoreError(f"{name} lacks lines", where=f"{name}.j2")
    return explained
