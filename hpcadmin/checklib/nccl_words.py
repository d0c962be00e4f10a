"""What NCCL, launchers and the kernel say around a table: errors with their hosts, the transport, everything else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hpcadmin.checklib import fatal_lines, shown
from hpcadmin.checklib.nccl_run import Line

# What the tests, NCCL, CUDA and MPI print when something broke; a table beside such a line proves nothing.
BROKEN = ("test failure", "test cuda failure", "test nccl failure", "test mpi failure", "test hip failure",
          "nccl failure ", "unhandled cuda error", "unhandled system error", "unhandled hip error", "internal error",
          "cuda failure", "cuda error", "hip failure", "remote process exited", "test timeout",
          "invalid number of gpus", "invalid device ordinal", "async error", "async operation failed",
          "ibv_poll_cq", "nccl error", "xid (pci",
          "uncorrectable ecc", "not enough slots available", "nccl watchdog", "# error:", "connection reset",
          "got completion from peer", "error while loading shared libraries", "mpi_err_", "connection refused",
          "connection timed out", "socket timed out", "mce: [hardware error]", "machine check", "fatal error",
          "segfault at", "traceback (most recent", "nvrm: xid", "nvrm: gpu", "bad termination", "cancelled at",
          "node failure", "ucx  error", "ucx error", "link down", "cable unplugged", "fallen off the bus",
          "memory access fault by gpu", "terminate called after", "stack smashing detected", "process received signal",
          "was unable to launch", "aborting with error", "hsa_status_error", "hiperror", "soft lockup",
          "free(): invalid", "double free or corruption", "gpu reset begin")
_DEATHS = ("Killed", "Aborted", "Terminated", "Hangup")       # as shells say it of what they started
_DIED = re.compile(rf"(?:.{{1,200}}: line \d{{1,6}}: +\d{{1,9}} )?(?:{'|'.join(_DEATHS)})(?: |$)")
# NCCL tells what it does, and what it tries again, in the same words.
_NO_FAILURE = (" nccl info ", "retrying")
_HOSTS = (re.compile(r"(\S{1,255}): Test (?:(?:CUDA|NCCL|MPI|HIP|RCCL) failure|timeout)"),
          re.compile(r"\.\. (\S{1,255}) pid \d{1,9}: Test failure"),
          re.compile(r"(?:\[[\d :.-]{8,40}\] )?(\S{1,255}):\d{1,9}:\d{1,9} \[\d{1,5}\] "),
          re.compile(r"srun: error: ([^:\s]{1,255}): task"),
          re.compile(r"slurmstepd-(\S{1,255}): error"))
_NO_HOST = re.compile(r"\.\. (\S{1,255}) pid: Test failure")
# Newer versions put the time before warnings.
_NCCL = re.compile(r"(?:\[[\d :.-]{8,40}\] )?\S{1,255}:\d{1,9}:\d{1,9} \[\d{1,5}\] (.*)")
_VIA = re.compile(r"(?:Channel|Ring) \d{1,4}(?:/\d{1,4})?\s{0,4}: .{1,80}? via ([^\s].{0,60})")
_PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is (\w{1,20})")
_USING = re.compile(r"Using network (\S[\w ./-]{0,40}?)(?: \(|\(|$)")
_DEVICES = re.compile(r"NET/IB\s?: Using (.{1,400})")
_DIGITS = re.compile(r"\d+")
_TELLING = (" via ", "using network", "net/", "exceeds", "fail", "could not", "error", "version", "timeout", "nvls",
            "unable", "warn", "-> ")
MOST = 24


@dataclass(frozen=True)
class Words:
    errors: tuple[str, ...]         # lines that say that the run broke, each once
    hosts: tuple[str, ...]          # that such lines name
    transport: str | None
    warnings: tuple[str, ...]       # NCCL WARN
    notes: tuple[str, ...]          # other lines, each once


def words_of(lines: Sequence[Line], others: Sequence[Line], hosts_of_list: int) -> Words:
    """lines: all of the output; others: those that belong to no table."""
    texts = [line.text for line in lines if line.text]
    doubtful = [t for t in texts if not any(word in t.lower() for word in _NO_FAILURE)]
    broken = [*fatal_lines(doubtful, limit=400, also=BROKEN), *[t for t in doubtful if _died(t)][:8]]
    errors = _joined(dict.fromkeys(shown(t) for t in broken))
    nccl, rest = [], []
    for line in others:
        match = _NCCL.match(line.text)
        if match is None:
            rest.append(line)
        else:
            nccl.append((line.raw, match[1]))
    warnings = [raw for raw, said in nccl if "NCCL WARN" in said]
    seen = {shown(t) for t in broken}
    rest = [line for line in rest if shown(line.raw) not in seen and shown(line.text) not in seen]
    return Words(tuple(_spread(errors)), _named(texts, broken), _transport(nccl, hosts_of_list),
                 tuple(shown(w) for w in dict.fromkeys(warnings)), tuple(_notes(nccl, rest)))


def _died(text: str) -> bool:
    return any(word in text for word in _DEATHS) and _DIED.match(text) is not None


def _joined(lines: Iterable[str]) -> list[str]:
    """Errors; the places that a program names behind each (" .. host pid 1: Test failure common.cu:1") belong to it."""
    found: list[str] = []
    for line in lines:
        if line.startswith(".. ") and found and len(found[-1]) < 800:
            found[-1] += f" {line}"
        else:
            found.append(line)
    return found


def _spread(errors: Sequence[str]) -> list[str]:
    """Of very many lines those of as many hosts as possible, the first ones first."""
    if len(errors) <= MOST:
        return list(errors)
    first: dict[str, str] = {}
    for line in errors:
        first.setdefault(_host(line) or line, line)
    chosen = list(first.values())[:MOST - 6]
    return [*chosen, *[line for line in errors if line not in set(chosen)][:MOST - len(chosen)]]


def _host(text: str) -> str:
    """The host that a line names: at its beginning, or behind a row that the message broke."""
    return next((m[1] for m in (p.match(text) for p in _HOSTS) if m), "") or (
        m[1] if ": Test " in text and (m := _HOSTS[0].search(text[:2000])) else "")


def _named(texts: Iterable[str], broken: Sequence[str]) -> tuple[str, ...]:
    """Hosts that lines of errors and of NCCL name; not the word that stands where a host should."""
    none = {m[1] for m in map(_NO_HOST.match, broken) if m}
    found = dict.fromkeys(_host(t) for t in texts if ": " in t or ":" in t)
    return tuple(h for h in found if h and h not in none)


def _transport(nccl: Sequence[tuple[str, str]], hosts: int) -> str | None:
    """What the channels use, as NCCL_DEBUG=INFO tells: between nodes the network, else shared memory or peer access."""
    ways = dict.fromkeys(m[1].split(" comm ")[0].strip() for m in (_VIA.search(said) for _, said in nccl) if m)
    nets = [w for w in ways if w.startswith("NET/")]
    devices = next((m[1] for p in (_PROVIDER, _DEVICES) for m in (p.search(said) for _, said in nccl) if m), "")
    used = dict.fromkeys(m[1] for m in (_USING.search(said) for _, said in nccl) if m)
    if not nets and hosts > 1:
        nets = [f"NET/{name}" for name in used]
    if nets:
        return "; ".join(dict.fromkeys(_network(net, devices) for net in _slowest_first(nets)))
    for kind in ("SHM", "P2P", "NVLS"):
        mine = [w for w in ways if w.startswith(kind)]
        if mine:
            return f"{kind} between GPUs ({', '.join(mine[:4])})"
    return "NVLS" if any("NVLS comm" in said or "NVLS Head" in said for _, said in nccl) else None


def _slowest_first(nets: Sequence[str]) -> list[str]:
    return sorted(nets, key=lambda net: not net.startswith("NET/Socket"))


def _network(net: str, devices: str) -> str:
    direct = " with GPUDirect RDMA" if "GDRDMA" in net else ""
    if net.startswith("NET/Socket"):
        return "TCP (NET/Socket)"
    if net.startswith("NET/IB"):
        kind = "RoCE" if "/RoCE" in devices and "/IB" not in devices else "IB"
        return f"{kind} (NET/IB){direct}"
    if "libfabric" in net.lower() or "ofi" in net.lower():
        kind = devices.upper() if devices.isalpha() else "OFI"
        return f"{kind} ({'/'.join(net.split('/')[:2])}){direct}"
    name = net.removeprefix("NET/").split("/")[0]
    return f"{'RoCE' if name == 'gIB' else name} (NET/{name}){direct}"      # gIB: Google's plugin for RoCE


def _notes(nccl: Sequence[tuple[str, str]], rest: Sequence[Line]) -> list[str]:
    """What else stands there, each kind once: first what tells something, then the rest."""
    kinds: dict[str, str] = {}
    for raw, said in nccl:
        if any(word in said.lower() for word in _TELLING):
            kinds.setdefault(_DIGITS.sub("0", said[-60:]), raw)
    found = [shown(raw) for raw in list(kinds.values())[:MOST]]
    plain = dict.fromkeys(line.raw for line in rest)
    return found + [shown(raw) for raw in list(plain)[:MOST] if set(raw) - set("-=_*# `")]
