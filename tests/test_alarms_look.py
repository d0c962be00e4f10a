"""The nightly look's thresholds: what is told, what is not, and where nothing is known what was told goes on."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest

from hpcadmin.errors import SlurmError, UsageError
from hpcadmin.slurm.queue_look import Queue, parse_jobs, parse_used
from hpcadmin.sweep.alarms.config import Thresholds
from hpcadmin.sweep.alarms.look import Node, idle_gpus, look, packets, pending, storage, temperatures
from hpcadmin.sweep.alarms.watch import Watcher, nodes_of, unmeasured
from hpcadmin.sweep.problems import changes
from hpcadmin.sweep.sources import parse_health

LIMITS = Thresholds()
NOW = 100_000.0


def nodes(check: str, **facts: Any) -> dict[str, Node]:
    """n1, n2, … with one fact each."""
    count = max(len(value) for value in facts.values())
    return {f"n{i + 1}": Node(NOW, ((check, {name: value[i % len(value)] for name, value in facts.items()}),))
            for i in range(count)}


def test_storage() -> None:
    told = nodes("mount:home", path=["/home"], type=["nfs4"], answer_ms=[1.9, 2.0, 2.1, 40.5])
    found = storage(told, LIMITS, NOW)
    assert found.problems["look/storage:/home"].text == ("/home answers after up to 40.5 ms, more than 2, on 2 nodes: "
                                                         "n[3-4]")
    assert found.values == {"storage_ms_max": 40.5}
    assert storage(nodes("mount", path=["/"], type=["ext4"], answer_ms=[50.0]), LIMITS, NOW).unknown
    assert storage(nodes("mount", path=["/home"], type=["nfs4"], answer_ms=[None]), LIMITS, NOW).unknown
    off = storage(told, replace(LIMITS, storage_ms=0), NOW)
    assert (off.problems, off.unknown, off.measured) == ({}, (), {})
    assert found.measured == {"storage_ms": ""} and found.series == {"look/storage:": {"look/storage:/home"}}
    assert not storage(nodes("mount", path=["/home"], type=["nfs4"], answer_ms=[2.0]), LIMITS, NOW).problems


def test_storage_of_many_mounts_is_bounded() -> None:
    told = {"n1": Node(NOW, tuple(("mount", {"path": f"/p{i}", "type": "nfs", "answer_ms": 3.0 + i})
                                  for i in range(500)))}
    assert len(storage(told, LIMITS, NOW).problems) == 20


def test_what_is_left_out_for_its_number_is_not_over() -> None:
    told = {"n1": Node(NOW, tuple(("mount", {"path": f"/p{i:02}", "type": "nfs", "answer_ms": 3.0 + i})
                                  for i in range(25)))}
    found = storage(told, LIMITS, NOW)
    assert set(found.unknown_of(["look/storage:/p00", "look/storage:/p24", "node/n1"])) == {"look/storage:/p00"}


@pytest.mark.parametrize("off", [item.name for item in fields(Thresholds)])
def test_each_threshold_is_measured_told_as_not_measured_or_off(off: str) -> None:
    """Nobody looked is never fine: each has a line why; 0 has none, and ends what was told."""
    nothing = look({}, None, LIMITS, NOW)
    assert set(nothing.measured) == {item.name for item in fields(Thresholds)} and all(nothing.measured.values())
    assert nothing.problems == {} and nothing.values == {}
    left = look({}, None, replace(LIMITS, **{off: 0}), NOW)
    assert set(nothing.measured) - set(left.measured) == {off} and len(left.unknown) == len(nothing.unknown) - 1
    assert [line.partition(":")[0] for line in unmeasured(nothing.measured)] == sorted(nothing.measured)
    assert unmeasured({"gpu_c": "", "x": "why\n\x1b[2J"})[0].isprintable()


def test_packets_of_all_nodes_together() -> None:
    few = nodes("ping:gw", host=["gw"], sent=[2] * 100, loss_percent=[50.0, *[0.0] * 99])
    assert packets(few, LIMITS, NOW).unknown == ("look/packets",)               # 200 packets tell nothing of 0.1 %
    many = nodes("ping:gw", host=["gw"], sent=[20] * 100, loss_percent=[10.0, *[0.0] * 99])
    assert packets(many, LIMITS, NOW).problems == {} and packets(many, LIMITS, NOW).values == {
        "packet_loss_percent_max": 0.1}
    bad = nodes("ping:gw", host=["gw"], sent=[20] * 100, loss_percent=[10.0, 5.0, *[0.0] * 98])
    assert packets(bad, LIMITS, NOW).problems["look/packets:gw"].text == (
        "0.15 % of 2000 packets to gw were lost, more than 0.1, from 2 nodes: n[1-2]")


def test_temperatures() -> None:
    found = temperatures(nodes("gpu_temperature", core_c=[84.0, 85.0, None], memory_c=[60.0]), LIMITS, NOW)
    assert found.problems["look/gpu_c"].text == "GPUs have up to 85 C, limit 85, on 1 node: n2"
    assert found.values == {"gpu_c_max": 85.0, "gpu_memory_c_max": 60.0} and not found.unknown
    assert temperatures({}, LIMITS, NOW).unknown == ("look/gpu_c", "look/gpu_memory_c")


@pytest.mark.parametrize(("count", "told"), [(0, False), (100, False), (101, True)])
def test_pending(count: int, told: bool) -> None:
    assert bool(pending(Queue(count), LIMITS, NOW).problems) is told
    assert pending(Queue(count), LIMITS, NOW).values == {"pending_jobs": float(count)}


def test_pending_is_news_by_its_size() -> None:
    texts = {count: pending(Queue(count), LIMITS, NOW).problems["look/pending"].signature for count in (101, 999, 1000)}
    assert texts[101] == texts[999] != texts[1000]
    assert pending(None, LIMITS, NOW).unknown == ("look/pending",)


def gpus(*loads: tuple[float | None, float | None], time: float = NOW) -> dict[str, Node]:
    told = [{"busy_percent": busy, "used_mib": used} for busy, used in loads]
    return {"n1": Node(time, (("gpu", {"gpus": told}),))}


@pytest.mark.parametrize(("loads", "allocated", "hours", "idle"), [
    ([(0, 10), (0, 10), (95, 60000), (0, 10)], 4, 2.0, 3),
    ([(0, 10), (0, 10), (95, 60000), (0, 10)], 1, 2.0, 0),      # one is allocated, one is busy
    ([(0, 10), (0, 10)], 2, 0.5, 0),                            # not long enough
    ([(0, 30000), (0, 10)], 2, 2.0, 1),                         # memory is held
    ([(0, 10)], 0, 2.0, 0),
])
def test_idle_gpus(loads: Any, allocated: int, hours: float, idle: int) -> None:
    queue = Queue(0, {"n1": allocated}, {"n1": NOW - hours * 3600})
    found = idle_gpus(gpus(*loads), queue, LIMITS, NOW)
    assert found.values == {"idle_gpus": float(idle)} and bool(found.problems) is bool(idle)


def test_idle_gpus_of_which_nothing_is_known() -> None:
    queue = Queue(0, {"n1": 2}, {"n1": 0.0})
    assert idle_gpus(gpus((None, 10), (0, 10)), queue, LIMITS, NOW).unknown
    assert idle_gpus({}, queue, LIMITS, NOW).unknown and idle_gpus(gpus((0, 1)), None, LIMITS, NOW).unknown
    assert idle_gpus(gpus((0, 1)), Queue(0, {"n1": 1}), LIMITS, NOW).problems == {}     # since when is not known


@pytest.mark.parametrize("facts", [
    {}, {"answer_ms": "3", "path": "/home", "type": "nfs"}, {"answer_ms": True, "path": "/x", "type": "nfs"},
    {"answer_ms": 1e300, "path": "/x", "type": "nfs"}, {"answer_ms": 9.0, "path": 7, "type": "nfs"},
    {"host": 3, "sent": "x", "loss_percent": None}, {"gpus": 3}, {"gpus": [3, None]}, {"core_c": -4.0},
    {"core_c": 9999.0}, {"type": ["nfs"], "path": "/x", "answer_ms": 9.0},
])
def test_facts_that_are_none(facts: dict[str, Any]) -> None:
    told = {"n1": Node(NOW, tuple((check, facts) for check in ("mount", "ping", "gpu", "gpu_temperature")))}
    assert look(told, Queue(0), LIMITS, NOW).problems == {}


def test_hostile_paths_stay_text() -> None:
    told = nodes("mount", path=["/home\n\x1b[2J<!channel>"], type=["nfs"], answer_ms=[9.0])
    problem = next(iter(storage(told, LIMITS, NOW).problems.values()))
    assert problem.key.isprintable() and problem.text.isprintable()


def result(**facts: Any) -> str:
    return json.dumps({"node": "n1", "time": NOW, "boot": "b", "results": [
        {"check": "mount:home", "status": "good", "reason": "", "facts": [facts, "x"]},
        {"check": "load", "status": "good", "reason": "", "facts": [{"a": 1}]},
        {"check": "swap", "status": "bad", "reason": "x"}]})


def test_from_a_result_to_what_is_told() -> None:
    looks = parse_health(result(path="/home", type="nfs4", answer_ms=12.0), "n1", NOW, 3600)
    assert [len(one.facts) for one in looks] == [1, 0, 0]
    assert set(nodes_of(looks)) == {"n1"}
    watched = Watcher(LIMITS, lambda: Queue(500))(looks, NOW)
    assert set(watched.problems) == {"look/storage:/home", "look/pending"}
    assert "look/packets" in watched.unknown and "look/storage" not in watched.unknown


def test_a_queue_that_is_not_told_is_unknown() -> None:
    def queue() -> Queue:
        raise SlurmError("no answer", where="squeue")
    watched = Watcher(LIMITS, queue)((), NOW)
    assert watched.problems == {} and "look/pending" in watched.unknown
    assert watched.notes[0] == "the queue was not looked at: squeue: no answer"
    assert "not measured: pending_jobs: Slurm's queue could not be looked at" in watched.notes
    assert len(watched.notes) == 1 + len(fields(Thresholds))


def test_what_is_not_known_tonight_goes_on() -> None:
    from hpcadmin.sweep.model import Seen
    before = {**pending(Queue(500), LIMITS, NOW).problems,
              **storage(nodes("mount", path=["/h"], type=["nfs"], answer_ms=[9.0]), LIMITS, NOW).problems}
    assert changes(before, {}, Seen(()), ("look/",)) == ()
    other = storage(nodes("mount", path=["/scratch"], type=["nfs"], answer_ms=[1.0]), LIMITS, NOW)
    told = changes(before, {}, Seen(()), other.unknown_of(before))
    assert [c.problem.key for c in told] == ["look/pending"]        # another path tells nothing of /h
    again = storage(nodes("mount", path=["/h"], type=["nfs"], answer_ms=[1.0]), LIMITS, NOW)
    assert {c.problem.key for c in changes(before, {}, Seen(()), again.unknown_of(before))} == set(before)
    assert [c.problem.key for c in changes(before, {}, Seen(()), ("look/storage",))] == ["look/pending"]


def test_queue_of_squeue() -> None:
    text = ("PENDING|Resources|N/A|\nPENDING|Priority|2026-01-01T00:00:00|\nPENDING|Dependency|N/A|\n"
            "PENDING|(JobHeldUser)|N/A|\nPENDING|ReqNodeNotAvail, May be reserved|N/A|\n"
            "RUNNING|None|2026-01-01T00:00:00|n[1-2]\nRUNNING|None|2026-01-01T01:00:00|n2\nRUNNING|None|Unknown|n3\n")
    count, since = parse_jobs(text)
    assert count == 3 and since["n2"] - since["n1"] == 3600 and since["n3"] == float("inf")
    assert parse_jobs("") == (0, {})
    with pytest.raises(SlurmError):
        parse_jobs("slurm_load_jobs error")
    with pytest.raises(UsageError):
        parse_jobs("RUNNING|None|N/A|n[1-")


def test_gpus_of_sinfo() -> None:
    text = ("n1        gpu:a100:3(IDX:0,2-3),gpu:h100:1(IDX:4)      \nn1    gpu:a100:3(IDX:0,2-3),gpu:h100:1(IDX:4)\n"
            "n2   gpu:0\nn3  (null)\nn4   mps:0,gpu:2(IDX:0-1),nic:4\nn5\nn6 gpu:a100:0(IDX:N/A)\n")
    assert parse_used(text) == {"n1": 4, "n2": 0, "n3": 0, "n4": 2, "n5": 0, "n6": 0}
