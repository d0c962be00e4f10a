"""hwloc itself, through ctypes, as the judge of our core numbering: it reads the same /sys tree (HWLOC_FSROOT)."""

from __future__ import annotations

import json
import subprocess
import sys
from ctypes import (
    CDLL,
    POINTER,
    Structure,
    byref,
    c_char_p,
    c_int,
    c_uint,
    c_uint64,
    c_void_p,
    cast,
    create_string_buffer,
)
from pathlib import Path

LIBRARY = "libhwloc.so.15"


class _Object(Structure):
    """struct hwloc_obj of hwloc 2, up to its cpuset."""

    _fields_ = (
        ("type", c_int), ("subtype", c_char_p), ("os_index", c_uint), ("name", c_char_p), ("total_memory", c_uint64),
        ("attr", c_void_p), ("depth", c_int), ("logical_index", c_uint), ("next_cousin", c_void_p),
        ("prev_cousin", c_void_p), ("parent", c_void_p), ("sibling_rank", c_uint), ("next_sibling", c_void_p),
        ("prev_sibling", c_void_p), ("arity", c_uint), ("children", c_void_p), ("first_child", c_void_p),
        ("last_child", c_void_p), ("symmetric_subtree", c_int), ("memory_arity", c_uint), ("memory_child", c_void_p),
        ("io_arity", c_uint), ("io_child", c_void_p), ("misc_arity", c_uint), ("misc_child", c_void_p),
        ("cpuset", c_void_p),
    )


def available() -> bool:
    try:
        CDLL(LIBRARY)
    except OSError:
        return False
    return True


def cores(root: Path) -> list[list[int]]:
    """The OS CPU ids of each core under `root`/sys in hwloc's logical order, asked in a process of its own."""
    done = subprocess.run([sys.executable, __file__, str(root)], capture_output=True, text=True, check=True, timeout=60,
                          env={"HWLOC_FSROOT": str(root), "HWLOC_THISSYSTEM": "0", "HWLOC_COMPONENTS": "linux,stop",
                               "PATH": "/usr/bin:/bin"})
    return [[int(cpu) for cpu in core] for core in json.loads(done.stdout)]


def _read() -> list[list[int]]:
    library = CDLL(LIBRARY)
    library.hwloc_get_obj_by_depth.restype = POINTER(_Object)
    topology = c_void_p()
    assert library.hwloc_topology_init(byref(topology)) == 0
    assert library.hwloc_topology_load(topology) == 0
    core_type = 2
    depth = library.hwloc_get_type_depth(topology, core_type)
    found = []
    for number in range(library.hwloc_get_nbobjs_by_depth(topology, depth)):
        core = library.hwloc_get_obj_by_depth(topology, depth, number).contents
        text = create_string_buffer(65536)
        library.hwloc_bitmap_list_snprintf(text, 65536, cast(core.cpuset, c_void_p))
        found.append(_ids(text.value.decode()))
    return found


def _ids(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        low, _, high = part.partition("-")
        found += range(int(low), int(high or low) + 1)
    return found


if __name__ == "__main__":
    print(json.dumps(_read()))
