"""A test that hangs is interrupted more than once.

pytest-timeout interrupts a test one time. Hypothesis takes that for a failure, repeats the example
to shrink it, and hangs for good.
"""

from __future__ import annotations

import signal
from collections.abc import Generator
from typing import Any

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Generator[None, object, object]:
    """Interrupt a test after its time limit, and then each time that a fifth of it has passed."""
    result = yield
    if settings.method == "signal":
        signal.setitimer(signal.ITIMER_REAL, settings.timeout, settings.timeout / 5)
    return result
