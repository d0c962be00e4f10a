"""NHC's checks of hardware (lbnl_hw): processors, memory, swap, InfiniBand, Ethernet, Myrinet, mcelog."""

from hpcadmin.health.node.nhc_base import Died, Nhc
from hpcadmin.health.node.nhc_match import glob_matches

MYPY = False
if MYPY:
    from hpcadmin.health.node.door import Door


def counts(door: "Door") -> "dict[str, int]":
    """Sockets, cores, threads by NHC's rules: what the last processor says, times the sockets."""
    def read() -> "dict[str, int]":
        if not door.exists("/proc/cpuinfo"):
            return {"HW_SOCKETS": 1, "HW_CORES": 1, "HW_THREADS": 1}
        processors, packages, cores, siblings = 0, set(), "", ""
        for line in door.text("/proc/cpuinfo").split("\n"):
            if line.startswith("physical id"):
                packages.add(_value(line))
            elif line.startswith("processor"):
                processors += 1
            elif line.startswith("cpu cores"):
                cores = _value(line)
            elif line.startswith("siblings"):
                siblings = _value(line)
        sockets = len(packages)
        if processors and not sockets:
            return {"HW_SOCKETS": processors, "HW_CORES": processors, "HW_THREADS": processors}
        if not cores.isdigit():
            return {"HW_SOCKETS": 1, "HW_CORES": 1, "HW_THREADS": 1}
        threads = sockets * int(siblings) if siblings.isdigit() else 0
        return {"HW_SOCKETS": sockets, "HW_CORES": sockets * int(cores), "HW_THREADS": threads}
    return door.once("nhc cpuinfo", read)  # type: ignore[no-any-return]


def _value(line: str) -> str:
    return line.partition(":")[2].strip()


def check_hw_cpuinfo(nhc: Nhc, args: "list[str]") -> None:
    found = counts(nhc.door)
    if found["HW_SOCKETS"] == found["HW_THREADS"] > 8:
        nhc.notice("/proc/cpuinfo names no sockets: NHC takes each processor for one")
    nhc.numbers.names.update((name, str(count)) for name, count in found.items())
    for name, wanted in zip(("HW_SOCKETS", "HW_CORES", "HW_THREADS"), args):
        if wanted and nhc.numbers.test(wanted, "ne", str(found[name])):
            raise Died("%d %s, not %s" % (found[name], name[3:].lower(), wanted))


def memory(door: "Door") -> "dict[str, int]":
    """kB of memory and swap, in all and free; buffers and page cache count as free."""
    def read() -> "dict[str, int]":
        kb = {"ram": 0, "ram free": 0, "swap": 0, "swap free": 0}
        if not door.exists("/proc/meminfo"):
            return dict(kb, **{"ram": 1024, "ram free": 1})
        names = {"MemTotal:": "ram", "MemFree:": "ram free", "Buffers:": "ram free", "Cached:": "ram free",
                 "SwapTotal:": "swap", "SwapFree:": "swap free"}
        for line in door.text("/proc/meminfo").split("\n"):
            words = line.split()
            name = names.get(words[0]) if len(words) > 1 else None
            if name and words[1].isdigit():
                kb[name] = int(words[1]) + (kb[name] if name == "ram free" else 0)
        return kb
    return door.once("nhc meminfo", read)  # type: ignore[no-any-return]


def _between(nhc: Nhc, what: str, actual: int, args: "list[str]") -> None:
    low, high, fudge = (args + ["", "", ""])[:3]
    low, high = nhc.numbers.size(low), nhc.numbers.size(high)
    if fudge.endswith("%"):
        spare = nhc.numbers.expand("%s*%d/100" % (fudge[:-1], actual))
    else:
        spare = nhc.numbers.expand(nhc.numbers.size(fudge) or "0")
    if not high:
        nhc.notice("without a maximum NHC takes 0, and fails")
    if nhc.numbers.test(str(actual + spare), "lt", low):
        raise Died("%s is %d kB, less than %s kB" % (what, actual, low))
    if nhc.numbers.test(str(actual - spare), "gt", high):
        raise Died("%s is %d kB, more than %s kB" % (what, actual, high or "0"))


def check_hw_physmem(nhc: Nhc, args: "list[str]") -> None:
    _between(nhc, "memory", memory(nhc.door)["ram"], args)


def check_hw_swap(nhc: Nhc, args: "list[str]") -> None:
    _between(nhc, "swap", memory(nhc.door)["swap"], args)


