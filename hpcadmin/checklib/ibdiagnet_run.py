"""Runs ibdiagnet once on a node, and takes what is told of that run apart."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpcadmin import checklib as lib
from hpcadmin.check import ParseError
from hpcadmin.checklib import ibdiagnet_csv, ibdiagnet_log

SCRIPT = r"""
PATH=$PATH:/usr/bin:/bin:/usr/sbin:/sbin LC_ALL=C
export PATH LC_ALL
tool=$1 root=$2 limit=$3
shift 3
dir=$(mktemp -d "${TMPDIR:-/tmp}/hpcadmin-ibdiagnet.XXXXXX") || exit 1
trap 'rm -rf "$dir"' EXIT
trap 'exit 143' HUP INT TERM
mkdir "$dir/out" || exit 1
said() {
    if [ -e "$2" ]; then awk -v part="$1" "$3" "$2"; fi
}
told='
function out(s) { n++; print "|" substr(s, 1, 1000) }
BEGIN { print "# begin " part }
{ sub(/\r$/, ""); sub(/.*\r/, "") }
ruled && !/^-[EW]-/ { stage++; errors = warnings = others = 0 }
{ ruled = /^(-I-)?--------------------*$/ }
/^-[EF]-/ { if (++errors <= 50) out($0); else left++; next }
/^-W-/ { if (++warnings <= 20) out($0); else left++; next }
{ if (++others <= 300 && stage <= 200) out($0); else left++ }
END { if (left) print "# left out " left; print "# end " part " " n + 0 }
'
base='
function out(s) { n++; size += length(s); print "|" s }
BEGIN {
    print "# begin " part
    split("NodeGuid PortNum LID PortState PortPhyState LinkWidthActv LinkWidthEn LinkWidthSup LinkSpeedActv " \
          "LinkSpeedEn LinkSpeedSup", ports, " ")
}
{ sub(/\r$/, "") }
/^START_/ {
    name = substr($0, 7); first = 1; rows = 0
    want = name ~ /^(NODES|LINKS|SM_INFO|PORTS|PM_INFO)$/ || name ~ /^(ERRORS|WARNINGS)(_|$)/
    if (want) out($0)
    next
}
/^END_/ { if (want) out($0); want = 0; next }
!want || $0 == "" { next }
name == "PORTS" || name == "PM_INFO" {
    fields = split($0, value, ",")
    if (first) {
        first = 0; columns = 0; wide = fields
        for (i = 1; i <= fields; i++) {
            keep = 0
            if (name == "PORTS") { for (j in ports) if (tolower(ports[j]) == tolower(value[i])) keep = 1 }
            else keep = value[i] ~ /Error|Downed|Discards|Dropped|Uncorrectable|^NodeGUID$|^PortNum/
            if (value[i] == "PortPhyState") state = i
            if (keep) column[++columns] = i
        }
    } else {
        bad = 0
        for (i = 1; i <= columns; i++)
            if (value[column[i]] !~ /^(0|-1|0x0+|0xf+e|N\/A|)$/ && column[i] > 3) bad = 1
        if (name == "PORTS" && value[state] != 5 && fields == wide || name == "PM_INFO" && !bad && fields == wide) next
        if (size > 12000000) { left++; next }
    }
    line = value[column[1]]
    for (i = 2; i <= columns; i++) line = line "," value[column[i]]
    if (fields != wide) line = $0
    out(line)
    next
}
{
    if (++rows > 1000 && name ~ /^(ERRORS|WARNINGS)/ || size > 14000000) { left++; next }
    out(substr($0, 1, 1000))
}
END { if (left) print "# left out " left; print "# end " part " " n + 0 }
'
diagnose() { $root timeout "$limit" "$tool" -o "$dir/out" "$@" >"$dir/screen" 2>&1 </dev/null; status=$?; }
echo '# hpcadmin ibdiagnet 1'
version=$($root timeout 30 "$tool" --version 2>&1 </dev/null | head -n 5 | tr -s '\n\r' '  ' | cut -c1-300)
echo "# version $version"
case $version in *'version 1.'*) set -- ;; esac
diagnose "$@"
unknown='unknown option\|unrecognized option\|illegal argument\|invalid option'
if [ "$status" != 0 ] && [ $# != 0 ] && grep -qi "$unknown" "$dir/screen"; then
    echo "# without options"
    rm -rf "$dir/out"
    mkdir "$dir/out"
    diagnose
fi
echo "# status $status"
said screen "$dir/screen" "$told"
for log in "$dir/out/ibdiagnet2.log" "$dir/out/ibdiagnet.log"; do said log "$log" "$told"; done
said base "$dir/out/ibdiagnet2.db_csv" "$base"
echo '# end ibdiagnet'
"""
_PART = re.compile(r"# (begin|end) (screen|log|base)(?: ([0-9]{1,9}))?\Z")
_FRAME = re.compile(r"# (version|status|left out|without options)(?: (.*))?\Z")


@dataclass
class Told:
    """What was told of one run. status: None where nobody knows."""

    log: ibdiagnet_log.Log | None = None
    fabric: ibdiagnet_csv.Fabric | None = None
    status: int | None = None
    framed: bool = False
    plain: bool = False                  # the version did not know the options


def told(text: str) -> Told:
    """What a text tells: what ibdiagnet printed or logged, its data base, both, or what our own script printed."""
    if "# hpcadmin ibdiagnet " in text:
        return _framed(text)
    found = Told()
    lines = lib.lines_of(text)
    base = ibdiagnet_csv.looks_like("\n".join(lines))
    inside = False
    rest: list[str] = []
    table: list[str] = []
    for line in lines:
        inside |= base and line.startswith("START_")
        (table if inside or (base and line.startswith("END_")) else rest).append(line)
        inside &= not line.startswith("END_")
    if base:
        loose = [line for line in rest if line.count(",") > 1 and not line.startswith(("-", "#"))]
        if loose:
            raise ParseError(f"a row that is in no section: {lib.shown(loose[0])}", hint="lines are lost")
        found.fabric = ibdiagnet_csv.Fabric(ibdiagnet_csv.sections(table))
    if not base or "Summary" in rest:
        if not ibdiagnet_log.looks_like("\n".join(rest)):
            raise ParseError("nothing of ibdiagnet in it")
        found.log = _finished("\n".join(rest))
    return found


def _finished(text: str) -> ibdiagnet_log.Log:
    log = ibdiagnet_log.read(text)
    if not log.finished:
        raise ibdiagnet_log.unfinished(log)
    return log


def _framed(text: str) -> Told:
    """What our own script printed."""
    lines = lib.own_output(text, "ibdiagnet")
    parts: dict[str, list[str]] = {}
    facts: dict[str, str] = {}
    inside = ""
    for line in lines[lines.index("# hpcadmin ibdiagnet 1") + 1:lines.index("# end ibdiagnet")]:
        part, fact = _PART.match(line), _FRAME.match(line)
        if part and part[1] == "begin" and not inside and part[2] not in parts:
            inside = part[2]
            parts[inside] = []
        elif part and part[1] == "end" and part[2] == inside and part[3] == str(len(parts[inside])):
            inside = ""
        elif inside and line.startswith("|"):
            parts[inside].append(line[1:])
        elif fact and (inside or fact[1] not in facts):
            facts[f"{fact[1]} {inside}".strip()] = fact[2] or ""
        else:
            raise ParseError(f"a line that the script does not print, or not here: {lib.shown(line)}",
                             hint="lines are lost, or two runs are mixed")
    if inside or "screen" not in parts or "status" not in facts:
        raise ParseError("the output of ibdiagnet is not whole", hint="lines are lost")
    return _of_parts(parts, facts)


def _of_parts(parts: dict[str, list[str]], facts: dict[str, str]) -> Told:
    told = Told(status=lib.integer(facts["status"], "exit status", most=255), framed=True,
                plain="without options" in facts)
    if told.status is not None and told.status >= 124:
        what = "was ended: it took too long" if told.status in (124, 137) else f"ended with exit status {told.status}"
        raise ParseError(f"ibdiagnet {what}", hint="limit_s is the time that it gets" if told.status == 124 else "")
    told.log = _finished("\n".join(parts["screen"]))
    if "log" in parts:
        longer = ibdiagnet_log.read("\n".join(parts["log"]))
        for name in (stage.name for stage in longer.stages):
            if told.log.stage(name) != longer.stage(name):
                raise ParseError(f"the screen and the log do not say the same of {lib.shown(name)!r}")
        told.log.said.update({key: words for key, words in longer.said.items()
                              if len(words) >= len(told.log.said.get(key, ()))})
    if "base" in parts:
        told.fabric = ibdiagnet_csv.Fabric(ibdiagnet_csv.sections(parts["base"]),
                                            partial="left out base" in facts)
    return told
