"""The lines of lscpu found in any text: old and new labels, indented, quoted, in the languages that it speaks."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from hpcadmin.errors import ParseError
from hpcadmin.facts._lscpu_table import Table

_PREFIX = " \t>|`*"
_LABELS = {
    "architecture": "architecture", "cpu op-mode(s)": "modes", "byte order": "bytes", "address sizes": "addresses",
    "cpu(s)": "cpus", "on-line cpu(s) list": "online", "on-line cpu(s) mask": "mask",
    "off-line cpu(s) list": "offline", "thread(s) per core": "threads", "core(s) per socket": "cores",
    "core(s) per cluster": "cluster_cores", "socket(s)": "sockets", "cpu socket(s)": "sockets",
    "cluster(s)": "clusters", "socket(s) per book": "sockets_per_book", "book(s)": "books",
    "book(s) per drawer": "books_per_drawer", "drawer(s)": "drawers", "numa node(s)": "nodes", "model name": "model",
    "vendor id": "vendor", "cpu family": "family", "model": "version", "stepping": "stepping",
    "hypervisor vendor": "hypervisor", "flags": "flags", "l1d cache": "l1d", "l1i cache": "l1i", "l2 cache": "l2",
    "l3 cache": "l3", "numa cell(s)": "virsh", "memory size": "virsh",
    # German, French, Spanish, Italian, Portuguese, Chinese, Japanese, Russian as util-linux translates them.
    "architektur": "architecture", "arquitectura": "architecture", "architettura": "architecture",
    "arquitetura": "architecture", "架构": "architecture", "アーキテクチャ": "architecture",
    "архитектура": "architecture", "prozessor(en)": "cpus", "processeur(s)": "cpus", "cpu": "cpus",
    "liste der online-cpu(s)": "online", "liste der online-prozessor(en)": "online",
    "liste de processeur(s) en ligne": "online", "lista de la(s) cpu(s) en línea": "online",
    "在线 cpu 列表": "online", "オンラインになっている cpu のリスト": "online", "on-line cpu(s) のリスト": "online",
    "liste der offline-cpu(s)": "offline", "liste de processeur(s) hors ligne": "offline", "离线 cpu 列表": "offline",
    "thread(s) pro kern": "threads", "thread(s) par cœur": "threads", "hilo(s) de procesamiento por núcleo": "threads",
    "thread(s) por núcleo": "threads", "每个核的线程数": "threads", "コアあたりのスレッド数": "threads",
    "потоков на ядро": "threads", "kern(e) pro socket": "cores", "kern(e) pro sockel": "cores",
    "cœur(s) par socket": "cores", "núcleo(s) por «socket»": "cores", "núcleo(s) por soquete": "cores",
    "每个座的核数": "cores", "ソケットあたりのコア数": "cores", "ядер на сокет": "cores",
    "sockel": "sockets", "«socket(s)»": "sockets", "soquete(s)": "sockets", "座": "sockets", "ソケット数": "sockets",
    "сокетов": "sockets", "numa-knoten": "nodes", "nœud(s) numa": "nodes", "modo(s) numa": "nodes",
    "nodo(s) numa": "nodes", "nó(s) de numa": "nodes", "numa 节点": "nodes", "numa ノード数": "nodes",
    "modellname": "model", "nom de modèle": "model", "nombre del modelo": "model", "nome do modelo": "model",
    "型号名称": "model", "モデル名": "model", "имя модели": "model",
    "anbieterkennung": "vendor", "厂商 id": "vendor", "ベンダー id": "vendor", "identifiant constructeur": "vendor",
}
_NODE = re.compile(r"(?:numa node ?|numa-knoten ?|nœud numa |numa 节点|numa ノード )([0-9]{1,5})(?: ?(?:cpu\(s\)|cpu"
                   r"|de processeur\(s\)))?\Z")
_FURTHER = frozenset("ncv")      # with which a line of a NUMA node begins, or one of a vulnerability
_NODE_LAST = re.compile(r"cpu\(s\) del nodo numa ([0-9]{1,5})\Z")
# Of these two must be there, or a NUMA node's line twice, for lines to be taken for lscpu's.
_TELLING = frozenset({"cpus", "online", "threads", "cores", "sockets", "nodes", "cluster_cores", "sockets_per_book"})
_PER_MODEL = frozenset({"model", "threads", "cores", "sockets"})
_LEADING = re.compile(r"([0-9]{1,7})(?![0-9.,:x-])")
_LIST_END = re.compile(r"[0-9,:-]{1,60000}\Z")
_PAIR = re.compile(r'"field"\s{0,20}:\s{0,20}"([^"\\\n]{0,200})"\s{0,200},\s{0,200}"data"\s{0,20}:\s{0,20}'
                   r'(?:"([^"\n]{0,20000})"|null)')
_REMARK = re.compile(r"\s#")      # what somebody wrote behind a value
_GAP = 60


@dataclass
class Block:
    """The lines of one output. models: for each kind of core its own, where there are several kinds."""

    first: int
    last: int
    values: dict[str, str] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    numa: dict[int, tuple[str, int]] = field(default_factory=dict)
    models: list[dict[str, str]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    ended: bool = False              # something stands behind the place where the NUMA lines would be
    json: bool = False
    cut: bool = False                # JSON without its end
    open: int | None = None          # the NUMA node whose list goes on in the next line

    def one(self, key: str) -> int | None:
        return number_in(self.values.get(key))

    def line_of(self, key: str) -> int | None:
        return None if self.json else self.lines.get(key, self.first)

    def put(self, key: str, value: str, line: int) -> None:
        self.last = line
        if key in _PER_MODEL:
            if not self.models or key in self.models[-1]:
                self.models.append({})
            self.models[-1][key] = value
        if key in ("l1d", "l1i", "l2", "l3"):
            self.values["caches"] = "yes"
        if key == "vulnerability" or (key == "flags" and "caches" in self.values):
            self.ended = True
        self.values.setdefault(key, value)
        self.lines.setdefault(key, line)


def number_in(text: str | None) -> int | None:
    """The number at the beginning of "2" and "2 (remark)"; None for "-", "2.5" and what else is no count."""
    match = _LEADING.match((text or "").strip())
    return int(match[1]) if match else None


def _label(line: str) -> tuple[str, int | None, str]:
    """(key, NUMA node, value) of a line of lscpu; key "" when it is none."""
    head, colon, value = line.partition(":")
    if "\uff1a" in line:                 # full-width colon
        wide, wide_colon, wide_value = line.partition("\uff1a")
        if len(wide) < len(head):
            head, colon, value = wide, wide_colon, wide_value
    if not colon or len(head) > 80:
        return "", None, ""
    name = " ".join(head.strip(_PREFIX + "\u00a0").lower().split())
    key = _LABELS.get(name, "")
    if "#" in value:
        value = _REMARK.split(value, maxsplit=1)[0]
    if key:
        return key, None, value.strip()
    if name[:1] not in _FURTHER:
        return "", None, ""
    match = _NODE.match(name) or _NODE_LAST.match(name)
    if match:
        return "node", int(match[1]), value.strip()
    return ("vulnerability", None, value) if name.startswith("vulnerability ") else ("", None, "")


def is_telling(line: str) -> bool:
    """Of such lines every output of lscpu has two."""
    key, node, _ = _label(line)
    return key in _TELLING or node is not None


def blocks(lines: Sequence[str]) -> list[Block]:
    """Every output of lscpu in the text, in order. A new one begins where "CPU(s)" or "Architecture" comes again."""
    found: list[Block] = []
    current: Block | None = None
    for number, line in enumerate(lines, 1):
        if current is not None and current.open is not None:
            if _continue_list(current, line, number):
                continue
            current.open = None
        key, node, value = _label(line)
        if not key:
            continue
        if current is None or number - current.last > _GAP or (
                key in ("architecture", "cpus", "modes") and key in current.values):
            current = Block(number, number)
            found.append(current)
        if node is None:
            current.put(key, value, number)
        else:
            _put_node(current, node, value, number)
    return [_finish(block) for block in found if _is_lscpu(block)]


def _put_node(block: Block, node: int, value: str, line: int) -> None:
    block.last, block.ended = line, True
    block.numa.setdefault(node, (value, line))
    block.open = node if value.endswith(",") else None


def _continue_list(block: Block, line: str, number: int) -> bool:
    """A list of CPUs that a terminal or a mail wrapped after a comma."""
    text = line.strip(_PREFIX)
    if block.open is None or not _LIST_END.match(text):
        return False
    value, first = block.numa[block.open]
    if len(value) > 500_000:
        return False
    block.numa[block.open] = (value + text, first)
    block.last = number
    if not text.endswith(","):
        block.open = None
    return True


def _is_lscpu(block: Block) -> bool:
    if "virsh" in block.values:
        return False                 # virsh nodeinfo: its sockets are those of a NUMA cell
    return len(block.values.keys() & _TELLING) + min(2, len(block.numa)) >= 2


def _finish(block: Block) -> Block:
    """One kind of core is no kinds; two blocks of one model in two places are one kind too."""
    if len({tuple(sorted(model.items())) for model in block.models}) < 2:
        block.models = []
    return block


def json_block(text: str) -> Block | None:
    """The block that `lscpu -J` is, alone or within other text; None when it is not there. Cut off JSON is read as
    far as it goes, with what is cut off missing."""
    start = text.find('"lscpu"')
    if start < 0:
        return None
    brace, cut = text.rfind("{", 0, start), False
    try:
        data = json.JSONDecoder().raw_decode(text, brace)[0] if brace >= 0 else None
        if not isinstance(data, dict) or "lscpu" not in data:
            return None              # a word in another tool's JSON
        pairs = _flatten(data["lscpu"])
    except (ValueError, RecursionError):
        pairs, cut = [(match[1], match[2] or "") for match in _PAIR.finditer(text, start)], True
    block = Block(text.count("\n", 0, start) + 1, text.count("\n"), json=True, cut=cut)
    for name, value in pairs:
        key, node, told = _label(f"{name.rstrip(':')}:{value}")
        if node is not None:
            _put_node(block, node, told, block.last)
        elif key:
            block.put(key, told, block.last)
    if not _is_lscpu(block):
        raise ParseError("lscpu -J without counts, or cut off", where=f"line {block.first}")
    block.last = text.count("\n")
    return _finish(block)


def _flatten(items: object) -> list[tuple[str, str]]:
    """(field, data) of the flat and of the nested form, in order."""
    found: list[tuple[str, str]] = []
    waiting = [items]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list):
            waiting.extend(reversed(item))
        elif isinstance(item, dict):
            name, data = item.get("field"), item.get("data")
            if isinstance(name, str):
                found.append((name, data if isinstance(data, str) else "" if data is None else str(data)))
            waiting.append(item.get("children", []))
    return found