def check_hw_mem(nhc: Nhc, args: "list[str]") -> None:
    kb = memory(nhc.door)
    _between(nhc, "memory and swap", kb["ram"] + kb["swap"], args)


def _at_least(nhc: Nhc, what: str, actual: int, args: "list[str]") -> None:
    low = nhc.numbers.size(args[0] if args else "")
    if nhc.numbers.test(str(actual), "lt", low):
        raise Died("%s is %d kB, less than %s kB" % (what, actual, low))


def check_hw_physmem_free(nhc: Nhc, args: "list[str]") -> None:
    _at_least(nhc, "free memory", memory(nhc.door)["ram free"], args)


def check_hw_swap_free(nhc: Nhc, args: "list[str]") -> None:
    _at_least(nhc, "free swap", memory(nhc.door)["swap free"], args)


def check_hw_mem_free(nhc: Nhc, args: "list[str]") -> None:
    kb = memory(nhc.door)
    _at_least(nhc, "free memory and swap", kb["ram free"] + kb["swap free"], args)


def check_hw_ib(nhc: Nhc, args: "list[str]") -> None:
    """One port that is up is enough; the rate is compared as a text. A port that is down gets a notice."""
    rate, device = (args + ["", ""])[:2]
    if (nhc.door.number("/sys/class/infiniband_mad/abi_version") or 0) == 0:
        raise Died("no InfiniBand management interface (ib_umad)")
    hit, down = False, []
    for name in nhc.door.names("/sys/class/infiniband"):
        for port in nhc.door.names("/sys/class/infiniband/%s/ports" % name):
            folder = "/sys/class/infiniband/%s/ports/%s/" % (name, port)
            state, physical = (_second(nhc.door.word(folder + file)) for file in ("state", "phys_state"))
            if (state, physical) != ("ACTIVE", "LinkUp"):
                down.append("%s:%s" % (name, port))
            elif device in ("", "%s:%s" % (name, port)):
                hit = hit or not rate or (nhc.door.word(folder + "rate") + " ").split()[:1] == [rate]
    if not hit:
        raise Died("no port%s is active%s" % (" " + device if device else "", " at %s Gb/s" % rate if rate else ""))
    if down and not device:
        nhc.notice("%s is not active; NHC is content with one port that is" % ", ".join(down))


def _second(text: str) -> str:
    """ACTIVE of "4: ACTIVE"."""
    words = text.replace(":", " ").split()
    return words[1] if len(words) > 1 else ""


def interfaces(door: "Door") -> "list[str]":
    if not door.exists("/proc/net/dev"):
        return []
    words = [line.split()[0] for line in door.text("/proc/net/dev").split("\n") if line.strip()]
    return [word.partition(":")[0] for word in words if ":" in word]


def check_hw_eth(nhc: Nhc, args: "list[str]") -> None:
    device = args[0] if args else ""
    if not any(glob_matches(name, device) for name in interfaces(nhc.door)):
        raise Died("no network interface %s" % device)


def check_hw_gm(nhc: Nhc, args: "list[str]") -> None:
    device = args[0] if args else ""
    loaded = nhc.door.exists("/proc/modules") and any(
        line.split(" ")[0] == "gm" for line in nhc.door.text("/proc/modules").split("\n"))
    if not loaded or not any(glob_matches(name, device) for name in interfaces(nhc.door)):
        raise Died("Myrinet device %s is not there, or its driver is not" % device)


def check_hw_mcelog(nhc: Nhc, args: "list[str]") -> None:
    argv = nhc.setting("MCELOG", "mcelog").split() + nhc.setting("MCELOG_ARGS", "--client").split()
    if not argv:
        return
    status, out, err = nhc.run(argv)
    if status == 127 and not out:
        nhc.notice("%s is not there: NHC takes that as no error" % argv[0])
    text = out + err
    if not text.strip("\n") or "Connection refused" in text:
        return
    limits = {"corrected memory errors:": nhc.setting("MCELOG_MAX_CORRECTED_RATE", "9"),
              "uncorrected memory errors:": nhc.setting("MCELOG_MAX_UNCORRECTED_RATE", "0")}
    if not all(limits.values()):
        raise Died("mcelog reports machine checks")
    lines = nhc.lines(text)
    for number, line in enumerate(lines):
        if line in limits and number + 2 < len(lines):
            count = (lines[number + 2].split() or ["0"])[0]
            if nhc.numbers.test(count, "gt", limits[line]):
                raise Died("%s %s in 24 h, more than %s" % (count, line[:-1], limits[line]))
