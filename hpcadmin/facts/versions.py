"""Versions of what matters to jobs: OFED, UCX, MPI, NCCL, CUDA, container runtimes, file system clients, munge.

Files are read where they tell; the tools that must be asked are asked side by side, so that the slowest one counts.
"""

from __future__ import annotations

import re

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean, lines_of, natural, quote

NAME = "versions"
ORDER = 65
# ask NAME TOOL ARGS: one line NAME=… with the first lines that it prints, or NAME=? when it says nothing.
COMMAND = r"""
ask() {
  n=$1; shift
  command -v "$1" >/dev/null 2>&1 || return 0
  { v=$(limit 2 "$@" 2>/dev/null </dev/null | head -n 4 | tr '\n\t' '  '); echo "$n=${v:-?}"; } &
}
file() { v=; [ -r "$2" ] && { read -r v <"$2"; } 2>/dev/null; [ -n "$v" ] && echo "$1=$v"; }
ask ofed ofed_info -s
ask ucx ucx_info -v
ask mpi mpirun --version
ask gcc gcc -dumpfullversion -dumpversion
ask docker docker --version
ask podman podman --version
if command -v apptainer >/dev/null 2>&1; then ask apptainer apptainer --version
else ask singularity singularity --version; fi
ask enroot enroot version
ask nvidia_container_toolkit nvidia-ctk --version
ask munge munged --version
ask fabricmanager nv-fabricmanager --version
ask dcgm dcgmi --version
j=/usr/local/cuda/version.json
if [ -r $j ]; then
  v=$(sed -n '/"cuda" *:/,/}/s/.*"version" *: *"\([^"]*\)".*/\1/p' $j 2>/dev/null); echo "cuda=${v:-?}"
elif [ -x /usr/local/cuda/bin/nvcc ]; then ask cuda /usr/local/cuda/bin/nvcc --version
else ask cuda nvcc --version; fi
for l in /usr/lib/*-linux-gnu/ /usr/lib64/ /usr/local/lib/ /usr/local/cuda/lib64/ /opt/rocm/lib/; do
  for f in ${l}libnccl.so.[0-9]*.[0-9]* ${l}librccl.so.[0-9]*.[0-9]* ${l}libpmix.so.[0-9]*.[0-9]* ${l}libhwloc.so.[0-9]*.[0-9]*; do
    [ -e "$f" ] && echo "library=${f##*/}"
  done
done
for h in /usr/include/nccl.h /usr/local/cuda/include/nccl.h; do
  [ -r $h ] || continue
  v=$(sed -n 's/^#define NCCL_\(MAJOR\|MINOR\|PATCH\) \([0-9]*\).*/\2/p' $h 2>/dev/null | head -n 3 | tr '\n' .)
  [ -n "$v" ] && echo "nccl_header=${v%.}"
done
for s in /usr/lib/slurm /usr/lib64/slurm /usr/lib/*-linux-gnu/slurm /usr/lib/*-linux-gnu/slurm-wlm /usr/local/lib/slurm; do
  [ -e "$s/spank_pyxis.so" ] && echo "pyxis=installed" && break
done
file rocm /opt/rocm/.info/version
file lustre /sys/fs/lustre/version
[ -r /sys/fs/lustre/version ] || file lustre /proc/fs/lustre/version
for m in beegfs mlx5_core nvidia_peermem nv_peer_mem gdrdrv amdgpu xpmem knem; do
  file "module_$m" /sys/module/$m/version
done
[ -d /sys/module/nvidia_peermem ] && [ ! -e /sys/module/nvidia_peermem/version ] && echo module_nvidia_peermem=loaded
for f in /opt/weka/dist/release/*.spec; do [ -e "$f" ] && f=${f##*/} && echo "weka=${f%.spec}"; done
if [ -d /usr/lpp/mmfs ]; then
  if command -v rpm >/dev/null 2>&1; then ask gpfs rpm -q --qf '%{VERSION}-%{RELEASE}' gpfs.base
  else ask gpfs dpkg-query -W -f '${Version}' gpfs.base; fi
fi
wait
echo end=versions
"""  # noqa: E501
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}\Z")
_NUMBER = re.compile(r"(?<![0-9A-Za-z.])[vVn]?([0-9]{1,6}(?:[.][0-9]{1,9}){1,5}(?:[-+~_.]?[0-9A-Za-z]{1,20}){0,4})")
_RELEASE = re.compile(r"release [0-9.]{1,20}, V([0-9]{1,5}(?:[.][0-9]{1,5}){1,4})")
_LIBRARY = re.compile(r"lib(nccl|rccl|pmix|hwloc)\.so\.([0-9]{1,5}(?:\.[0-9]{1,9}){1,4})\Z")
# What is said as it stands, because it is more than a number.
_WHOLE = frozenset({"ofed", "gpfs", "weka", "pyxis"})
# Versions of a shared library's interface are no versions of the library.
_INTERFACE_ONLY = frozenset({"pmix", "hwloc"})


def parse(text: str) -> dict[str, str]:
    """name -> version; "" where it is there and did not tell its version. What is not there is left out."""
    lines = lines_of(text, "the versions")
    if lines[-1] != "end=versions":
        raise ParseError("the list of versions is cut off")
    found: dict[str, str] = {}
    libraries: dict[str, set[str]] = {}
    for line in lines[:-1]:
        name, equals, value = line.partition("=")
        if not equals or not _NAME.match(name):
            raise ParseError(f"{quote(line)} tells no version")
        library = _LIBRARY.match(value.strip()) if name == "library" else None
        if library and library[1] not in _INTERFACE_ONLY:
            libraries.setdefault(library[1], set()).add(library[2])
        elif name == "mpi":
            found.setdefault(_mpi(value), _version(name, value))
        elif name != "library":
            found.setdefault(name, _version(name, value))
    header = found.pop("nccl_header", "")
    for name, numbers in libraries.items():
        found[name] = ", ".join(sorted(numbers, key=natural))
    if header:
        found.setdefault("nccl", header)
    return dict(sorted(found.items()))


def _version(name: str, value: str) -> str:
    text = clean(value)
    if text in ("?", ""):
        return ""
    if name in _WHOLE or name.startswith("module_") or text.isdigit():
        return text.rstrip(": ")
    match = (_RELEASE.search(text) if name == "cuda" else None) or _NUMBER.search(text)
    return match[1] if match else text[:60]


def _mpi(value: str) -> str:
    lower = value.lower()
    if "open mpi" in lower or "openrte" in lower or "open-mpi" in lower:
        return "openmpi"
    if "intel" in lower:
        return "intelmpi"
    return "mpich" if "hydra" in lower or "mpich" in lower else "mpi"
