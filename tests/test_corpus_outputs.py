"""The captured outputs of real tools against their answers, field by field, and what a run would say of each.

What was settled against an answer is in corpus_outputs_corrections.json, with the lines of the file that settle it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import corpus_outputs as corpus
import pytest

from hpcadmin.check import Context, Measurement, Output, ParseError, Reading, Status

# Texts whose title is missing: the other programs that print such a table, so that theirs it may be; and texts of
# several programs, each of which finds its own. With their defect said beside every value.
MAY_BE = {
    "nccl/allgather_sb_a100_old.log": {"nccl_alltoall", "nccl_gather", "nccl_scatter"},
    "nccl/allreduce_pkb_k80_n_a.txt": {"nccl_sendrecv"},
    "nccl/alltoall_sb_a100_old.log": {"nccl_allgather", "nccl_gather", "nccl_scatter"},
    "nccl/fail_v100_allgather_12gpu_error_1e0.txt": {"nccl_hypercube"},
    "osu/bw_v75_validation_tail_slow_tcp.txt": {"osu_bibw", "osu_get_bw", "osu_put_bibw", "osu_put_bw"},
    "osu/latency_bw_cuda_dd_v100.out": {"osu_bw"},
    "osu/many_pairs_concatenated_parallelcluster.out": {"osu_bw", "osu_allreduce"},
    "osu/trunc_pairs_time_limit.out": {"osu_bw"},
    "perftest/write_bw_mbsec_2758.txt": {"ib_atomic_bw", "ib_read_bw", "ib_send_bw"},
    "perftest/write_bw_roce_gbits_cpufreq_warning.txt": {"ib_send_bw"},
    "perftest/write_bw_softroce_slow.txt": {"ib_atomic_bw", "ib_read_bw", "ib_send_bw"},
}

pytestmark = [pytest.mark.corpus, pytest.mark.skipif(
    not corpus.CORPUS.is_dir(), reason="the corpus of captured outputs does not lie beside the project")]


def test_every_file_is_read_as_its_answer_says() -> None:
    wrong = [row for row in corpus.rows() if not row.agrees]
    assert not wrong, "\n" + corpus.disagreements(wrong)


def test_the_table_of_the_last_run_is_this_one() -> None:
    """`python tests/corpus_outputs.py --table` writes it anew."""
    assert corpus.table() in Path(__file__).with_name("corpus_outputs.md").read_text()


def test_every_file_has_an_answer_and_is_there() -> None:
    there = {str(p.relative_to(corpus.CORPUS)) for p in corpus.CORPUS.glob("*/*") if p.is_file()}
    assert there == set(corpus.answers())


def test_every_correction_is_alive_and_has_its_reason() -> None:
    for file, settled in corpus.corrections().items():
        for field, entry in settled.items():
            assert set(entry) == {"value", "why"}, (file, field)
            assert len(entry["why"]) > 60 and "'" in entry["why"], f"{file} {field}: no line is quoted"
            before = {**corpus.answers()[file], field: corpus.originals()[file][field]}
            assert before != corpus.answers()[file], f"{file} {field}: is dead"
            assert not all(row.agrees for row in corpus.compare(file, before, corpus.read(file))), (file, field)


@pytest.mark.deep
def test_no_other_check_takes_it_for_its_own() -> None:
    """Whatever check reads whatever file: values only of its own program, or with the defect beside each of them."""
    taken: dict[str, set[str]] = {}
    for file, answer in corpus.answers().items():
        outputs = [Output(corpus.text_of(file))]
        for name, check in corpus.checks().items():
            try:
                found = check.parse(outputs, Context())
            except ParseError:
                continue
            if name != answer["check"]:
                taken.setdefault(file, set()).add(name)
            elif answer["sound"] and answer["validated"] is not False:
                continue
            wrong = any(m.expected not in (None, m.value) for m in found)      # wrong data: a FAIL in any case
            assert wrong or all(m.warnings for m in found if m.key), (file, name)
    assert taken == MAY_BE


def test_sound_files_have_values_that_are_judged() -> None:
    for file, answer in corpus.answers().items():
        check = corpus.check_of(file)
        if check is None or not answer["sound"]:
            continue
        found = check.parse([Output(corpus.text_of(file))], Context())
        assert any(m.key for m in found), file
        if answer["ranks"]:
            assert {m.ranks for m in found if m.ranks} == {answer["ranks"]}, file


def test_what_is_not_whole_never_passes() -> None:
    """Whole and validated passes, by limits that it reaches; a usable value of what is not whole warns."""
    told: dict[Status, int] = {}
    for file, answer in corpus.answers().items():
        if corpus.check_of(file) is None:
            continue
        for context in corpus.contexts(file):
            status, reason = corpus.verdict(file, context)
            told[status] = told.get(status, 0) + 1
            assert status.value not in answer["never"], (file, status, reason)
            assert status is not Status.PASS or (answer["sound"] and answer["validated"] is not False), file
            assert status in (Status.PASS, Status.WARN) or reason, file
            assert status is not Status.WARN or answer["value_usable"], (file, reason)
    assert told[Status.PASS] >= 20 and told[Status.WARN] >= 35 and told[Status.ERROR] >= 30


# --- the comparison itself ------------------------------------------------------------------------------------------


def spoilt(reading: Reading) -> Iterator[tuple[str, Reading]]:
    """The reading with one thing of it made wrong."""
    yield "sound", replace(reading, problems=() if reading.problems else ("cut off",))
    yield "value_usable", replace(reading, usable=not reading.usable)
    yield "validated", replace(reading, validated=not reading.validated)
    yield "wrong_values", replace(reading, wrong_values=(reading.wrong_values or 0) + 7)
    yield "ranks", replace(reading, ranks=(reading.ranks or 0) + 1)
    yield "hosts", replace(reading, hosts=(reading.hosts or 0) + 1)
    yield "transport", replace(reading, transport="Pigeon")
    yield "values", replace(reading, measurements=tuple(
        replace(m, value=m.value * 1.0001 + 1 if isinstance(m.value, float | int) else f"{m.value}x")
        for m in reading.measurements) or (Measurement("bandwidth", 1.0, "GB/s"),))
    yield "units", replace(reading, measurements=tuple(replace(m, unit="furlong") for m in reading.measurements))
    yield "sizes", replace(reading, measurements=tuple(
        replace(m, size_bytes=(m.size_bytes or 0) + 1) for m in reading.measurements))
    yield "words", replace(reading, problems=tuple("x" for _ in reading.problems), notes=())


def test_everything_that_is_compared_can_be_missed() -> None:
    missed: dict[str, int] = {}
    for file, answer in corpus.answers().items():
        if corpus.check_of(file) is None:
            continue
        for what, wrong in spoilt(corpus.read(file)):
            found = not all(row.agrees for row in corpus.compare(file, answer, wrong))
            missed[what] = missed.get(what, 0) + found
            applies = {"value_usable": not answer["sound"], "words": not answer["sound"] and answer["must_quote"],
                       "units": answer["measurements"], "sizes": answer["measurements"]}
            assert found or not applies.get(what, True), (file, what)
    assert min(missed.values()) >= 50, missed
