"""The checksum depends on the array, not on the layout, and changes with errors."""

from unittest.mock import patch

import numpy as np
import pytest
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st
from redistribution_cases import DTYPES, draw_layout, index_valued, local_part

from redistribution import BlockCyclic, Cuts, Replicated, checksum
from redistribution.tuning import tuning

MASK = 2**64 - 1


def whole(layout, array, kind="C"):
    """The checksum of the global array, from all processes of a layout."""
    parts = range(layout.nprocs)
    return sum(checksum(layout, p, local_part(layout, p, array, kind)) for p in parts) & MASK


def mixed(word):
    """The finaliser of SplitMix64 in Python integers, for `slow_checksum`."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word = (word ^ word >> shift) * factor & MASK
    return word ^ word >> 31


def data_of(element):
    """The bytes of one element without padding."""
    if element.dtype.names is None:
        return element.tobytes()
    return b"".join(element[name].tobytes() for name in element.dtype.names)


def slow_checksum(array):
    """Slow reference: one element, one word at a time."""
    total = 0
    for linear, element in enumerate(array.flat):
        data = data_of(element)
        data += bytes(-len(data) % 8)
        for k in range(len(data) // 8):
            word = int.from_bytes(data[8 * k : 8 * k + 8], "little")
            key = linear * 0x9E3779B97F4A7C15 + k * 0xBF58476D1CE4E5B9
            total += mixed((word + key) & MASK)
    return total & MASK


@st.composite
def arrays(draw):
    def integer(low, high):
        return draw(st.integers(low, high))

    shape = tuple(integer(0, 12) for _ in range(integer(1, 3)))
    layouts = [draw_layout(integer, shape, ranks=6) for _ in range(2)]
    dtype = draw(st.sampled_from(DTYPES))
    return index_valued(shape, dtype), layouts, draw(st.sampled_from("CFsr"))


@examples(200)
@given(arrays())
def test_the_checksum_is_that_of_the_slow_reference_for_any_layout(drawn):
    array, layouts, kind = drawn
    expected = {slow_checksum(array)}
    assert {whole(layout, array, kind) for layout in layouts} == expected
    with patch.multiple(tuning, use_kernel=False):
        assert {whole(layout, array, kind) for layout in layouts} == expected


@examples(200)
@given(arrays(), st.data())
def test_a_swap_or_a_lost_element_changes_the_checksum(drawn, data):
    array, (layout, _), _ = drawn
    if array.size < 2:
        return
    before = whole(layout, array)
    places = st.integers(0, array.size - 1)
    i, j = data.draw(st.tuples(places, places).filter(lambda pair: pair[0] != pair[1]))
    if array.flat[i] != array.flat[j]:
        swapped = array.copy()
        swapped.flat[i], swapped.flat[j] = array.flat[j], array.flat[i]
        assert whole(layout, swapped) != before
    lost = array.copy()
    lost.flat[i] = np.zeros((), array.dtype)
    if lost.flat[i] != array.flat[i]:
        assert whole(layout, lost) != before


def test_swaps_of_values_with_few_significant_bits_change_the_checksum():
    """Doubles such as 1.0 and 2.0 differ in their highest bits only."""
    array = np.tile([1.0, 2.0], 2000)
    layout = Cuts.even(array.shape, 1)
    before = checksum(layout, 0, array)
    seen = set()
    for i in range(0, 4000, 2):
        array[i], array[i + 1] = 2.0, 1.0
        seen.add(checksum(layout, 0, array))
        array[i], array[i + 1] = 1.0, 2.0
    assert len(seen) == 2000
    assert before not in seen


def test_arrays_larger_than_a_chunk():
    array = np.random.default_rng(1).random((300, 411))
    tall = BlockCyclic(array.shape, (7, 9), (2, 2))
    wide = Cuts.even(array.shape, 3, axis=1)
    assert whole(tall, array, "F") == whole(wide, array, "s") == slow_checksum(array)


def test_only_the_first_copy_counts():
    array = np.arange(20.0).reshape(4, 5)
    layout = Replicated(array.shape, 3)
    assert [checksum(layout, p, array) for p in (1, 2)] == [0, 0]
    assert checksum(layout, 0, array) == whole(Cuts.even(array.shape, 2), array)


def test_errors_name_bad_arguments():
    layout = Cuts.even((4,), 2)
    with pytest.raises(ValueError, match=r"process 1: expected .* shape \(2,\), got \(3,\)"):
        checksum(layout, 1, np.zeros(3))
    with pytest.raises(ValueError, match="dtype object holds objects"):
        checksum(layout, 0, np.zeros(2, object))
