"""Captured outputs of real tools: what is not sound must not be read as sound, whatever check reads it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpcadmin.check import Check, Context, Output, ParseError
from hpcadmin.registry import load_checks

CORPUS = Path(__file__).resolve().parents[2] / "shared" / "corpus" / "outputs"
READERS = ("nccl_allreduce", "nccl_allgather", "nccl_alltoall", "nccl_broadcast", "nccl_reduce", "nccl_reducescatter",
           "nccl_sendrecv", "osu_latency", "osu_bw", "osu_bibw", "osu_mbw_mr", "osu_multi_lat", "osu_latency_mt",
           "osu_get_bw", "osu_allreduce", "osu_alltoall", "osu_allgather", "osu_barrier", "osu_iallreduce",
           "osu_ibarrier", "ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_atomic_bw",
           "ib_write_lat", "ib_read_lat", "ib_send_lat", "ib_atomic_lat", "mpi_hello", "mpi_pingpong", "node_ready",
           "nvidia_smi")
# Sound outputs that a run of ours cannot have: other sizes, both ends on one port, another form of the tool's answer.
NOT_OURS = ("diag/nvidia_smi_table_pkb.txt",)
# Sound, but only of small sizes: no value by which a bandwidth is judged.
NO_KEY = ("osu/bw_pkb_v571_impi.txt", "osu/bibw_pkb_v571_impi.txt", "osu/get_bw_pkb_v571_impi.txt",
          "osu/mbw_mr_pkb_v571_impi.txt")

pytestmark = pytest.mark.corpus
if not CORPUS.is_dir():
    pytest.skip(f"no captured outputs in {CORPUS}", allow_module_level=True)


def answers() -> dict[str, dict]:
    found: dict[str, dict] = {}
    for path in sorted(CORPUS.glob("expected*.json")):
        found.update({k: v for k, v in json.loads(path.read_text()).items() if isinstance(v, dict)})
    return found


ANSWERS = answers()
FILES = sorted(str(p.relative_to(CORPUS)) for p in CORPUS.glob("*/*") if p.is_file())


@pytest.fixture(scope="module")
def checks() -> dict[str, Check]:
    return load_checks()


@pytest.mark.parametrize("name", FILES)
def test_unsound_is_not_read_as_sound(name: str, checks: dict[str, Check]) -> None:
    answer = ANSWERS.get(name, {})
    text = (CORPUS / name).read_bytes().decode("utf-8", "replace")
    for reader in READERS:
        try:
            found = checks[reader].parse([Output(text)], Context())
        except ParseError:
            continue
        family = reader.split("_")[0] == str(answer.get("check")).split("_")[0]
        if family and any(m.expected not in (None, m.value) for m in found):
            continue        # wrong data are a FAIL, also where the output is not whole
        if not (answer.get("check") == reader and answer.get("sound")):
            # Its title may be missing: then any program of its kind may have printed it, and no value is clean.
            assert answer.get("value_usable") and family, reader
            assert all(m.warnings for m in found if m.key), f"{reader} read it as sound: {found[:3]}"
            continue
        if answer.get("validated") is False:
            assert all(m.warnings for m in found if m.key), "not validated, and nothing says so"


@pytest.mark.parametrize("name", [n for n, a in ANSWERS.items() if a.get("sound") and a.get("check") in READERS])
def test_sound_is_read(name: str, checks: dict[str, Check]) -> None:
    answer = ANSWERS[name]
    text = (CORPUS / name).read_bytes().decode("utf-8", "replace")
    if name in NOT_OURS:
        with pytest.raises(ParseError):
            checks[answer["check"]].parse([Output(text)], Context())
        return
    found = checks[answer["check"]].parse([Output(text)], Context())
    assert any(m.key for m in found) or name in NO_KEY
    if answer.get("ranks"):
        assert {m.ranks for m in found if m.ranks} == {answer["ranks"]}
