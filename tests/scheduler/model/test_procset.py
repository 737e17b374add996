"""Interval sets against Python's sets."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.procset import ProcSet

numbers = st.sets(st.integers(0, 60), max_size=40)


def well_formed(procs: ProcSet) -> bool:
    ends = [end for interval in procs.intervals for end in interval]
    gaps = zip(procs.intervals, procs.intervals[1:], strict=False)
    return ends == sorted(ends) and all(a[1] + 1 < b[0] for a, b in gaps)


@given(numbers, numbers)
def test_operations_equal_those_of_sets(a: set[int], b: set[int]) -> None:
    left, right = ProcSet.of(a), ProcSet.of(b)
    for ours, theirs in (
        (left, a),
        (left | right, a | b),
        (left & right, a & b),
        (left - right, a - b),
    ):
        assert well_formed(ours)
        assert list(ours) == sorted(theirs)
        assert len(ours) == len(theirs)
        assert bool(ours) == bool(theirs)
        assert ours == ProcSet.of(theirs)
    assert all((n in left) == (n in a) for n in range(62))


@given(numbers, st.integers(0, 45))
def test_first(a: set[int], count: int) -> None:
    if count > len(a):
        with pytest.raises(ValueError, match=f"has {len(a)} processors, not {count}"):
            ProcSet.of(a).first(count)
    else:
        chosen = ProcSet.of(a).first(count)
        assert list(chosen) == sorted(a)[:count]
        assert well_formed(chosen)


@given(numbers)
def test_text_and_message_round_trips(a: set[int]) -> None:
    procs = ProcSet.of(a)
    assert ProcSet.parse(str(procs)) == procs
    assert msgspec.json.decode(msgspec.json.encode(procs), type=ProcSet) == procs
    assert hash(ProcSet.parse(str(procs))) == hash(procs)


def test_text() -> None:
    assert str(ProcSet.of([7, 2, 1, 0, 3])) == "0-3 7"
    assert ProcSet.parse("7,0-3, 2-4") == ProcSet(((0, 4), (7, 7)))
    assert str(ProcSet()) == ""
    assert ProcSet.span(5, 0) == ProcSet()
    assert str(ProcSet.span(5, 3)) == "5-7"


@pytest.mark.parametrize(
    ("text", "says"), [("3-1", "write 1-3"), ("a", "'a' in 'a' is no interval"), ("1-", "'1-'")]
)
def test_wrong_text(text: str, says: str) -> None:
    with pytest.raises(ValueError, match="in '") as caught:
        ProcSet.parse(text)
    assert says in str(caught.value)


def test_a_large_machine_costs_no_walk() -> None:
    machine = ProcSet.span(0, 10**15)
    half = machine.first(10**14) | ProcSet.span(10**15 - 5, 5)
    rest = machine - half
    assert rest | half == machine
    assert not rest & half
