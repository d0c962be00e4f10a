"""What nodes say about themselves: one file a tool with the command that asks and the parser that reads.

A fact is a module here with NAME, COMMAND (a POSIX sh snippet; `run SECONDS TOOL ARGS` runs a tool with a time-out
and says 127 where it is missing) and `parse(text)`, which raises ParseError and nothing else; LIMIT (bytes) and ORDER
may be given. The folder is listed: adding a fact is adding a file. Modules with a leading underscore are the frame.
"""

from hpcadmin.facts._capture import Capture, Section, split_capture
from hpcadmin.facts._node import read_capture
from hpcadmin.facts._probe import Fact, facts, new_token, probe_script

__all__ = ["Capture", "Fact", "Section", "facts", "new_token", "probe_script", "read_capture", "split_capture"]
