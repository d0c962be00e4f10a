"""hwloc's view of the machine: `lstopo --of xml` of any version. slurmd looks at the machine through hwloc, too."""

from __future__ import annotations

from hpcadmin.errors import ParseError
from hpcadmin.facts import _hwloc_known, _hwloc_xml
from hpcadmin.facts._hwloc_work import Hwloc
from hpcadmin.facts._reading import Document, Reading

NAME = "hwloc"
LIMIT = 1024 * 1024
# CPUs and memory alone: devices are asked of the kernel, and the GPUs' libraries would start the GPUs. Of each object,
# what the reader takes.
COMMAND = r"""
l=
for t in lstopo-no-graphics lstopo hwloc-ls; do command -v $t >/dev/null 2>&1 && { l=$t; break; }; done
[ "$l" ] || return 127
( unset HWLOC_XMLFILE HWLOC_SYNTHETIC HWLOC_FSROOT HWLOC_CPUID_PATH HWLOC_THISSYSTEM DISPLAY
  HWLOC_COMPONENTS=-cuda,-gl,-levelzero,-nvml,-opencl,-rsmi; export HWLOC_COMPONENTS
  run 10 $l --no-io --no-useless-caches --of xml ) |
  sed -e '/<page_type /d' -e '/<support /d' -e '/<info name="Inclusive"/d' \
    -e '/type="Machine"/!s/ [a-z_]*nodeset="[^"]*"//g' -e 's/ gp_index="[^"]*"//' -e 's/ id="[^"]*"//' \
    -e 's/ cache_[sla][a-z]*="[^"]*"//g'
"""
FORMS = ("xml", "text")
MARKS = ("<topology",)
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
