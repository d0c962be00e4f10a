"""AMD's and Intel's GPUs as the kernel's graphics and compute drivers show them: /sys/class/drm and /sys/class/kfd."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hpcadmin.errors import ParseError
from hpcadmin.facts._amd import AmdGpu
from hpcadmin.facts._base import clean, fields_of, lines_of, maybe_integer, natural, pci_address, quote

NAME = "drm"
LIMIT = 1024 * 1024
COMMAND = r"""
[ -d /sys/class/drm ] || [ -d /sys/class/kfd ] || return 127
one() { v=; { read -r v <"$2"; } 2>/dev/null; [ -z "$v" ] || printf '\t%s=%s' "$1" "$v"; }
for d in /sys/class/drm/renderD*; do
  [ -e "$d" ] || continue
  cd -P "$d/device" 2>/dev/null || continue
  v=; { read -r v <vendor; } 2>/dev/null
  case $v:$PWD in 0x1002:*|0x8086:*|:*amdgpu_xcp*) ;; *) continue;; esac
  printf 'render=%s\tdevice=%s\tvendor=%s' "${d##*/renderD}" "${PWD##*/}" "$v"
  for c in drm/card*; do case ${c##*/} in *-*) ;; card[0-9]*) printf '\tcard=%s' "${c##*/}";; esac; done
  one id device; one class class; one numa numa_node; one vram mem_info_vram_total; one unique unique_id
  one compute current_compute_partition; one memory current_memory_partition; one vbios vbios_version
  one serial serial_number; one name product_name
  for f in drm/card*/lmem_total_bytes tile*/physical_vram_size_bytes; do [ -r "$f" ] && one part "$f"; done
  [ -c "/dev/dri/${d##*/}" ] && printf '\tfile=/dev/dri/%s' "${d##*/}"
  echo
done
k=/sys/class/kfd/kfd/topology/nodes
for n in "$k"/*; do
  [ -d "$n" ] || continue
  g=; { read -r g <"$n/gpu_id"; } 2>/dev/null
  [ "$g" = 0 ] && continue
  printf 'node=%s\tgpu=%s' "${n##*/}" "$g"
  { while read -r a b; do case $a in
    drm_render_minor|location_id|domain|hive_id|unique_id|vendor_id|device_id|gfx_target_version)
      printf '\t%s=%s' "$a" "$b";; esac; done <"$n/properties"; } 2>/dev/null
  echo
  for l in "$n"/io_links/* "$n"/p2p_links/*; do
    [ -d "$l" ] || continue
    printf 'link=%s' "${n##*/}"
    { while read -r a b; do case $a in node_to|type|weight) printf '\t%s=%s' "$a" "$b";; esac
      done <"$l/properties"; } 2>/dev/null
    echo
  done
