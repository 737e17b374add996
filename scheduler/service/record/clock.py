"""The clock of a service: wall time that advances with the monotonic clock.

Walltimes and waits are durations, so a step of the wall clock (an administrator, NTP, a resumed
virtual machine) must not change them. The service notes once in its journal which wall time belongs
to which monotonic reading; from then on its time is that wall time plus the monotonic seconds that
have passed. The note holds for all services of the directory until the machine is booted again,
because the monotonic clock counts from the boot.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class ClockAnchor(msgspec.Struct, frozen=True):
    """A wall time (Unix seconds) and the monotonic reading (seconds) of the same moment."""

    boot: str
    monotonic: float
    at: float


def boot_id() -> str:
    """Identify the present boot of the machine; empty where the kernel does not say."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""


class Clock:
    """Unix seconds that advance with the monotonic clock and never go back.

    Parameters
    ----------
    noted : anchor of an earlier service of the directory, None if there was none. It is used if it
        belongs to the present boot; otherwise the wall clock gives a new one.
    earliest : latest time in the journal, Unix seconds; the clock does not start before it.
    wall, monotonic : read the two clocks, seconds.
    boot : identifies the present boot.
    """

    def __init__(
        self,
        noted: ClockAnchor | None = None,
        earliest: float = 0.0,
        *,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
        boot: str | None = None,
    ) -> None:
        boot = boot_id() if boot is None else boot
        self._monotonic = monotonic
        now = monotonic()
        if noted is None or not boot or noted.boot != boot or noted.monotonic > now:
            noted = ClockAnchor(boot, now, wall())
        late = earliest - (noted.at + now - noted.monotonic)
        if late > 0:
            noted = ClockAnchor(boot, noted.monotonic, noted.at + late)
        self.anchor = noted

    def __call__(self) -> float:
        """Return the time now, Unix seconds."""
        return self.anchor.at + (self._monotonic() - self.anchor.monotonic)
