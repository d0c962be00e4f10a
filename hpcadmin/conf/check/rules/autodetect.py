"""AutoDetect= of gres.conf: its values, where it stands, and what must not stand beside it (gres.c, gres_gpu.c)."""

from __future__ import annotations

from collections.abc import Iterator

from hpcadmin.conf.autodetect import LIBRARIES
from hpcadmin.conf.check.finding import Finding, Rule, Severity, Situation
from hpcadmin.conf.check.fleet import gres_line
from hpcadmin.conf.existing.parts import GresLine, Value
from hpcadmin.conf.names import slurm_list
from hpcadmin.facts._slurm_gres import AUTODETECT

# As _handle_autodetect_flags looks for them, anywhere in the value.
_ORDER = ("nvml", "rsmi", "oneapi", "nrt", "nvidia")
_MEANT = {"amdgpu": "rsmi", "amd": "rsmi", "rocm": "rsmi", "rocm-smi": "rsmi", "cuda": "nvml", "intel": "oneapi",
          "gpu": "nvml", "on": "nvml", "yes": "nvml", "true": "nvml", "none": "off", "no": "off"}


def unknown(situation: Situation) -> Iterator[Finding]:
    for line in situation.conf.gres:
        value = line.values.get("autodetect")
        if value is None or _kind(value):
            continue
        meant = _MEANT.get(value.text.casefold(), "")
        right = (gres_line(line, {value.key: meant}, slurm_list(line.hosts) if line.hosts else ""),) if meant else ()
        hint = f"{meant} is meant" if meant else f"one of {', '.join(sorted(AUTODETECT))}"
        yield Finding(Severity.INVALID, f"AutoDetect={value.text[:40]} is no valid value: {hint}",
                      "an error line, no GPU is detected, and the node reports fewer GPUs than configured",
                      right, value.place, line.hosts)


def two_values(situation: Situation) -> Iterator[Finding]:
    for group in situation.alike:
        first = next(iter(group.own), None)
        other = next((v for v in group.own if first is not None and _kind(v) != _kind(first)), None)
        if first is not None and other is not None:
            yield Finding(Severity.FATAL, f"AutoDetect={other.text[:40]} for nodes that have AutoDetect="
                          f"{first.text[:40]} at {first.place}", "slurmd does not start", (), other.place, group.hosts)


def without_node(situation: Situation) -> Iterator[Finding]:
    """AutoDetect= and Name= on a line that has no NodeName=."""
    for file in situation.conf.files:
        for statement in file.statements if file.name == "gres.conf" else ():
            if statement.kind == "autodetect" and " name=" in statement.text.casefold():
                rest = statement.text.split(None, 1)[1]
                yield Finding(Severity.FATAL, f"{statement.text[:80]}: AutoDetect= and Name= on a line without "
                              "NodeName=", "slurmd cannot parse the file and does not start",
                              (f"NodeName=<nodes> {statement.values[0].key}={statement.values[0].text} {rest}",),
                              statement.place)


def beside(situation: Situation) -> Iterator[Finding]:
    """Cores= or Links= by hand where GPUs are detected."""
    for group in situation.alike:
        if group.autodetect is None:
            continue
        for line in group.of():
            keys = [line.values[key].key for key in ("cores", "links") if key in line.values]
            if keys:
                hosts = slurm_list(line.hosts) if line.hosts else ""
                taken = gres_line(line, dict.fromkeys(keys), hosts)
                yield Finding(Severity.INVALID, f"{' and '.join(f'{key}=' for key in keys)} beside AutoDetect="
                              f"{group.autodetect.text[:40]} ({group.autodetect.place})",
                              "where they differ from what is detected the GPU is dropped, and the node is INVAL",
                              (taken, f"NodeName={hosts or '<nodes>'} AutoDetect=off {_tail(line)}"), line.place,
                              group.hosts)


def cloud(situation: Situation) -> Iterator[Finding]:
    """slurmctld reads gres.conf for cloud nodes itself, and has no GPUs to detect."""
    for group in situation.alike:
        if group.autodetect is None or not group.state.startswith("CLOUD") or not group.wants():
            continue
        old = situation.among(lambda version: version < (23, 11))
        new = situation.among(lambda version: version >= (23, 11))
        for severity, versions, how in ((Severity.FATAL, old, "slurmctld does not start"),
                                        (Severity.WRONG, new, "slurmctld does not know the node's GPUs")):
            if versions is not None:
                yield Finding(severity, f"AutoDetect={group.autodetect.text[:40]} for State=CLOUD nodes",
                              f"Cannot use AutoDetect on cloud node: {how}",
                              (f"NodeName={slurm_list(group.hosts)} AutoDetect=off Name=gpu File=/dev/nvidia<minor>",),
                              group.autodetect.place, group.hosts, versions)


def library(situation: Situation) -> Iterator[Finding]:
    """What the inventory knows about the plug-ins of the nodes' slurmd."""
    for group in situation.alike:
        kind = _kind(group.autodetect) if group.autodetect is not None else ""
        plugin = LIBRARIES.get(kind, "")
        without = [host for host in group.hosts if plugin and host in situation.machines
                   and situation.machines[host].tools.get(plugin) == ""]
        if group.autodetect is not None and without:
            yield Finding(Severity.INVALID, f"AutoDetect={kind}, and slurmd of {slurm_list(without)} has no {plugin}",
                          "old versions of slurmd do not start, newer find no GPU",
                          (f"NodeName={slurm_list(group.hosts)} AutoDetect=off Name=gpu File=/dev/nvidia<minor>"
                           if kind == "nvml" else
                           f"NodeName={slurm_list(group.hosts)} AutoDetect=off Name=gpu File=/dev/dri/renderD<minor>",),
                          group.autodetect.place, tuple(without))


def _kind(value: Value) -> str:
    """"" for what no version knows."""
    text = value.text.casefold()
    found = next((kind for kind in _ORDER if kind in text), "")
    return found or (text if text in ("off", "full") else "")


def _tail(line: GresLine) -> str:
    return gres_line(line, {"AutoDetect": None})


RULES: tuple[Rule, ...] = (unknown, two_values, without_node, beside, cloud, library)
