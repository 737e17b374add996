"""The clock of a service follows the monotonic clock, whatever happens to the wall clock."""

from __future__ import annotations

import pytest

from scheduler.service.record.clock import Clock, ClockAnchor

HOUR_S = 3600.0


class Machine:
    """The clocks of a machine, set by a test."""

    def __init__(self, wall: float = 1e9, monotonic: float = 50.0, boot: str = "first") -> None:
        self.wall, self.monotonic, self.boot = wall, monotonic, boot

    def passes(self, seconds: float) -> None:
        self.wall += seconds
        self.monotonic += seconds

    def clock(self, noted: ClockAnchor | None = None, earliest: float = 0.0) -> Clock:
        return Clock(
            noted,
            earliest,
            wall=lambda: self.wall,
            monotonic=lambda: self.monotonic,
            boot=self.boot,
        )


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
def test_a_jump_of_the_wall_clock_changes_no_duration(jump_s: float) -> None:
    machine = Machine()
    clock = machine.clock()
    begin = clock()
    machine.passes(2.0)
    machine.wall += jump_s
    machine.passes(3.0)
    assert clock() - begin == 5.0


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
def test_a_service_that_starts_again_in_the_same_boot_continues(jump_s: float) -> None:
    machine = Machine()
    first = machine.clock()
    begin = first()
    machine.passes(10.0)
    machine.wall += jump_s
    assert machine.clock(first.anchor, begin)() - begin == 10.0


def test_after_a_reboot_the_wall_clock_counts() -> None:
    machine = Machine()
    first = machine.clock()
    begin = first()
    later = Machine(wall=machine.wall + 100.0, monotonic=3.0, boot="second")
    assert later.clock(first.anchor, begin)() - begin == 100.0


def test_the_clock_does_not_start_before_the_journal_ends() -> None:
    machine = Machine()
    clock = machine.clock(earliest=machine.wall + 7.0)
    assert clock() == machine.wall + 7.0
    machine.passes(1.0)
    assert clock() == machine.wall + 7.0
    assert machine.clock(clock.anchor)() == clock()