done
[ -d "$k" ] && { [ -c /dev/kfd ] && echo kfd=/dev/kfd || echo kfd=; }
{ read -r v </sys/module/amdgpu/version && echo "version=$v"; } 2>/dev/null
cd /
echo end=drm
"""
_VENDORS = {"0x1002": "amd", "0x8086": "intel", "": "amd"}
# Names of what is sold for servers, where the driver has none. An id that is sold under two names is not here.
_NAMES = {
    "1002:738c": "AMD Instinct MI100", "1002:7408": "AMD Instinct MI250X", "1002:740f": "AMD Instinct MI210",
    "1002:74a0": "AMD Instinct MI300A", "1002:74a1": "AMD Instinct MI300X", "1002:74a5": "AMD Instinct MI325X",
    "1002:74b5": "AMD Instinct MI300X VF", "1002:75a0": "AMD Instinct MI350X", "1002:75a3": "AMD Instinct MI355X",
    "8086:0bd5": "Intel Data Center GPU Max 1550", "8086:0bda": "Intel Data Center GPU Max 1100",
    "8086:56c0": "Intel Data Center GPU Flex 170", "8086:56c1": "Intel Data Center GPU Flex 140",
}


@dataclass(frozen=True)
class KfdNode:
    """A GPU, or a partition of one, as the compute driver numbers them. gpu "": not allowed to read."""

    number: int
    gpu: str = ""
    render: int | None = None
    pci: str = ""
    hive: str = ""
    unique_id: str = ""


@dataclass(frozen=True)
class Drm:
    gpus: tuple[AmdGpu, ...]         # one for each render device, in their order; partitions without `pci`
    nodes: tuple[KfdNode, ...] = ()
    links: tuple[tuple[int, int, str], ...] = ()    # from KFD node to KFD node: "XGMI", "PCIE"
    kfd_file: str | None = None      # None: no compute driver; "": it has no device file
    driver: str = ""                 # amdgpu's version, where it is built outside the kernel


def parse(text: str) -> Drm:
    """Raises ParseError when the closing line is missing."""
    lines = lines_of(text, "/sys/class/drm")
    if lines[-1].strip() != "end=drm":
        raise ParseError("the list of graphics devices is cut off")
    gpus, nodes = list[AmdGpu](), list[KfdNode]()
    links: dict[tuple[int, int], str] = {}
    kfd_file, driver = None, ""
    for line in lines[:-1]:
        found = fields_of(line)
        if "render" in found:
            gpus.append(_gpu(found, line))
        elif "node" in found:
            nodes.append(_node(found, line))
        elif "link" in found:
            pair = maybe_integer(found["link"]), maybe_integer(found.get("node_to"))
            kind = {"2": "PCIE", "11": "XGMI"}.get(found.get("type", ""))
            if pair[0] is not None and pair[1] is not None and kind:
                # A pair may be told twice, as XGMI and as PCIe: the better one counts.
                links[pair[0], pair[1]] = "XGMI" if "XGMI" in (kind, links.get((pair[0], pair[1]))) else kind
        elif "kfd" in found:
            kfd_file = clean(found["kfd"])
        elif "version" in found:
            driver = clean(found["version"])
        else:
            raise ParseError(f"{quote(line)} is no line of the list of graphics devices")
    return Drm(tuple(sorted(gpus, key=lambda gpu: gpu.render or 0)),
               tuple(sorted(nodes, key=lambda node: node.number)),
               tuple((a, b, kind) for (a, b), kind in sorted(links.items())), kfd_file, driver)


def _gpu(found: Mapping[str, str], line: str) -> AmdGpu:
    render, device = maybe_integer(found["render"]), found.get("device", "")
    address = pci_address(device)
    if render is None or not (address or device.startswith("amdgpu_xcp")):
        raise ParseError(f"{quote(line)} does not describe a graphics device")
    vendor_id = found.get("vendor", "")
    pci_id = f"{vendor_id.removeprefix('0x')}:{found.get('id', '').removeprefix('0x')}".lower() if vendor_id else ""
    cards = sorted((part.partition("=")[2] for part in line.split("\t") if part.startswith("card=")), key=natural)
    parts = [maybe_integer(part.partition("=")[2]) for part in line.split("\t") if part.startswith("part=")]
    memory = maybe_integer(found.get("vram"))
    if memory is None and parts and None not in parts:
        memory = sum(part for part in parts if part is not None)
    unique = found.get("unique", "").lower().removeprefix("0x")
    kind = found.get("class", "").removeprefix("0x")[:4]
    return AmdGpu(
        class_id=kind if kind.isalnum() else "", vendor=_VENDORS.get(vendor_id, ""), render=render, pci=address,
        card=clean(cards[0]) if cards else "",
        pci_id=pci_id, model=clean(found.get("name", "")) or _NAMES.get(pci_id, ""),
        numa=maybe_integer(found.get("numa")), memory_mib=None if memory is None else memory // 1048576,
        unique_id=f"0x{clean(unique)}" if unique.strip("0") else "", vbios=clean(found.get("vbios", "")),
        compute_partition=clean(found.get("compute", "")).upper(), serial=clean(found.get("serial", "")),
        memory_partition=clean(found.get("memory", "")).upper(), file=clean(found.get("file", "")))


def _node(found: Mapping[str, str], line: str) -> KfdNode:
    number = maybe_integer(found["node"])
    if number is None:
        raise ParseError(f"{quote(line)} does not describe a compute node")
    location, domain = maybe_integer(found.get("location_id")), maybe_integer(found.get("domain")) or 0
    pci = ""
    if location is not None and domain < 1 << 32:
        # bus, device, function; the bits above tell a partition.
        pci = f"{domain:04x}:{location >> 8 & 255:02x}:{location >> 3 & 31:02x}.{location & 7}"
    hive, unique = maybe_integer(found.get("hive_id")), maybe_integer(found.get("unique_id"))
    render = maybe_integer(found.get("drm_render_minor"))
    return KfdNode(number, gpu=clean(found.get("gpu", "")), render=render or None, pci=pci,
                   hive=f"0x{hive:x}" if hive else "", unique_id=f"0x{unique:x}" if unique else "")
