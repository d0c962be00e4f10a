"""Nodes whose clocks differ from ours, as far as their outputs prove it. Nothing waits by them; readers must know."""

from __future__ import annotations

from collections.abc import Iterable

from hpcadmin.frames import Frame

MOST_S = 120.0      # that is not told: the times of an output are those of its end, and clocks are seldom exact


class Clocks:
    def __init__(self) -> None:
        self.words: dict[str, str] = {}         # node -> what is wrong with its clock

    def look(self, frame: Frame, sent: float | None, now: float) -> str:
        """What the node's own output proves, "" when nothing, or when it is known. sent: when its job was submitted;
        now: when the output was seen; both by our clock. No output can end later than it is seen, or earlier than its
        job was submitted."""
        if frame.role != "each" or frame.end is None or frame.node in self.words:
            return ""
        words = ""
        if frame.end - now > MOST_S:
            words = f"at least {_long(frame.end - now)} ahead of this host's"
        elif frame.start is not None and frame.start - frame.end > MOST_S:
            words = f"set back by {_long(frame.start - frame.end)} while a step ran"
        elif sent is not None and sent - frame.end > MOST_S:
            words = f"at least {_long(sent - frame.end)} behind this host's"
        if words:
            self.words[frame.node] = words
        return words

    def notes(self, old: Iterable[str]) -> tuple[str, ...]:
        """The notes of a run with what is known of clocks; each once."""
        return tuple(dict.fromkeys([*old, *(f"{node}: its clock is {why}: times in its outputs are wrong"
                                            for node, why in sorted(self.words.items()))]))


def _long(seconds: float) -> str:
    return f"{round(seconds / 60)} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
