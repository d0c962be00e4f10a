"""The catalogue: shipped limits are sound, a wrong one is refused with file and line, the most specific one wins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hpcadmin.catalogue import for_measurement, load_known, load_limits, read_limits
from hpcadmin.check import Direction, Limit, Measurement
from hpcadmin.errors import SiteError
from hpcadmin.registry import load_checks
from hpcadmin.site import Site, parse_site
from hpcadmin.toml_text import parse_toml

H100 = "NVIDIA H100 80GB HBM3"
GOOD = """
[[limit]]
check = "nccl_allreduce"
measurement = "busbw"
unit = "GB/s"
size_bytes = 1024
min = 10.0
source = "measured"
date = "2026-01-01"
"""


def test_what_ships() -> None:
    limits = load_limits(Site())
    checks = load_checks()
    for limit in limits:
        assert limit.check in checks and limit.source and limit.date and not limit.site
    assert any(limit.simulated for limit in limits)


def test_h100_is_found_by_its_model_and_size() -> None:
    limits = load_limits(Site())
    m = Measurement("busbw", 470.0, "GB/s", 8589934592, ranks=8, nodes=1)
    found = for_measurement(limits, "nccl_allreduce", m, (H100, "400 Gb/sec (4X NDR)"))
    assert found and found.min == 460.0
    assert for_measurement(limits, "nccl_allreduce", m, ("NVIDIA GB200",)) is None
    assert for_measurement(limits, "nccl_allreduce", replace(m, size_bytes=1048576), (H100,)) is None
    assert for_measurement(limits, "nccl_allreduce", replace(m, unit="Gb/s"), (H100,)) is None
    assert for_measurement(limits, "nccl_allreduce", m, (H100,), simulated=True) is None
    assert for_measurement(limits, "osu_bw", m, (H100,)) is None
    assert for_measurement(limits, "nccl_allreduce", m) is None


def test_simulated_values_have_their_own_limits() -> None:
    limits = load_limits(Site())
    m = Measurement("busbw", 0.02, "GB/s", 1048576, ranks=32, nodes=4)
    found = for_measurement(limits, "nccl_allreduce", m, H100, simulated=True)
    assert found and found.simulated and found.min == 0.001
    assert for_measurement(limits, "nccl_allreduce", m, H100) is None


def test_the_most_specific_wins_and_the_site_before_all() -> None:
    base = Limit("c", "m", "GB/s", min=1.0, size_bytes=8, source="a", date="d")
    m = Measurement("m", 5.0, "GB/s", 8, Direction.ONE_WAY, ranks=2, nodes=2)
    limits = [base, replace(base, min=2.0, hardware="*H100*"), replace(base, min=3.0, hardware="*H100*", ranks=2),
              replace(base, min=4.0, direction=Direction.BOTH), replace(base, min=5.0, ranks=9)]

    def least(found: Limit | None) -> float | None:
        assert found
        return found.min

    assert least(for_measurement(limits, "c", m, H100)) == 3.0
    assert least(for_measurement(limits, "c", m, "NVIDIA A100")) == 1.0
    assert least(for_measurement([*limits, replace(base, min=6.0, site=True)], "c", m, H100)) == 6.0


def test_site_limits() -> None:
    text = GOOD.replace("date = \"2026-01-01\"\n", "").replace("source = \"measured\"\n", "")
    limits = load_limits(parse_site(parse_toml(text.encode(), "/etc/site.toml"), "/etc/site.toml"))
    assert limits[0].site and limits[0].source == "/etc/site.toml"
    assert load_limits(parse_site(parse_toml(GOOD.encode(), "s"), "s"))[0].source == "measured"


@pytest.mark.parametrize(("old", "new", "line", "what"), [
    ("unit = \"GB/s\"\n", "", 2, "lacks unit"),
    ("source = \"measured\"\n", "", 2, "lacks source"),
    ("source = \"measured\"", "source = \" \"", 8, "lacks source"),
    ("date = \"2026-01-01\"\n", "", 2, "lacks date"),
    ("size_bytes = 1024\n", "", 2, "needs size_bytes"),
    ("min = 10.0\n", "", 2, "neither min nor max"),
    ("min = 10.0", "min = 0", 2, "a dead link would pass"),
    ("min = 10.0", "max = 10.0", 2, "a dead link would pass"),
    ("min = 10.0", "min = -1.0", 2, "not below zero"),
    ("min = 10.0", "min = nan", 7, "not a number"),
    ("min = 10.0", "min = inf", 7, "not a number"),
    ("min = 10.0", "min = \"10\"", 7, "min is str"),
    ("min = 10.0", "min = true", 7, "min is bool"),
    ("min = 10.0", "min = 10.0\nmax = 5.0", 2, "is above max"),
    ("\"GB/s\"", "\"Gbit\"", 2, "unit 'Gbit' is not known"),
    ("min = 10.0", "min = 10.0\ntolerance = 0.9", 2, "tolerance"),
    ("min = 10.0", "min = 10.0\nranks = 0", 2, "at least 1"),
    ("min = 10.0", "min = 10.0\nmaximum = 3", 8, "'maximum' is not known"),
    ("min = 10.0", "min = 10.0\nsite = true", 8, "'site' is not known"),
    ("[[limit]]", "[limit]", None, "[[limit]] tables"),
    ("[[limit]]", "[[limits]]", None, "'limits' is not known here"),
    ("min = 10.0", "min = 10.0 x", 7, "not valid TOML"),
])
def test_a_wrong_limit_is_refused(tmp_path: Path, old: str, new: str, line: int | None, what: str) -> None:
    path = tmp_path / "limits.toml"
    path.write_text(GOOD.replace(old, new))
    with pytest.raises(SiteError) as raised:
        read_limits(path)
    assert what in str(raised.value)
    assert str(raised.value).startswith(f"{path}:{line}:" if line else str(path))


def test_the_second_limit_is_named(tmp_path: Path) -> None:
    path = tmp_path / "limits.toml"
    path.write_text(GOOD + GOOD.replace("unit = \"GB/s\"\n", ""))
    with pytest.raises(SiteError, match=r"limits\.toml:11: \[\[limit\]\] number 2: lacks unit"):
        read_limits(path)


def test_the_narrower_pattern_and_the_right_transport() -> None:
    base = Limit("c", "m", "GB/s", min=1.0, size_bytes=8, source="a", date="d", hardware="400 Gb/sec*")
    m = Measurement("m", 5.0, "GB/s", 8, transport="IB mlx5_0")
    limits = [base, replace(base, min=2.0, hardware="400 Gb/sec (4X NDR)"), replace(base, min=3.0, hardware="*GB200*"),
              replace(base, min=4.0, hardware="*GB200*", transport="RoCE"),
              replace(base, min=5.0, hardware="*H100*", transport="ib")]

    def least(*names: str, transport: str = "IB mlx5_0") -> float | None:
        found = for_measurement(limits, "c", replace(m, transport=transport), names)
        return found.min if found else None

    assert least("400 Gb/sec (4X NDR)") == 2.0
    assert least("400 Gb/sec (Ethernet)") == 1.0
    assert least("400 Gb/sec (4X NDR)", "NVIDIA GB200") == 3.0
    assert least("NVIDIA GB200", transport="RoCE mlx5_1") == 4.0
    assert least(H100) == 5.0
    assert least(H100, transport="") is None
    assert least(H100, transport="TCP eth0") is None


def test_where_the_buffers_lie() -> None:
    limits = load_limits(Site())
    m = Measurement("bandwidth", 370.0, "Gb/s", 65536, Direction.ONE_WAY, ranks=2, nodes=2)
    for binding, least in (("", 390.0), ("GPU memory (NVIDIA H200)", 360.0), ("GPU memory", 360.0)):
        found = for_measurement(limits, "ib_write_bw", replace(m, binding=binding), "400 Gb/sec (4X NDR)")
        assert found and found.min == least
    device = Measurement("bandwidth", 9000.0, "MB/s", 4194304, Direction.ONE_WAY, ranks=2, nodes=2, binding="DEVICE")
    assert for_measurement(limits, "osu_bw", device, "100 Gb/sec (4X EDR)") is None
    for binding in ("", "HOST"):
        assert for_measurement(limits, "osu_bw", replace(device, binding=binding), "100 Gb/sec (4X EDR)")


def test_known_figures() -> None:
    figures = load_known()
    assert all(k.source and k.date and k.value > 0 for k in figures)
    hardware = " ".join(k.hardware for k in figures)
    for name in ("V100", "A100", "H100", "H200", "B200", "GB200", "B300", "GH200", "MI250", "MI300X", "MI325X",
                 "EDR", "HDR", "NDR", "100 Gb/sec", "400 Gb/sec"):
        assert name in hardware, name
    assert {k.transport for k in figures} >= {"IB", "RoCE", "EFA", "Slingshot"}


def test_where_a_table_is(tmp_path: Path) -> None:
    path = tmp_path / "limits.toml"
    path.write_text("limit = [\n  {check = \"a\"},\n]\n")
    with pytest.raises(SiteError, match=r"limits\.toml:1: \[\[limit\]\] number 1: lacks measurement"):
        read_limits(path)
    path.write_text("# [[limit]]\r\n[[ limit ]] # one\r\ncheck = \"a\"\r\n[[known]]\r\n[[limit]]\r\nmin = \"x\"\r\n")
    with pytest.raises(SiteError, match=r"limits\.toml:2: \[\[limit\]\] number 1: lacks measurement"):
        read_limits(path)
