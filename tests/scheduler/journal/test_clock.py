"""The clock of a service follows the monotonic clock, and notes steps of the wall clock."""

from __future__ import annotations

import msgspec
import pytest

from scheduler.journal.clock import Clock, ClockAnchor

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


@pytest.mark.parametrize("jump_s", [HOUR_S, -HOUR_S])
def test_a_step_of_the_wall_clock_is_noted_once(jump_s: float) -> None:
    machine = Machine()
    clock = machine.clock()
    machine.passes(2.0)
    assert clock.step() == 0.0
    machine.wall += jump_s
    assert clock.step() == pytest.approx(jump_s)
    assert (clock.step(), clock.wall()) == (0.0, pytest.approx(machine.wall))
    again = machine.clock(clock.anchor, clock())
    assert (again.step(), again.wall()) == (0.0, pytest.approx(machine.wall)), "it is in the anchor"


def test_small_steps_are_noted_when_they_add_up() -> None:
    machine = Machine()
    clock = machine.clock()
    steps = []
    for _ in range(5):
        machine.wall += 0.4
        steps.append(clock.step())
    assert steps == [0.0, 0.0, pytest.approx(1.2), 0.0, 0.0]
    assert clock.wall() == pytest.approx(machine.wall - 0.8)


def test_a_pause_of_the_process_is_no_step() -> None:
    """The service is stopped for a minute while it reads the two clocks."""
    machine = Machine()

    def wall() -> float:
        machine.passes(60.0)
        return machine.wall

    clock = Clock(wall=wall, monotonic=lambda: machine.monotonic, boot="first")
    assert clock.step() == 0.0


def test_after_a_reboot_the_service_follows_the_wall_clock_again() -> None:
    """Times in the journal, which were an hour behind, move by that hour."""
    machine = Machine()
    clock = machine.clock()
    machine.wall += HOUR_S
    clock.step()
    reservation_at = clock() + 600.0
    later = Machine(wall=machine.wall + 100.0, monotonic=3.0, boot="second")
    rebooted = later.clock(clock.anchor, clock())
    by_s = rebooted.step()
    assert (by_s, rebooted.wall()) == (pytest.approx(-HOUR_S), pytest.approx(later.wall))
    assert reservation_at - by_s - rebooted() == pytest.approx(500.0)


def test_an_anchor_of_the_first_release_is_read() -> None:
    text = b'{"boot":"first","monotonic":50.0,"at":1e9}'
    assert msgspec.json.decode(text, type=ClockAnchor).ahead_s == 0.0


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
