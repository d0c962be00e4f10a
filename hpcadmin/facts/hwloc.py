"""hwloc's view of the machine: `lstopo --of xml` of any version. slurmd looks at the machine through hwloc, too."""

from __future__ import annotations

from hpcadmin.errors import ParseError
from hpcadmin.facts import _hwloc_known, _hwloc_xml
from hpcadmin.facts._hwloc_work import Hwloc
from hpcadmin.facts._reading import Document, Reading

FORMS = ("xml", "text")
KIND = "hwloc XML"


def parse(text: str) -> Hwloc:
    found = read(Document("lstopo", "xml", tuple(text.split("\n"))))
    if not found:
        raise ParseError("there is no topology of hwloc in it")
    value = found[0].value
    if not isinstance(value, Hwloc) or value.missing:
        raise ParseError(f"hwloc's topology is not whole: {'; '.join(found[0].missing)}")
    return value


def read(document: Document) -> tuple[Reading, ...]:
    if not any("<topology" in line for line in document.lines):
        return ()
    return tuple(_hwloc_known.reading(KIND, tree, first, last) for first, last, tree in _hwloc_xml.trees(document))
