"""A week of nights in fast motion on a real cluster: `hpcadmin sweep` as a process, real nodes looked at by the real
hpcadmin-health, the nightly suite, alarms by mail and web hook. After each night the ledger, Slurm's nodes and what the
admin was told are exactly what a careful one would have done. The GPUs are simulated; the rest is as it is anywhere."""

from __future__ import annotations

import email
import json
import re
import signal
from collections.abc import Iterator
from datetime import timedelta
from email.policy import default
from pathlib import Path
from typing import Any

import pytest
from loopback import wait_until
from week_lab import NAMES, Week, entries, partner, week

pytestmark = pytest.mark.lab
ANNA = "Anna: new board"
STALE = "/data does not answer: Transport endpoint is not connected"
LOST = ("simulated 2xT4: GPU lost: Unable to determine the device handle for GPU0000:AF:00.0: GPU is lost. Reboot the "
        "system to recover this GPU, 1...")
HUNG = r"statvfs of /data did not answer in \d+\.\d s"


@pytest.fixture(scope="module")
def lab_week(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Week]:
    if "\tfuse\n" not in Path("/proc/filesystems").read_text():
        pytest.skip("this kernel has no FUSE: no server can be made to hang")
    with week(tmp_path_factory.mktemp("week")) as found:
        yield found


def look(it: Week, site: str, status: int, decided: dict[str, str], told: set[str], *,
         drained: dict[str, str] | None = None) -> dict[str, Any]:
    """One sweep, and everything that is to be compared. decided: "drain" for what is also to be done. drained: node ->
    its reason in Slurm's words, where [RUN] stands for this sweep; those of nights before stay as they are."""
    done = it.command(site, "sweep", "--json")
    assert done.out, done.err
    report: dict[str, Any] = json.loads(done.out)
    where = f"night {it.night}: {json.dumps(report, indent=1)}\n{done.err}"
    assert {d["node"]: d["act"] for d in report["decisions"] if d["act"] != "none"} == decided, where
    acts = {node: act for node, act in decided.items() if act in ("drain", "resume")}
    assert {d["node"]: d["result"] for d in report["decisions"] if d["result"]} == dict.fromkeys(acts, "done"), where
    assert {f"{c['what']} {c['key']}" for c in report["changes"]} == told, where
    assert (done.status, report["exit_status"]) == (status, status), where
    for node, act in acts.items():
        it.reasons.pop(node, None)
        if act == "drain":
            it.reasons[node] = next(d["reason"] for d in report["decisions"] if d["node"] == node)
            if drained is not None:
                assert it.reasons[node] == drained[node].replace("[RUN]", f"[{report['run']}]"), where
    ledger(it, report, acts)
    messages(it, report, told)
    metrics = it.metrics()
    assert (metrics["hpcadmin_sweep_exit_status"], metrics["hpcadmin_sweep_drained_nodes"]) == (
        status, len(it.reasons)), where
    return report


def ledger(it: Week, report: dict[str, Any], acts: dict[str, str]) -> None:
    """Each act has its intent, with the reason that Slurm was to have, and behind it its outcome; nothing else has."""
    mine = [entry for entry in entries(it, report["run"]) if entry["kind"] != "guard"]
    assert (mine[0]["kind"], mine[-1]["kind"], mine[-1]["result"]) == ("begin", "end", str(report["exit_status"]))
    intents = [entry for entry in mine if entry["kind"] == "intent"]
    assert {entry["node"]: entry["act"] for entry in intents} == acts
    for entry in intents:
        after = [e for e in mine[mine.index(entry) + 1:] if e["kind"] == "outcome" and e["id"] == entry["id"]]
        assert [(e["node"], e["act"], e["result"]) for e in after] == [(entry["node"], entry["act"], "done")]


def messages(it: Week, report: dict[str, Any], told: set[str]) -> None:
    """One of each kind for what is new, none where nothing is; the first of a channel only says that it is there."""
    bodies = [body for body in it.hooks.bodies if body["kind"] == "changes"]
    mails = [email.message_from_bytes(data, policy=default) for _, _, data in it.mails.mails]
    mails = [mail for mail in mails if mail["Message-ID"].startswith(f"<{report['run']}.")]
    assert [{f"{c['what']} {c['key']}" for c in body["changes"]} for body in bodies] == ([told] if told else [])
    assert len(mails) == len(bodies)
    for body, mail in zip(bodies, mails, strict=True):
        assert (body["cluster"], body["run"]) == ("hpcweek", report["run"])
        text = " ".join(mail.get_content().split())
        assert mail["Subject"] == body["subject"]
        assert all(" ".join(line.split()) in text for line in body["lines"])


def drained_as_said(it: Week, **others: tuple[str, str]) -> None:
    """Slurm's nodes: ours with the reasons of the ledger, those of others, and all else idle."""
    assert it.nodes() == {**{n: ("IDLE+DRAIN", reason) for n, reason in it.reasons.items()}, **others}


