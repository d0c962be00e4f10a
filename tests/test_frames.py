"""Framed outputs: whatever an output holds and wherever a file is torn, no output is taken for another's."""

import subprocess
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcadmin.frames import MAX_OUTPUT_BYTES, Collector, Frame, cksum, encode, scan

A = Frame(id="t0001", step=0, role="each", node="node01", host="node01", status=0, start=1.5, end=2.25,
          flags=frozenset(), body=b"hello\n", file="f")
B = replace(A, id="t0002", status=None, flags=frozenset({"timeout", "truncated"}), body=encode(A), start=None, end=None)


def test_cksum_is_the_tool_of_that_name() -> None:
    for data in (b"", b"hello world\n", bytes(range(256)) * 40):
        told = subprocess.run(["cksum"], input=data, capture_output=True, check=True).stdout.split()
        assert (cksum(data), len(data)) == (int(told[0]), int(told[1]))


def test_what_is_written_is_read() -> None:
    found = scan(encode(A) + encode(B), "f")
    assert found.frames == (A, B)
    assert (found.consumed, found.problem, found.pending) == (len(encode(A) + encode(B)), "", "")


bodies = st.one_of(
    st.binary(max_size=300),
    st.just(encode(A)), st.just(b"\n" + encode(A) * 2), st.just(encode(A)[:-4]), st.just(b"HPCADMIN-FRAME 1 id=t0002"),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(bodies, min_size=1, max_size=4), st.data())
def test_torn_anywhere_no_test_gets_anothers_output(contents: list[bytes], data: st.DataObject) -> None:
    frames = [replace(A, id=f"t{n:04d}", body=body) for n, body in enumerate(contents)]
    whole = b"".join(encode(f) for f in frames)
    cut = data.draw(st.integers(0, len(whole)))
    found = scan(whole[:cut], "f")
    assert list(found.frames) == frames[:len(found.frames)]
    assert found.consumed == sum(len(encode(f)) for f in found.frames)
    assert not found.problem
    assert bool(found.pending) == (cut > found.consumed)
    # The writer was cut off there and another frame follows: it must not end up as part of the torn one.
    after = scan(whole[:cut] + encode(replace(A, id="t9999", body=b"later")), "f")
    for frame in after.frames:
        assert frame in frames or frame.id == "t9999"
    if cut > found.consumed:
        assert all(f.id != "t9999" for f in after.frames)
        assert after.problem or after.pending


@settings(max_examples=200, deadline=None)
@given(st.lists(bodies, min_size=1, max_size=3), st.data())
def test_a_changed_byte_of_an_output_is_never_read_as_sound_output(contents: list[bytes], data: st.DataObject) -> None:
    frames = [replace(A, id=f"t{n:04d}", body=body) for n, body in enumerate(contents)]
    number = data.draw(st.integers(0, len(frames) - 1))
    end = sum(len(encode(f)) for f in frames[:number + 1])
    place = data.draw(st.integers(end - len(frames[number].body) - 1, end - 1))      # in the output or its newline
    whole = bytearray(b"".join(encode(f) for f in frames))
    whole[place] ^= data.draw(st.integers(1, 255))
    found = scan(bytes(whole), "f")
    assert found.frames == tuple(frames[:number])
    assert f"t{number:04d}" in found.problem


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=2000))
def test_any_bytes_are_survived(data: bytes) -> None:
    found = scan(data, "f")
    assert found.consumed <= len(data)


@given(st.lists(bodies, min_size=1, max_size=4), st.integers(1, 40))
@settings(max_examples=60, deadline=None)
def test_reading_as_it_grows_gives_the_same(contents: list[bytes], piece: int) -> None:
    whole = b"".join(encode(replace(A, id=f"t{n:04d}", body=body)) for n, body in enumerate(contents))
    offset, frames = 0, []
    for end in [*range(0, len(whole), piece), len(whole)]:
        found = scan(whole[offset:end], "f")
        assert not found.problem
        frames += found.frames
        offset += found.consumed
    assert tuple(frames) == scan(whole, "f").frames


@pytest.mark.parametrize(("change", "what"), [
    ((b"bytes=6 ", b"bytes=99999999999 "), "over the bound"),
    ((b"crc=3", b"crc=2"), "checksum"),
    ((b"status=0", b"status=x"), "no frame header"),
    ((b"flags=-", b"flags=A"), "no frame header"),
])
def test_a_wrong_header_is_a_problem(change: tuple[bytes, bytes], what: str) -> None:
    raw = encode(A).replace(*change)
    assert what in scan(raw + encode(B), "f").problem
    assert scan(raw + encode(B), "f").frames == ()


def test_a_line_without_end_is_not_waited_for() -> None:
    assert scan(b"HPCADMIN-FRAME 1 " + b"x" * 5000).problem
    assert scan(b"x").problem
    assert MAX_OUTPUT_BYTES >= 16 * 1024 * 1024


def test_collector_takes_only_what_the_plan_has() -> None:
    collector = Collector({"t0001": [(0, "each", "node01"), (0, "each", "node02")]})
    assert collector.add(A, only_node="node01") == ""
    assert collector.missing("t0001") == ((0, "each", "node02"),)
    stranger = replace(A, node="node03")
    assert collector.add(stranger) == ""
    assert "not in the plan" in collector.problems[-1]
    foreign = replace(A, node="node02")
    assert collector.add(foreign, only_node="node01") == ""          # a node's log speaks of that node alone
    assert len(collector.problems) == 2
    assert collector.add(foreign, only_node="node02") == "t0001"
    assert [f.node for f in collector.frames("t0001")] == ["node01", "node02"]
    assert collector.add(replace(foreign, body=b"other")) == ""
    assert "t0001" in collector.contradictions
    assert collector.frames("t0001")[1].body == A.body
