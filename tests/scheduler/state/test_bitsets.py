"""Sets of processors as bits: against plain sets of numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.procset import ProcSet
from scheduler.state.bitsets import bits_in_blocks, bits_of, lowest_bits, set_of

NUMBERS = st.sets(st.integers(0, 90))


@given(NUMBERS)
def test_a_set_and_its_bits(numbers: set[int]) -> None:
    processors = ProcSet.of(numbers)
    bits = bits_of(processors)
    assert bits == sum(1 << number for number in numbers)
    assert set_of(bits) == processors


@given(NUMBERS, st.integers(1, 95))
def test_lowest_bits(numbers: set[int], count: int) -> None:
    found = lowest_bits(bits_of(ProcSet.of(numbers)), count)
    assert list(set_of(found)) == sorted(numbers)[:count]


@given(NUMBERS, st.integers(1, 5), st.integers(1, 8), st.integers(3, 20))
def test_blocks_on_nodes(numbers: set[int], block: int, blocks: int, node: int) -> None:
    nodes = [range(first, first + node) for first in range(0, 91, node)]
    expected: list[int] = []
    for each in nodes:
        here = [number for number in each if number in numbers]
        usable = here[: len(here) // block * block]
        expected += usable[: blocks * block - len(expected)]
    bits = (bits_of(ProcSet.of(each)) for each in nodes)
    found = bits_in_blocks(bits_of(ProcSet.of(numbers)), bits, block, blocks * block)
    assert list(set_of(found)) == (expected if len(expected) == blocks * block else [])
