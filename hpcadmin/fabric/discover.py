"""The fabric as one node with rights sees it: what is asked there once, and what is made of the answer."""

from __future__ import annotations

import re

from hpcadmin.errors import ParseError, UsageError

# Both read the whole fabric with management datagrams, which takes seconds on a large one and needs root.
FABRIC_COMMANDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("ibnetdiscover", ("ibnetdiscover",)),
    ("iblinkinfo", ("iblinkinfo",)),
)
MAX_BYTES = 64 * 1024 * 1024
_BEGIN = re.compile(r"HPCADMIN-FABRIC ([0-9a-f]{16,64}) begin ([a-z]{1,40})\Z")
_END = re.compile(r"HPCADMIN-FABRIC ([0-9a-f]{16,64}) end ([a-z]{1,40}) status=([0-9]{1,3})\Z")


def fabric_probe_script(*, sudo: bool = True, seconds: int = 120, port: str = "") -> str:
    """For `sh -s -- TOKEN` on one node. port: an adapter (mlx5_0) or adapter/port to ask through; "": the first."""
    adapter, _, number = port.partition("/")
    if not re.fullmatch(r"([A-Za-z0-9_]{1,40})?", adapter) or not re.fullmatch(r"([0-9]{1,3})?", number):
        raise UsageError(f"{port!r} is no port of an adapter", hint="for example mlx5_0 or mlx5_0/1")
    options = "".join([f" -C {adapter}" if adapter else "", f" -P {number}" if number else ""])
    limit = (f'if timeout -k 1 5 true >/dev/null 2>&1; then limit() {{ timeout -k 2 {int(seconds)} "$@"; }}; '
             'else limit() { "$@"; }; fi')
    lines = ["{", "T=${1:-}", "case $T in ''|*[!0-9a-f]*) echo 'usage: sh -s -- TOKEN' >&2; exit 2;; esac",
             "LC_ALL=C; export LC_ALL", "PATH=${PATH:-/usr/bin:/bin}:/usr/local/sbin:/usr/sbin:/sbin; export PATH",
             limit]
    for name, words in FABRIC_COMMANDS:
        command = " ".join(words) + options
        tries = f"limit sudo -n {command}" if sudo else f"limit {command}"
        lines += [f"printf '\\nHPCADMIN-FABRIC %s begin {name}\\n' \"$T\"",
                  f"if command -v {words[0]} >/dev/null 2>&1; then",
                  # The status is the tool's, not head's.
                  f'  s=$( {{ {{ {_as_root(tries, command)}; echo $? >&3; }} </dev/null | head -c {MAX_BYTES} >&4; }} '
                  '3>&1 4>&5 )',
                  "else s=127; fi",
                  f"printf '\\nHPCADMIN-FABRIC %s end {name} status=%s\\n' \"$T\" \"$s\""]
    # 5 is where the answer goes, whatever the substitutions above do with 1.
    lines.insert(6, "exec 5>&1")
    return "\n".join([*lines, "exit 0", "}"]) + "\n"


def _as_root(tries: str, command: str) -> str:
    """As root where one already is."""
    if tries == f"limit {command}":
        return tries + " 2>&1"
    return f'if [ "$(id -u)" = 0 ]; then limit {command}; else {tries}; fi 2>&1'


def fabric_answers(text: str, token: str) -> dict[str, str]:
    """What each tool printed, by its name. Raises ParseError when none answered, with what they said instead."""
    found: dict[str, list[str]] = {}
    failed: dict[str, str] = {}
    name = ""
    for line in text.split("\n"):
        begin, end = _BEGIN.match(line), _END.match(line)
        if begin and begin[1] == token:
            name = begin[2]
            found[name] = []
        elif end and end[1] == token and end[2] == name:
            if end[3] != "0":
                failed[name] = _why(found.pop(name), int(end[3]))
            name = ""
        elif name:
            found[name].append(line)
    if name:
        found.pop(name)
        failed[name] = "its answer is cut off"
    if not found:
        told = "; ".join(f"{tool}: {why}" for tool, why in failed.items()) or "no answer"
        raise ParseError(f"the fabric cannot be seen: {told}",
                         hint="these tools need root: allow them to sudo -n, or run them yourself and use --from")
    return {tool: "\n".join(lines) for tool, lines in found.items()}


def _why(lines: list[str], status: int) -> str:
    if status == 127:
        return "not installed"
    if status in (124, 137, 143):
        return "did not answer in time"
    from hpcadmin.text import printable  # noqa: PLC0415
    said = next((line.strip() for line in lines if line.strip()), "")
    return printable(said, limit=160) or f"exit status {status}"
