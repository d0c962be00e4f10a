"""A node's /sys as a mapping of paths to texts: CPU masks, topology, caches and NUMA nodes, each file believed only
as far as the others agree."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import MAX_CPU, clean, cpu_list, maybe_integer, quote
from hpcadmin.facts.cpu_topology import MAX_IDS, CpuLine, CpuTopology
from hpcadmin.model import NumaNode
from hpcadmin.text import fold_ids

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"
_MASK = re.compile(r"(?:0x)?[0-9a-fA-F]{1,16}(?:,[0-9a-fA-F]{8}){0,2047}\Z")
_CPU_FILE = re.compile(r"sys/devices/system/cpu/cpu([0-9]{1,5})/(.{1,80})\Z", re.DOTALL)
_NODE_FILE = re.compile(r"sys/devices/system/node/node([0-9]{1,5})/(cpumap|cpulist|meminfo|distance)\Z")
_CACHE = re.compile(r"cache/index([0-9]{1,2})/level\Z")
_MEMORY = re.compile(r"Node [0-9]{1,5} MemTotal: {1,40}([0-9]{1,15}) kB")
_PATH = re.compile(r"\s{0,40}/?((?:sys|proc)/)")
_IN_PATH = re.compile(r":[0-9a-fA-F]{2}(?::[0-9a-fA-F]{2}\.[0-7])?/")      # the colons of a PCI address
_TITLED = re.compile(r"==> /?((?:sys|proc)/[A-Za-z0-9_./:+-]{3,250}) <==\s*\Z")
# (mask, list) of the same, the newer name first.
_PACKAGE = (("package_cpus", "package_cpus_list"), ("core_siblings", "core_siblings_list"))
_CORE = (("core_cpus", "core_cpus_list"), ("thread_siblings", "thread_siblings_list"))

Cpus = frozenset[int]


def cpu_mask(text: str) -> Cpus | None:
    """The ids in a mask such as 00000000,0000ff0f; None when it is none."""
    stripped = text.strip()
    if not _MASK.match(stripped):
        return None
    number = int(stripped.replace(",", "").removeprefix("0x"), 16)
    if number.bit_length() > MAX_CPU:
        return None
    return frozenset(place for place, bit in enumerate(reversed(bin(number)[2:])) if bit == "1")


def files_in_text(lines: Iterable[str]) -> tuple[dict[str, str], int, int]:
    """The files that `grep -r . /sys/…` or `tail -n +1 /sys/…` printed, and the lines between which they stand."""
    found: dict[str, str] = {}
    places: list[int] = []
    title = ""
    for number, line in enumerate(lines, 1):
        titled = _TITLED.match(line) if line.startswith("==>") else None
        path, text = ("", "") if titled else _grepped(line)
        if titled:
            title = titled[1]
            found.setdefault(title, "")
        elif path:
            found[path] = f"{found[path]}\n{text}" if path in found else text
            title = ""
        elif title and line.strip():
            found[title] += f"{line}\n"
        else:
            continue
        places.append(number)
    return found, min(places, default=1), max(places, default=1)


def _grepped(line: str) -> tuple[str, str]:
    """(path, text) of a line PATH:TEXT; "" when it is none."""
    start = _PATH.match(line) if "sys/" in line[:50] or "proc/" in line[:50] else None
    at = line.find(":", start.end()) if start else -1
    while start and at >= 0:
        inside = _IN_PATH.match(line, at)
        if not inside:
            path = line[start.start(1): at]
            return (path, line[at + 1:]) if " " not in path and len(path) < 300 else ("", "")
        at = line.find(":", inside.end())
    return "", ""


@dataclass
class Sysfs:
    """files: by path. cpus and nodes: the files of each, by their names within its folder. broken: contradictions that
    leave no topology to believe in."""

    files: Mapping[str, str]
    cpus: dict[int, dict[str, str]] = field(default_factory=dict)
    nodes: dict[int, dict[str, str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    split: bool = False              # masks of packages name parts of what has one id
    _read: dict[str, Cpus | None] = field(default_factory=dict)    # masks and lists by their text: many CPUs have one
    _total: int = 0
    _unlike: dict[str, dict[str, None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # Old kernels end some lists with NUL.
        self.files = {path: text.replace("\0", "") if "\0" in text else text for path, text in self.files.items()}
        for path, text in self.files.items():
            if path.startswith("sys/devices/system/cpu/cpu"):
                if match := _CPU_FILE.match(path):
                    self.cpus.setdefault(int(match[1]), {})[match[2]] = text
            elif path.startswith("sys/devices/system/node/node") and (match := _NODE_FILE.match(path)):
                self.nodes.setdefault(int(match[1]), {})[match[2]] = text
        for number in [number for number in self.cpus if number > MAX_CPU]:
            del self.cpus[number]

    def text(self, path: str) -> str:
        return self.files.get(path, "").strip()

    def ids(self, path: str) -> Cpus | None:
        """The list in a file; None when it is not there or unreadable."""
        if path not in self.files:
            return None
        try:
            return frozenset(cpu_list(self.text(path), path))
        except ParseError as exc:
            self.problems.append(exc.what)
            return None

    def both(self, files: Mapping[str, str], names: Iterable[tuple[str, str]], where: str) -> Cpus | None:
        """The CPUs that a mask and its list beside it name; the mask where they differ, as hwloc reads that."""
        for mask_name, list_name in names:
            mask = self._once(files[mask_name], cpu_mask) if mask_name in files else None
            listed: Cpus | None = None
            if list_name in files:
                listed = self._once(files[list_name], _listed)
                if listed is None:
                    self._differ(f"{list_name} cannot be read", f"{where}: {quote(files[list_name])}")
            if mask is not None and listed is not None and mask != listed:
                self._differ(f"{mask_name} contradicts {list_name}",
                             f"{where}: {fold_ids(mask) or 'none'} and {fold_ids(listed) or 'none'}")
            if mask is not None or listed is not None:
                return mask if mask is not None else listed
        return None

    def _differ(self, what: str, where: str) -> None:
        self._unlike.setdefault(what, {}).setdefault(where)

    def all_problems(self) -> list[str]:
        """One line for each kind of contradiction, with where it was first."""
        return [*(f"{what} ({next(iter(places))}{f'; {len(places) - 1} more' if len(places) > 1 else ''})"
                  for what, places in self._unlike.items()), *dict.fromkeys(self.problems)]

    def _once(self, text: str, parse: Callable[[str], Cpus | None]) -> Cpus | None:
        key = f"{parse.__name__} {text}"
        if key not in self._read:
            found = self._read[key] = parse(text)
            self._total += len(found or ())
            if self._total > MAX_IDS:
                raise ParseError("the lists of CPUs in the dump are longer than those of any machine")
        return self._read[key]

    # --- what is on line ------------------------------------------------------------------------------------------

    def present(self) -> Cpus:
        listed = self.ids(f"{CPU}/present")
        return listed if listed else frozenset(self.cpus)

    def online(self) -> Cpus:
        described = frozenset(cpu for cpu, files in self.cpus.items() if any(
            name.startswith("topology/") for name in files))
        listed = self.ids(f"{CPU}/online")
        return listed if listed else described or frozenset(self.cpus)

    # --- topology -------------------------------------------------------------------------------------------------

    def topology(self) -> CpuTopology | None:
        """None when /sys tells no topology of the CPUs on line."""
        online = self.online()
        lacking = sorted(cpu for cpu in online
                         if not any(name.startswith("topology/") for name in self.cpus.get(cpu, {})))
        if not online or lacking:
            return None
        cores = self._agreed(online, "cores", _CORE)
        self._packages(online)
        caches = self._caches(online)
        lines = []
        tuples = {each: tuple(sorted(each)) for own in caches.values() for _, each in own}
        tuples |= {each: tuple(sorted(each)) for each in cores.values()}
        for cpu in sorted(online):
            files = _topology(self.cpus[cpu])
            groups = tuple(tuples[each] for level, each in caches.get(cpu, ()) if level != 3)
            l3 = next((each for level, each in caches.get(cpu, ()) if level == 3), frozenset())
            lines.append(CpuLine(
                cpu, _id(files.get("physical_package_id")), _id(files.get("die_id")), _id(files.get("cluster_id")),
                _id(files.get("core_id")), tuples[cores[cpu]] if cpu in cores else (cpu,), tuples.get(l3, ()), groups))
        offline = tuple(sorted((self.present() - online) & (frozenset(self.cpus) or self.present())))
        return CpuTopology(tuple(sorted(online)), offline, tuple(lines))

    def _agreed(self, online: Cpus, what: str, names: Iterable[tuple[str, str]]) -> dict[int, Cpus]:
        """Each CPU's set, where every member of it names the same; what does not is a contradiction."""
        told: dict[int, Cpus] = {}
        by: dict[Cpus, set[int]] = {}
        cut: dict[Cpus, Cpus] = {}
        for cpu in sorted(online):
            found = self.both(_topology(self.cpus[cpu]), names, f"cpu{cpu}")
            if found is not None:
                told[cpu] = cut.setdefault(found, found & online)
                by.setdefault(told[cpu], set()).add(cpu)
        wrong = sorted(((cpus, members) for members, cpus in by.items() if members != cpus),
                       key=lambda each: (len(each[0]), min(each[0])))
        if wrong:
            each = "; ".join(f"CPUs {fold_ids(cpus)} name {fold_ids(members) or 'none'}" for cpus, members in wrong[:3])
            self.broken.append(f"contradicting topology masks: the {what} do not agree ({each})")
        return told

    def _packages(self, online: Cpus) -> None:
        """The masks of packages against their ids. Masks that only split one id are a known fault of old kernels."""
        told = self._agreed(online, "packages", _PACKAGE)
        by_id: dict[int | None, set[int]] = {}
        for cpu in online:
            by_id.setdefault(_id(_topology(self.cpus[cpu]).get("physical_package_id")), set()).add(cpu)
        if self.broken or None in by_id:
            return
        for number, members in by_id.items():
            masks = {told[cpu] for cpu in members if cpu in told}
            spilled = {min(mask & members) for mask in masks if not mask <= members}
            if spilled:
                self.broken.append(f"contradicting topology masks: package {number} is CPUs {fold_ids(members)} by its "
                                   f"id, {fold_ids(told[min(spilled)])} by the mask of cpu{min(spilled)}")
            elif any(mask != members for mask in masks):
                self.split = True
                self.problems.append(f"package {number}: its masks name parts of it only; its id holds "
                                     f"CPUs {fold_ids(members)} together: sockets are undetermined")

    def package_masks(self) -> dict[int, Cpus]:
        """Packages as hwloc takes them from the masks alone: each from the lowest CPU in it."""
        online = self.online()
        found: dict[int, Cpus] = {}
        for cpu in sorted(online):
            files = _topology(self.cpus.get(cpu, {}))
            members = self.both(files, _PACKAGE, f"cpu{cpu}")
            if members and min(members & online, default=-1) == cpu:
                number = _id(files.get("physical_package_id"))
                found[len(found) if number is None else number] = members & online
        return found

    def _caches(self, online: Cpus) -> dict[int, list[tuple[int, Cpus]]]:
        """(level, CPUs) of each CPU's unified and data caches. One that its lowest CPU does not name is left out."""
        told: dict[int, list[tuple[int, Cpus]]] = {}
        cut: dict[Cpus, Cpus] = {}
        for cpu in online:
            files = self.cpus[cpu]
            for name in [name for name in files if name.endswith("/level")]:
                match = _CACHE.match(name)
                level = maybe_integer(files[name]) if match else None
                folder = name.removesuffix("level")
                if level is None or files.get(f"{folder}type", "").strip() == "Instruction":
                    continue
                here = {key.removeprefix(folder): files[key] for key in (
                    f"{folder}shared_cpu_map", f"{folder}shared_cpu_list") if key in files}
                found = self.both(here, (("shared_cpu_map", "shared_cpu_list"),), f"cpu{cpu} L{level} cache")
                if found is not None and cut.setdefault(found, found & online):
                    told.setdefault(cpu, []).append((level, cut[found]))
        kept: dict[int, list[tuple[int, Cpus]]] = {}
        wrong = []
        for cpu, caches in told.items():
            for level, members in caches:
                if cpu in members and (level, members) in told.get(min(members), ()):
                    kept.setdefault(cpu, []).append((level, members))
                else:
                    wrong.append(f"cpu{cpu} L{level} ({fold_ids(members)})")
        if wrong:
            self.problems.append(f"contradicting cache masks: {', '.join(wrong[:4])}{' …' if len(wrong) > 4 else ''}")
        return kept

    # --- NUMA -----------------------------------------------------------------------------------------------------

    def numa(self) -> tuple[NumaNode, ...]:
        found = []
        for number, files in sorted(self.nodes.items()):
            cpus = self.both(files, (("cpumap", "cpulist"),), f"node{number}") or frozenset()
            memory = _MEMORY.search(files.get("meminfo", ""))
            words = files.get("distance", "").split()
            far = tuple(int(word) for word in words if word.isascii() and word.isdigit() and len(word) < 6)
            found.append(NumaNode(number, tuple(sorted(cpus)), int(memory[1]) // 1024 if memory else None,
                                  far if len(far) == len(words) == len(self.nodes) else ()))
        seen: dict[int, int] = {}
        for node in found:
            twice = [cpu for cpu in node.cpus if cpu in seen]
            if twice:
                self.problems.append(f"CPUs {fold_ids(twice)} are in two NUMA nodes, {seen[twice[0]]} and {node.id}")
            seen.update(dict.fromkeys(node.cpus, node.id))
        return tuple(found)

    def nodes_off_line(self) -> Cpus:
        """Nodes that the kernel says have CPUs or memory, and that have no folder."""
        found: set[int] = set()
        for name in ("online", "has_cpu", "has_memory", "has_normal_memory"):
            found |= self.ids(f"{NODE}/{name}") or frozenset()
        return frozenset(found - self.nodes.keys()) if self.nodes else frozenset()

    # --- the cpuset of the process that made the dump ---------------------------------------------------------------

    def cgroup(self) -> tuple[str, Cpus | None, Cpus | None]:
        """(path, CPUs that its cpuset has, CPUs in effect where that differs); None: not in the dump."""
        path = self.text("proc/self/cpuset")
        for line in self.text("proc/self/cgroup").split("\n"):
            parts = line.split(":", 2)
            if len(parts) == 3 and (("cpuset" in parts[1].split(",") and not path) or (not parts[1] and not path)):
                path = parts[2]
        path = clean(path, 300)
        if not path.startswith("/"):
            return "", None, self._allowed_by_status()
        for base, names in self._cpuset_mounts():
            own = self.ids(f"{base}{path.rstrip('/')}/{names[0]}")
            if own:
                return path, own, self.ids(f"{base}{path.rstrip('/')}/{names[1]}")
        return path, None, self._allowed_by_status()

    def _cpuset_mounts(self) -> list[tuple[str, tuple[str, str]]]:
        """Where cpusets are mounted, and the files there: what a cpuset has, what of it is in effect."""
        old, newer = ("cpuset.cpus", "cpuset.effective_cpus"), ("cpuset.cpus.effective",) * 2
        found = [("sys/fs/cgroup/cpuset", old), ("dev/cpuset", ("cpus", "effective_cpus")), ("sys/fs/cgroup", newer)]
        for line in self.files.get("proc/mounts", "").split("\n"):
            words = line.split(" ")
            if len(words) > 3 and words[2] == "cgroup2":
                found.append((words[1].strip("/"), newer))
            elif len(words) > 3 and words[2] in ("cgroup", "cpuset") and "cpuset" in (*words[3].split(","), words[2]):
                found.append((words[1].strip("/"), ("cpus", "effective_cpus") if "noprefix" in words[3]
                              or words[2] == "cpuset" else old))
        return found

    def _allowed_by_status(self) -> Cpus | None:
        match = re.search(r"^Cpus_allowed_list:\s{0,20}([0-9,-]{1,20000})$", self.files.get("proc/self/status", ""),
                          re.MULTILINE)
        try:
            return frozenset(cpu_list(match[1], "Cpus_allowed_list")) if match else None
        except ParseError as exc:
            self.problems.append(exc.what)
            return None


def _listed(text: str) -> Cpus | None:
    try:
        return frozenset(cpu_list(text, "list"))
    except ParseError:
        return None


def _topology(files: Mapping[str, str]) -> dict[str, str]:
    return {name.removeprefix("topology/"): text for name, text in files.items() if name.startswith("topology/")}


def _id(text: str | None) -> int | None:
    """None for what the kernel does not know: -1, and 65535 for clusters."""
    number = maybe_integer(text)
    return None if number in (None, 65535) else number
