"""Lines that no reader has anything to look for in, learnt while documents pass: outputs of many nodes have most of
their lines in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable

_SHORT = 400                     # characters of a line that is worth remembering
_MOST = 1 << 16                  # lines


class Seen:
    """says: whether some reader may look for the line. It is asked once a line, when that comes again."""

    def __init__(self, says: Callable[[str], bool]) -> None:
        self._says = says
        self._known: dict[str, bool | None] = {}         # None: seen once

    def worth(self, lines: Iterable[str]) -> list[str]:
        """Those lines that are not known to say nothing to anybody."""
        known = self._known
        left = [line for line in lines if known.get(line) is not False]
        if len(known) > _MOST:
            known.clear()
        for line in left:
            if line not in known:
                if len(line) < _SHORT:
                    known[line] = None
            elif known[line] is None:
                known[line] = self._says(line)
        return left
