"""A test that hangs is interrupted more than once.

pytest-timeout interrupts a test one time. Hypothesis takes that for a failure, repeats the example
to shrink it, and hangs for good.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Interrupt the body of a test after its time limit, and each time that a fifth more passes."""
    left, _ = signal.getitimer(signal.ITIMER_REAL)
    if left == 0:  # without a limit, or a thread watches it
        return (yield)
    until = time.monotonic() + left
    signal.setitimer(signal.ITIMER_REAL, left, left / 5)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_REAL, max(0.0, until - time.monotonic()))
