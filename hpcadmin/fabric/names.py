"""What descriptions of fabric devices say: hosts, their adapters, cards without a name, switches."""

from __future__ import annotations

import re

from hpcadmin.hosts import is_node_name

# "node01 mlx5_0", "node01 HCA-1"; a description of one word is a host whose adapter is not told.
_ADAPTER = re.compile(
    r"(?:HCA-[0-9]{1,3}|(?:mlx[45]|mthca|qib|hfi1|ipath|irdma|bnxt_re|rxe|siw|ibp|ibsim|roce|rocep|ibs|ib|hca)"
    r"[A-Za-z0-9_.-]{0,40})\Z")
_GENERIC = re.compile(r"mellanox|nvidia|connect-?(?:x|ib)|infiniscale|switch-?(?:x|ib)|quantum|spectrum|\AMT[0-9_]{2,}"
                      r"|\AMF0;\Z|truescale|omni-?path", re.IGNORECASE)
_AGGREGATION = re.compile(r"aggregation node|\bsharp\b", re.IGNORECASE)
_MANAGED = re.compile(r"MF0;([^:;]{1,100}):([^/;]{0,100})(?:/.{0,60})?\Z")
# Names that an installation gives before anybody has named the machine.
_UNNAMED_HOSTS = frozenset({"localhost", "ubuntu", "debian", "centos", "rocky", "rhel", "linux", "host", "none",
                            "(none)", "node", "server", "unknown", "default", "fedora", "sles", "almalinux", "livecd"})
_SERVICE = re.compile(r"(?:ufm|mgmt|mgt|manage|admin|head|login|master|gateway|router|storage|subnet|opensm)",
                      re.IGNORECASE)


def host_of(description: str) -> tuple[str, str]:
    """(host, adapter) of an adapter's description; ("", adapter) when it names no host of its own."""
    words = description.split()
    adapter = words[-1] if len(words) > 1 and _ADAPTER.match(words[-1]) else ""
    rest = words[:-1] if adapter else words
    if len(rest) != 1 or is_aggregation(description) or _GENERIC.search(description):
        return "", adapter
    host = rest[0].partition(".")[0].strip("'\"")
    if not is_node_name(host) or host.lower() in _UNNAMED_HOSTS or host.isdigit():
        return "", adapter
    return host, adapter


def is_aggregation(description: str) -> bool:
    """A switch's own SHARP node, which is no host."""
    return bool(_AGGREGATION.search(description))


def other_name(description: str) -> str:
    """What an adapter without a host is counted as: "localhost" for "localhost HCA-2"."""
    words = description.split()
    return words[0] if len(words) == 2 and _ADAPTER.match(words[1]) else " ".join(words)


def is_generic(description: str) -> bool:
    """The card's or chip's own name: many devices carry the same. A managed switch has a name of its own."""
    managed = _MANAGED.match(description)
    return not description.strip() or (not managed and bool(_GENERIC.search(description)))


def is_service(host: str) -> bool:
    """By its name no compute node (UFM, head, login, …): a guess, to be told as one."""
    return bool(_SERVICE.search(host))


def switch_name(description: str, guid: str, lid: int | None = None) -> str:
    """SB7700 of "MF0;SB7700:MSB7700/U1"; a name made of the GUID where the description is every such chip's."""
    managed = _MANAGED.match(description)
    if managed:
        return managed[1].strip()
    if not is_generic(description):
        return " ".join(description.split())
    return f"switch-{guid}" if guid else f"switch-lid{lid}" if lid else description or "switch"


def module_of(description: str) -> str:
    """L01 of "MF0;core1:IS5200/L01/U1": all modules of a director switch have its name; "" for others."""
    found = re.match(r"MF0;[^:;]{1,100}:[^/;]{0,100}/([A-Z][0-9]{1,3})/U[0-9]{1,3}\Z", description)
    return found[1] if found else ""


_NUMBER = re.compile(r"([0-9]{1,18})")


def pieces(name: str) -> list[str]:
    """Text and numbers by turns, beginning and ending with text."""
    return _NUMBER.split(name)


def short_names(names: list[str]) -> dict[str, str]:
    """IBLEAF-04-08 for A09-P1-IBLEAF-04-08, where what stands before the last word says nothing that tells them apart;
    the names themselves where they are not built alike or would be the same."""
    split = [pieces(name) for name in names]
    if len({len(parts) for parts in split}) != 1 or len(split) < 2:
        return {name: name for name in names}
    texts = split[0][0::2]
    word = next((place for place in range(len(texts) - 1, -1, -1) if re.search(r"[A-Za-z]{2,}", texts[place])), 0)
    short = {}
    for name, parts in zip(names, split, strict=True):
        first = re.search(r"[A-Za-z][A-Za-z_]*(?![A-Za-z])[^A-Za-z]*\Z", parts[2 * word])
        head = first[0] if first and len(re.findall("[A-Za-z]", first[0])) > 2 else "".join(parts[:2 * word + 1])
        short[name] = head + "".join(parts[2 * word + 1:])
    return short if len(set(short.values())) == len(set(names)) else {name: name for name in names}


def joint_name(names: list[str], default: str) -> str:
    """One name for several switches that are one in a tree: what they have in common at the beginning."""
    if len(names) == 1:
        return names[0]
    first, last = min(names), max(names)
    common = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    head = re.sub(r"[0-9]*\Z", "", first[:common]).strip("-_. ")
    return head if len(head) > 2 else default