def test_a_week(lab_week: Week) -> None:
    it = lab_week
    partners = (partner(it.first + timedelta(days=2)), partner(it.first + timedelta(days=4)))
    a_server_hangs_then_dies_and_a_gpu_is_lost(it)
    an_admins_own_drain_and_a_slow_cable(it, partners)
    slurmctld_is_down(it)
    repairs(it, partners)
    most_nodes_fail_at_once(it)
    as_slurmdbd_saw_it(it)


def a_server_hangs_then_dies_and_a_gpu_is_lost(it: Week) -> None:
    it.begin_night()                                    # 1: nothing is wrong; then a server only hangs: that is told
    look(it, "plain", 0, {}, set())
    assert [(body["kind"], body["lines"]) for body in it.hooks.bodies] == [
        ("digest", ["this channel is new; from now on it tells what begins, changes and ends"])]
    it.server("node01", signal.SIGSTOP)
    report = look(it, "plain", 3, {}, {"begins unknown/mount:data"})
    assert re.fullmatch(f"mount:data has no answer on 1 node: node01: {HUNG}", report["changes"][0]["text"])
    drained_as_said(it)

    it.begin_night()                                    # 2: it is gone; and a GPU; the sweep is killed on the way
    it.server("node01", signal.SIGKILL)
    it.fault("node02", "--gpu", "1", "lost")
    killed = it.command("plain", "sweep", kill="drain:after")
    assert killed.status in (-9, 137), killed.err
    ((name, (state, reason)),) = it.nodes().items()
    assert (name, state) == ("node01", "IDLE+DRAIN")
    assert re.fullmatch(re.escape(f"hpcadmin: mount:data: {STALE} [") + r"s20\d{6}-\d{6}-[0-9a-f]{4}\]", reason)
    it.reasons["node01"] = reason
    report = look(it, "plain", 1, {"node01": "keep", "node02": "drain"},
                  {"begins node/node01", "begins node/node02", "ends unknown/mount:data"},
                  drained={"node02": f"hpcadmin: gpu: {LOST} [RUN]"})
    assert any("killed" in note for note in report["notes"])
    found = [e for e in entries(it, report["run"]) if e["kind"] == "outcome" and e["node"] == "node01"]
    assert [(e["act"], e["result"], e["text"]) for e in found] == [("drain", "done", "found drained by it")]
    drained_as_said(it)
    assert it.is_kept_from_users("node01")


def an_admins_own_drain_and_a_slow_cable(it: Week, partners: tuple[str, str]) -> None:
    it.begin_night()                                    # 3: what is wrong on Anna's node is hers; one strike
    it.done_on("head", "scontrol update nodename=node03 state=drain reason='Anna: new board'")
    it.done_on("node03", "touch /run/nologin")
    it.fault("node04", "--rate", "100mbit")
    report = look(it, "tests", 1, {"node01": "keep", "node02": "keep", "node03": "hold", "node04": "tell",
                                   partners[0]: "tell"}, {"begins node/node04", f"begins node/{partners[0]}"})
    assert "1 of 2 strikes" in next(d["why"] for d in report["decisions"] if d["node"] == "node04")
    drained_as_said(it, node03=("IDLE+DRAIN", ANNA))


def slurmctld_is_down(it: Week) -> None:
    it.begin_night()                                    # 4: nothing is done, though node06 is bad
    it.done_on("node06", "touch /run/nologin")
    before = it.nodes()
    it.done_on("head", "scontrol shutdown slurmctld")
    wait_until(lambda: it.on("head", "pidof slurmctld").status != 0)
    done = it.command("plain", "sweep", "--json")
    report = json.loads(done.out)
    assert (done.status, report["decisions"]) == (4, []), done.err
    assert [f"{c['what']} {c['key']}" for c in report["changes"]] == ["begins slurm"]
    ledger(it, report, {})
    messages(it, report, {"begins slurm"})
    assert it.metrics()["hpcadmin_sweep_slurm_answered"] == 0
    it.done_on("head", "setsid slurmctld </dev/null >/dev/null 2>&1")
    assert it.nodes() == before
    it.done_on("node06", "rm /run/nologin")


def repairs(it: Week, partners: tuple[str, str]) -> None:
    it.begin_night()                                    # 5: node01 is back; the second strike; node02 was booted anew
    it.mount("node01")
    it.fault("node02", "--down")
    it.fault("node02", "--heal")
    it.mount("node02")
    assert set(it.nodes()) == {"node01", "node02", "node03"}
    killed = it.command("plain", "sweep", kill="undrain:before")
    assert killed.status in (-9, 137), killed.err
    assert it.nodes()["node01"] == ("IDLE+DRAIN", it.reasons["node01"])
    report = look(it, "tests", 1, {"node01": "resume", "node02": "keep", "node03": "hold", "node04": "drain"},
                  {"ends slurm", "ends node/node01", "changes node/node04", f"ends node/{partners[0]}"})
    assert f"mpi_pingpong: bad with {', '.join(sorted(partners))}" in it.reasons["node04"]
    assert "1 of 2 nights, since the node was booted" in next(
        d["why"] for d in report["decisions"] if d["node"] == "node02")
    drained_as_said(it, node03=("IDLE+DRAIN", ANNA))
    assert it.user_gets("node01")

    it.begin_night()                                    # 6: node02's second good night; the cable; a false alarm
    it.done_on("node06", "touch /run/nologin")
    it.fault("node04", "--heal")
    report = look(it, "tests", 1, {"node02": "resume", "node03": "hold", "node04": "resume", "node06": "drain"},
                  {"ends node/node02", "ends node/node04", "begins node/node06"},
                  drained={"node06": "hpcadmin: file:nologin: /run/nologin is there [RUN]"})
    guards = [(e["act"], e["checks"]) for e in entries(it, report["run"]) if e["kind"] == "guard"]
    assert guards == [("open", ["node04"]), ("closed", ["node04"])]
    assert "No reservations" in it.done_on("head", "scontrol show reservation")
    drained_as_said(it, node03=("IDLE+DRAIN", ANNA))
    assert it.user_gets("node02") and it.user_gets("node04")

    it.begin_night()                                    # 7: it was one; looked at over ssh
    it.done_on("node06", "rm /run/nologin")
    look(it, "ssh", 0, {"node03": "hold", "node06": "resume"}, {"ends node/node06"})
    drained_as_said(it, node03=("IDLE+DRAIN", ANNA))
    assert it.user_gets("node06")


