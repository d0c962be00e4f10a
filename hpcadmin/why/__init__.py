"""Why the inventory says what it says: the command, the line of the capture, and how the value follows from it."""

from hpcadmin.why._explain import Evidence, Explanation, explain, lines
from hpcadmin.why._sections import Text

__all__ = ["Evidence", "Explanation", "Text", "explain", "lines"]
