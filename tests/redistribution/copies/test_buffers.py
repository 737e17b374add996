"""The pool of message buffers: sizes, alignment and reuse."""

from unittest.mock import patch

import numpy as np
import pytest

from redistribution.copies import buffers
from redistribution.tuning import tuning

HUGE_PAGE = 1 << 21


@pytest.fixture(autouse=True)
def empty_pool():
    buffers.clear()
    yield
    buffers.clear()


def test_small_buffers_have_the_size_asked_for_and_are_not_kept():
    size = tuning.pooled_buffer_bytes
    buffer = buffers.take(size)
    assert buffer.size == size == buffers.rounded_size(size)
    buffers.give_back(buffer)
    assert buffers.pooled_bytes() == 0


def test_larger_buffers_have_few_sizes_and_are_taken_again():
    grain = tuning.pooled_buffer_bytes
    buffer = buffers.take(grain + 1)
    assert buffer.size == 2 * grain == buffers.rounded_size(2 * grain)
    buffers.give_back(buffer)
    assert buffers.pooled_bytes() == 2 * grain
    assert np.shares_memory(buffers.take(2 * grain - 1), buffer)
    assert buffers.pooled_bytes() == 0


def test_the_largest_buffers_begin_at_a_huge_page():
    buffer = buffers.take(HUGE_PAGE + 1)
    assert (buffer.size, buffer.ctypes.data % HUGE_PAGE) == (2 * HUGE_PAGE, 0)
    buffer[-1] = 1  # the last byte is there


def test_the_oldest_buffers_leave_a_pool_that_is_full():
    with patch.multiple(tuning, pool_bytes=4 * HUGE_PAGE):
        taken = [buffers.take(2 * HUGE_PAGE) for _ in range(3)]
        for buffer in taken:
            buffers.give_back(buffer)
        assert buffers.pooled_bytes() == 4 * HUGE_PAGE
        assert np.shares_memory(buffers.take(2 * HUGE_PAGE), taken[2])
