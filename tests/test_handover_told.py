# ruff: noqa: RUF001
"""What the records say in English - reasons, causes, titles - has a translation, or is named as left in English."""

import ast
import re
import string
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcadmin.handover import told_zh
from hpcadmin.handover.texts import LANGUAGES, TOLD, Words, listed, msg, told
from hpcadmin.handover.told import Told
from hpcadmin.registry import load_checks

ROOT = Path(__file__).resolve().parent.parent
ZH = TOLD["zh"]
CHINESE = re.compile("[\u4e00-\u9fff]")
# Modules whose sentences come into the document. What the readers of single tools say (checks/, facts/) stays English.
MODULES = ("judge", "peers", "isolate", "coverage", "run_lost", "run_results", "handover/shown", "handover/assess")
# Parts that are put together with others, and what is no sentence of the document.
LEFT = frozenset({
    "{} nodes", "{}; again {}: {}", "{}; first {}", "{}; again {}", "{} at {}", "{} of {} times", "once more",
    "{} on {}", "best of {} pairs ", "over 99%", "{} {} the median of {} ({})", ", again {}", ", at least ",
    "is impossible", "the output has values that are no numbers", " (and {} more)", "{} {} of {}", "{} and {}",
    "{} of {}",
    "every partner", "nearly every partner", " (median of the others {} {}", "and {} more",
    "{} to {}: {} at {}{} in {}", "fails with {}: {} in {} ({})", "GPU {}", "port {} of {}",
    "how many GPUs", "which ports", "{}: {} of {} tested, {} failed, {} not tested", "  failed: {}",
    "  not tested: {}: {}", " and {} more", "not responding", " (exit status {})", "after the load",
    "invalid option", "unknown option", "unrecognized option", " at {}", ", {} nodes", "no {} in {}{}",
    "NOT SHOWN", "NOT MET", "ACCEPTED WITH WAIVERS", "NOT ACCEPTED", "{}: {} over {}: {}", "{}: {}: {}",
    " (also in the groups of {} nodes that hold these)", "{} {}, expected {} {}", "first {} {}, again {}",
    "{} of {} could not be made with it", "{} is good with {}, {} with {}: look at the path between them",   # plurals
    "{}: {}, expected {}", " (and {} other reasons)", "{}: {} over {}: {}; {} without {} good{}",
    "{} is not known of {} of {} nodes",
    "the server on {} ended before it was ready{}{}",
    # said of checks of a site that return what is no measurement: for who writes the check
    "the check's parser returned something else than measurements",
    "the check's parser returned a measurement whose {} is {}",
    "the check's parser returned a measurement whose subject or warnings are no texts",
})


def sentences(path: Path) -> Iterator[str]:
    """Texts with a space that are no docstrings; what is put in as {}."""
    tree = ast.parse(path.read_text())
    docs = {id(n.body[0].value) for n in ast.walk(tree) if isinstance(n, (ast.Module, ast.ClassDef, ast.FunctionDef))
            and n.body and isinstance(n.body[0], ast.Expr)}
    inside = {id(v) for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) for v in ast.walk(n) if v is not n}
    for n in ast.walk(tree):
        if id(n) in docs or id(n) in inside:
            continue
        if isinstance(n, ast.JoinedStr):
            text = "".join(str(v.value) if isinstance(v, ast.Constant) else "{}" for v in n.values)
        elif isinstance(n, ast.Constant) and isinstance(n.value, str):
            text = n.value
        else:
            continue
        if " " in text.strip() and re.search("[a-z]{2}", text):
            yield text


@pytest.mark.parametrize("name", MODULES)
def test_every_sentence_of_these_modules_has_a_translation_or_is_left_in_english(name: str) -> None:
    lacking = []
    for text in sentences(ROOT / f"hpcadmin/{name}.py"):
        filled = (text.replace("{}", "7"), text.removesuffix("{}").replace("{}", "7"))    # an end that may be empty
        if text not in LEFT and not any(CHINESE.search(ZH(t)) for t in filled):
            lacking.append(text)
    assert lacking == []


def test_titles_of_checks_are_translated() -> None:
    titles = {c.title for c in load_checks("").values()}
    assert len(titles) > 60
    assert [t for t in sorted(titles) if not CHINESE.search(ZH(t))] == []