def most_nodes_fail_at_once(it: Week) -> None:
    it.begin_night()                                    # 8: the file server of five nodes out of eight
    failing = NAMES[3:]
    for node in failing:
        it.server(node, signal.SIGKILL)
    report = look(it, "plain", 1, dict.fromkeys(NAMES[2:], "hold"),
                  {"begins budget", *(f"begins node/{node}" for node in failing)})
    assert "5 nodes in service of 8 would be drained" in report["budget"]["mass"]
    drained_as_said(it, node03=("IDLE+DRAIN", ANNA))

    it.begin_night()                                    # 9: it is back, Anna is ready
    for node in failing:
        it.mount(node)
    it.done_on("node03", "rm /run/nologin")
    it.done_on("head", "scontrol update nodename=node03 state=resume")
    look(it, "plain", 0, {}, {"ends budget", *(f"ends node/{node}" for node in failing)})
    drained_as_said(it)


def as_slurmdbd_saw_it(it: Week) -> None:
    """Every drain of the ledger, and no other of ours, all over; jobs on a drained node only where it was held."""
    lines = (it.admin / "state/sweep/ledger.jsonl").read_text().splitlines()
    drains = {(entry["node"], entry["reason"]) for entry in map(json.loads, lines)
              if entry["kind"] == "intent" and entry["act"] == "drain"}
    assert {node for node, _ in drains} == {"node01", "node02", "node04", "node06"}

    def events() -> list[list[str]]:
        said = it.done_on("head", "sacctmgr -n -P show event event=node all_time format=NodeName,State,Reason,End")
        return [line.split("|") for line in said.splitlines()]
    wait_until(lambda: not [row for row in events() if row[3] == "Unknown"])
    found = {(node, reason) for node, state, reason, _ in events() if "DRAIN" in state}
    assert found == {*drains, ("node03", ANNA)}
    digest = it.command("plain", "sweep", "alarms", "--digest")
    assert digest.status == 0, digest.err
    mail = email.message_from_bytes(it.mails.mails[-1][2], policy=default)
    assert mail["Subject"] == "hpcadmin hpcweek: no problem now"
    assert "no node is drained by us" in mail.get_content()


def test_slurmd_runs_it_and_a_lost_gpu_drains(lab_week: Week) -> None:
    """HealthCheckProgram with --drain: only a fault of the node's own hardware, and not twice; what is bad otherwise,
    or hangs, is recorded on the node and drains nobody. The playbook's own line is in test_playbook_lab.py."""
    it = lab_week
    it.health_check_program()
    wait_until(lambda: {it.recorded(node)["status"] for node in NAMES} == {"good"})
    assert it.nodes() == {}
    it.fault("node05", "--gpu", "0", "lost")
    it.done_on("node06", "touch /run/nologin")
    it.server("node07", signal.SIGSTOP)
    wait_until(lambda: it.nodes() and it.recorded("node06")["status"] == "bad"
               and it.recorded("node07")["status"] == "unknown")
    state, reason = it.nodes()["node05"]
    assert (state, reason) == ("IDLE+DRAIN", it.recorded("node05")["line"])
    assert reason.startswith("hpcadmin: gpu: GPU lost: Unable to determine the device handle for GPU0000:3B:00.0")
    assert re.match(f"unknown: mount:data: {HUNG}", it.recorded("node07")["line"])
    it.server("node07", signal.SIGCONT)
    before = {node: it.recorded(node)["time"] for node in ("node05", "node06")}
    wait_until(lambda: all(it.recorded(node)["time"] > at for node, at in before.items()))
    assert set(it.nodes()) == {"node05"}
    # the sweep leaves it to people: it is not in its ledger
    it.begin_night()
    done = it.command("plain", "sweep", "--json")
    decided = {d["node"]: d["act"] for d in json.loads(done.out)["decisions"] if d["act"] != "none"}
    assert decided == {"node05": "hold", "node06": "drain"}
    assert it.nodes()["node05"] == (state, reason)
