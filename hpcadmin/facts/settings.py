"""Settings that decide how fast a node is: SMT, NUMA balancing, hugepages, CPU governor, IOMMU, ACS, SELinux."""

from __future__ import annotations

import re
from collections import Counter

from hpcadmin.errors import ParseError
from hpcadmin.facts._base import clean, lines_of, maybe_integer, quote

NAME = "settings"
ORDER = 62
COMMAND = r"""
c=/sys/devices/system/cpu
say() { v=; [ -r "$2" ] && { read -r v <"$2"; } 2>/dev/null && echo "$1=$v"; }
say smt $c/smt/control
# These end after the first read: a shell that reads byte by byte would see one digit.
for f in kernel/numa_balancing vm/zone_reclaim_mode kernel/nmi_watchdog; do
  [ -r /proc/sys/$f ] && v=$(cat /proc/sys/$f 2>/dev/null) && echo "${f##*/}=$v"
done
say thp /sys/kernel/mm/transparent_hugepage/enabled
say thp_defrag /sys/kernel/mm/transparent_hugepage/defrag
say boost $c/cpufreq/boost
say no_turbo $c/intel_pstate/no_turbo
say idle $c/cpuidle/current_driver
say max_cstate /sys/module/intel_idle/parameters/max_cstate
say driver $c/cpufreq/policy0/scaling_driver
say tuned /etc/tuned/active_profile
last=; n=0
for f in $c/cpufreq/policy*/scaling_governor; do
  v=; { read -r v <$f; } 2>/dev/null || continue
  [ "$v" = "$last" ] || { [ $n -gt 0 ] && echo "governor=$n $last"; n=0; last=$v; }
  n=$((n + 1))
done
[ $n -gt 0 ] && echo "governor=$n $last"
for d in /sys/kernel/mm/hugepages/hugepages-*; do
  [ -d "$d" ] || continue
  v=; { read -r v <$d/nr_hugepages; } 2>/dev/null && echo "hugepages=${d##*hugepages-} $v"
done
last=; n=0
for d in /sys/kernel/iommu_groups/*; do
  [ -d "$d" ] || continue
  v=unknown; { read -r v <$d/type; } 2>/dev/null
  [ "$v" = "$last" ] || { [ $n -gt 0 ] && echo "iommu=$n $last"; n=0; last=$v; }
  n=$((n + 1))
done
[ $n -gt 0 ] && echo "iommu=$n $last"
if [ -d /sys/fs/selinux ]; then say selinux /sys/fs/selinux/enforce; else echo selinux=; fi
R=
[ -n "$SUDO" ] && R=$SUDO
[ -z "$R" ] && [ "$(id -u)" = 0 ] && R=env
if ! command -v lspci >/dev/null 2>&1; then echo 'acs_why=lspci is not installed'
elif [ -z "$R" ]; then echo 'acs_why=only root may read it'
else
  limit 5 $R lspci -vv -d ::0604 2>/dev/null | sed -n \
    -e 's/^\([0-9a-fA-F]\{2,8\}:[^ ]*\) .*/bridge=\1/p' -e 's/^.*ACSCtl:[[:space:]]*\(.*\)$/acs=\1/p' \
    -e 's/^.*Capabilities: <access denied>.*$/denied=1/p'
fi
echo end=settings
"""
_BRACKET = re.compile(r"\[([a-z0-9_+-]{1,40})\]")
_COUNTED = re.compile(r"([0-9]{1,6}) (\S{1,40})\Z")
_PLAIN = {"smt": "SMT", "zone_reclaim_mode": "zone reclaim", "driver": "CPU frequency driver",
          "idle": "CPU idle driver", "max_cstate": "deepest C state", "tuned": "tuned profile"}
_ON_OFF = {"numa_balancing": "NUMA balancing", "nmi_watchdog": "NMI watchdog", "boost": "CPU boost"}


def parse(text: str) -> dict[str, str]:
    """Setting -> value in words; what this kernel does not have is left out. "ACS?" says why ACS is unknown."""
    lines = lines_of(text, "the kernel's settings")
    if lines[-1] != "end=settings":
        raise ParseError("the list of settings is cut off")
    values: dict[str, list[str]] = {}
    for line in lines[:-1]:
        key, equals, value = line.partition("=")
        if not equals or not re.match(r"[a-z_]{1,20}\Z", key):
            raise ParseError(f"{quote(line)} is no setting")
        values.setdefault(key, []).append(clean(value))
    found = {name: values[key][0] for key, name in _PLAIN.items() if values.get(key, [""])[0]}
    for key, name in _ON_OFF.items():
        if key in values:
            found[name] = {"0": "off", "1": "on"}.get(values[key][0], values[key][0])
    if "no_turbo" in values:
        found["CPU boost"] = {"0": "on", "1": "off"}.get(values["no_turbo"][0], values["no_turbo"][0])
    for key, name in (("thp", "transparent hugepages"), ("thp_defrag", "transparent hugepages, defrag")):
        match = _BRACKET.search(values.get(key, [""])[0])
        if match:
            found[name] = match[1]
    if "governor" in values:
        found["CPU governor"] = _counted(values["governor"])
    found["IOMMU"] = _iommu(values.get("iommu", []))
    found["SELinux"] = {"1": "enforcing", "0": "permissive"}.get(values.get("selinux", [""])[0], "off")
    if "hugepages" in values:
        found["hugepages"] = _hugepages(values["hugepages"])
    found.update(_acs(values))
    return found


def _counted(parts: list[str]) -> str:
    """"performance", or "performance (126), powersave (2)" where CPUs differ."""
    counts: Counter[str] = Counter()
    for part in parts:
        match = _COUNTED.match(part)
        if not match:
            raise ParseError(f"{quote(part)} is no number and value")
        counts[match[2]] += int(match[1])
    if len(counts) == 1:
        return next(iter(counts))
    return ", ".join(f"{name} ({count})" for name, count in counts.most_common())


def _iommu(groups: list[str]) -> str:
    if not groups:
        return "off"
    kinds = _counted(groups)
    if kinds == "identity":
        return "on, passthrough"
    if kinds == "unknown":
        return "on"
    return "on, translating" if kinds.startswith("DMA") and "," not in kinds else f"on, {kinds}"


def _hugepages(parts: list[str]) -> str:
    sizes = []
    for part in parts:
        size, _, count = part.partition(" ")
        number = maybe_integer(count)
        if number is None:
            raise ParseError(f"{quote(part)} is no number of hugepages")
        if number:
            sizes.append(f"{number} of {size}")
    return ", ".join(sizes) or "none"


def _acs(values: dict[str, list[str]]) -> dict[str, str]:
    bridges, controls = len(values.get("bridge", [])), values.get("acs", [])
    if "acs_why" in values:
        return {"ACS?": values["acs_why"][0]}
    if "denied" in values or not bridges:
        return {"ACS?": "lspci was not allowed to read it" if "denied" in values else "lspci shows no bridge"}
    # Peer-to-peer traffic goes the long way where requests (or completions) are redirected upstream.
    on = sum(1 for control in controls if re.search(r"(ReqRedir|CmpltRedir)\+", control))
    return {"ACS": f"on for {on} of {bridges} bridges" if on else "off"}
