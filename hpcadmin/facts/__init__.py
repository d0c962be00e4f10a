"""What nodes say about themselves: one file a tool with the command that asks and the parser that reads.

A fact is a module here with NAME, COMMAND (a POSIX sh snippet; `run SECONDS TOOL ARGS` runs a tool with a time-out
and says 127 where it is missing) and `parse(text)`, which raises ParseError and nothing else; LIMIT (bytes) and ORDER
may be given. A module with FORMS and `read(document)` reads texts that people have (see _reading); it may be both, or
only that. The folder is listed: adding a fact is adding a file. Modules with a leading underscore are the frame.
"""

from hpcadmin.facts._capture import Capture, Section, split_capture
from hpcadmin.facts._links import faulty_links
from hpcadmin.facts._merge import Part, merge
from hpcadmin.facts._node import read_capture
from hpcadmin.facts._parts import part_of
from hpcadmin.facts._probe import Fact, facts, new_token, probe_script
from hpcadmin.facts._readers import Outcome, read_document, readers
from hpcadmin.facts._reading import Document, Finding, Reading

__all__ = [
    "Capture", "Document", "Fact", "Finding", "Outcome", "Part", "Reading", "Section", "facts", "faulty_links", "merge",
    "new_token", "part_of", "probe_script", "read_capture", "read_document", "readers", "split_capture",
]
