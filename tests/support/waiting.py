"""Waiting for conditions, with a limit that no load of the machine reaches."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
#: Seconds after which a condition counts as never met. The slowest one took a tenth of this on a
#: machine with nine processes for each core.
LIMIT_S = 120.0


def wait_until(condition: Callable[[], T], describe: Callable[[], object] = str) -> T:
    """Wait until a condition holds, and return its value.

    Parameters
    ----------
    describe : returns what to show if the condition never holds.
    """
    end = time.monotonic() + LIMIT_S
    while not (value := condition()):
        assert time.monotonic() < end, describe()
        time.sleep(0.05)
    return value