def test_the_catalogue_is_sound() -> None:
    english = [e for e, _ in told_zh.TOLD]
    assert sorted(e for e in english if english.count(e) > 1) == []
    for pattern, text in told_zh.TOLD:
        wanted = [name for _, name, _, _ in string.Formatter().parse(pattern) if name]
        assert sorted(name for _, name, _, _ in string.Formatter().parse(text) if name) == sorted(set(wanted)) or (
            {"pairs"} == set(wanted) - {n for _, n, _, _ in string.Formatter().parse(text) if n}), pattern
        wide = [way for _, name, way, _ in string.Formatter().parse(pattern) if name and way != "w"]
        assert len(wide) <= 4, f"{pattern}: slow with long texts"
    statuses = {k.removeprefix("status_"): v for k, v in LANGUAGES["zh"].items() if k.startswith("status_")}
    assert {k: v for k, v in told_zh.HEADS.items() if k in statuses} == statuses


@pytest.mark.parametrize(("english", "chinese"), [
    ("node03: slow to every partner: 3 of 3 pairs at 17.6 MB/s (median of the others 910 MB/s) in mpi_pingpong",
     "node03：与每个节点配对都慢：mpi_pingpong 的 3 个节点对中有 3 个为 17.6 MB/s（其余的中位数为 910 MB/s）"),
    ("FAIL: busbw at 8 MiB 237.9 GB/s, at least 300 GB/s; again 236 and 235",
     "失败：busbw at 8 MiB 237.9 GB/s，要求至少 300 GB/s；再次 236 和 235"),
    ("UNJUDGED: triad 487.5 GB/s: no limit known", "未判定：triad 487.5 GB/s：没有已知的限值"),
    ("hardware: simulated: 8xH100", "硬件：模拟硬件：8xH100"),
    ("no RDMA device on any node: RDMA not tested", "所有节点均无 RDMA 设备：未测试 RDMA"),
    ("gpu0003 GPU 4, GPU 5: nvidia_smi: ecc_uncorrectable 3, expected 0 count; nvidia_smi: rate 8, expected 16 GT/s",
     "gpu0003 GPU 4, GPU 5：nvidia_smi：ecc_uncorrectable 为 3，预期为 0；nvidia_smi：rate 为 8，预期为 16 GT/s"),
    ("bandwidth best of 2 pairs 203.2 Gb/s, 48% below the median of 4 nodes (393), again 202 and not measured",
     "bandwidth 在 2 个节点对中最佳为 203.2 Gb/s，比 4 个节点的中位数（393）低 48%，再次 202和未测量"),
    ("exit status 134: Abort(1) on node 0: Fatal error in PMPI_Init",
     "退出状态 134：Abort(1) on node 0: Fatal error in PMPI_Init"),
    ("pairs = 8: 3 rounds, each node meets 3 of 3 others, one bad node is met for certain",
     "pairs = 8：3 轮，每个节点与其余 3 个中的 3 个配对，单个不良节点必定会遇到"),
    ("node01 - node03: FAIL: bandwidth at 256 KiB 14 MB/s, at least 100 MB/s",
     "node01 - node03：失败：bandwidth at 256 KiB 14 MB/s，要求至少 100 MB/s"),
    ("GPUs: drained: Kernel panic, ticket 4712", "GPU：已排空（drained）：Kernel panic, ticket 4712"),
])
def test_sentences_that_are_put_together(english: str, chinese: str) -> None:
    assert ZH(english) == chinese


@pytest.mark.parametrize("text", [
    "Segmentation fault (core dumped)", "slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED", "", "x" * 5000, "a; b; c",
    "<script>alert(1)</script>", "NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.", "{}{0}{name}%s"])
def test_what_tools_and_people_wrote_stays(text: str) -> None:
    assert ZH(text) == text


def test_long_and_nasty_texts_take_no_time() -> None:
    start = time.process_time()
    for unit in ("a, at least ", "7% below the median of (", "; ", ": ", " (and 3 ", "first , again "):
        ZH((unit * 1500)[:1500])
    assert time.process_time() - start < 5


def test_english_stays_and_messages_hold_messages() -> None:
    english, chinese = Words("en"), Words("zh")
    reason = told("nothing was measured")
    assert english.say(reason) == "nothing was measured"
    assert chinese.say(msg("remark_more", text=reason, count=2)) == "没有测量到任何数值（另有 2 项）"
    kinds = listed(msg("kind_nodes"), msg("kind_gpus"))
    assert (english.say(kinds), chinese.say(kinds)) == ("Nodes, GPUs", "节点、GPU")
    assert Told((("a {b} c", "x {b}"),), {})("a 1 c; d") == "x 1；d"
