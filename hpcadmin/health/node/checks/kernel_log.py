"""Lines in the kernel log that tell of trouble."""

from hpcadmin.health.node import masks
from hpcadmin.health.node.api import Check, Param, bad, good

MYPY = False
if MYPY:
    from hpcadmin.health.node.api import Finding, Params
    from hpcadmin.health.node.door import Door


# Plain pieces of text, looked for in the whole log at once.
TROUBLE = (
    "Kernel panic - not syncing", "BUG: soft lockup", "BUG: unable to handle", "hard LOCKUP", "Oops:",
    "blocked for more than", "rcu_sched self-detected stall", "rcu_preempt self-detected stall",
    "Remounting filesystem read-only", "EXT4-fs error", "no available path - failing I/O",
    "Metadata corruption detected", "Corruption of in-memory data",
    "critical medium error", "I/O error, dev sd", "I/O error, dev nvme",
    "Detected insufficient power on the PCIe slot", "severity=Uncorrected (Fatal)", "DPC: containment event",
    "temperature above threshold, cpu clock throttled", "nfs: server", "controller is down; will reset",
)
# The same line without the word, ending with the other, says that it is back: then it is over.
OVER = {"nfs: server": ("not responding", " OK")}


def still(piece: str, texts: "list[str]") -> "list[str]":
    """The lines with this piece, without those after which it says that all is well: nfs: server NAME OK."""
    word, back = OVER.get(piece, ("", ""))
    if not word:
        return [text for text in texts if piece in text]
    last = {}  # type: dict[str, list[str]]
    for text in texts:
        if piece in text:
            name = "".join(text.partition(piece)[2].split(None, 1)[:1])
            if word in text:
                last.setdefault(name, []).append(text)
            elif text.rstrip().endswith(back):
                last.pop(name, None)
    return [text for lines in last.values() for text in lines]


def run(door: "Door", p: "Params") -> "list[Finding]":
    records = door.kernel_log()
    if p.window_h is not None:
        since = door.uptime() - p.window_h * 3600
        records = [record for record in records if record.seconds >= since]
    if p.level is not None:
        records = [record for record in records if record.level <= p.level]
    hits = trouble([record.text for record in records], p.lines)
    hits = [(mask, line) for mask, line in hits if not any(masks.matches(one, line) for one in p.without)]
    counts = {}  # type: dict[str, list[str]]
    for mask, line in hits:
        counts.setdefault(mask, []).append(line)
    return [good(lines=len(records)),
            *(bad("%s%s" % (lines[-1].strip()[:120], " (%d lines)" % len(lines) if len(lines) > 1 else ""))
              for _, lines in sorted(counts.items(), key=lambda item: -len(item[1])))]


def trouble(texts: "list[str]", lines: "list[str]") -> "list[tuple[str, str]]":
    """Which mask or piece of text, and the line."""
    whole = "\n".join(texts)
    if lines:
        return [(mask, text) for mask in lines for text in texts if masks.matches(mask, text)]
    found = []
    for piece in TROUBLE:
        if piece in whole:
            found += [(piece, text) for text in still(piece, texts)]
    return found


CHECK = Check("kernel_log", "Lines in the kernel log that tell of trouble", run, params=(
    Param("lines", "masks", [], "lines that are bad; without it a list of well known ones"),
    Param("without", "masks", [], "lines that are let pass"),
    Param("level", "number", None, "only of this level or graver (3: errors)"),
    Param("window_h", "number", 24, "of the last hours"),
))
