"""The maps of all pairs: which verdicts stand in one, and once each."""

from __future__ import annotations

from hpcadmin.check import Limit, Measurement, Scope, Status, Subject, Verdict
from hpcadmin.handover.results import pair_maps, values_of
from hpcadmin.report.summary import CheckRow

PAIRS = (("n1", "n2"), ("n1", "n3"), ("n2", "n3"))
LIMIT = Limit("mpi_pingpong", "bandwidth", unit="MB/s", min=25.0)


def _rows(verdicts: list[Verdict]) -> list[tuple[object, ...]]:
    row = CheckRow("mpi_pingpong", "", Scope.PAIR, Status.PASS, "", {}, ())
    (_, tables), = pair_maps("x", row, verdicts, values_of(verdicts), {})
    return [(r[0], r[1], r[3]) for r in tables[1].rows]


def _value(pair: tuple[str, str]) -> Verdict:
    return Verdict("mpi_pingpong", Subject(pair), Status.PASS, measurement=Measurement("bandwidth", 900.0, "MB/s"),
                   limit=LIMIT)


def _intact(pair: tuple[str, str], status: Status = Status.PASS) -> Verdict:
    return Verdict("mpi_pingpong", Subject(pair), status, measurement=Measurement("data", "intact"))


def test_intact_data_is_no_pair_without_a_value() -> None:
    rows = _rows([*map(_value, PAIRS), *map(_intact, PAIRS)])
    assert rows == [(f"{a} - {b}", 900.0, Status.PASS) for a, b in PAIRS]


def test_a_pair_without_a_value_and_bad_data_stay() -> None:
    rows = _rows([*map(_value, PAIRS[:2]), _intact(PAIRS[0], Status.FAIL), _intact(PAIRS[1]), _intact(PAIRS[2])])
    assert rows[0] == ("n1 - n2", None, Status.FAIL)
    assert sorted(rows[1:], key=str) == [("n1 - n2", 900.0, Status.PASS), ("n1 - n3", 900.0, Status.PASS),
                                         ("n2 - n3", None, Status.PASS)]
