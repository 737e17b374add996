"""The rate of requests at resize points, and the reported times of iterations."""

from __future__ import annotations

from pathlib import Path

import pytest
from driver import Driver

from reshape.errors import ConfigError
from reshape.wire import identity
from reshape.wire.identity import Pace
from scheduler.protocol import messages as m

PROGRAM = """
import reshape
with reshape.application() as app:
    for step in app.iterations(int(__import__("sys").argv[1])):
        pass
    app.report(ranks=app.comm.size)
"""


def test_the_first_iteration_is_reported_alone_and_others_as_their_mean(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(identity.time, "monotonic", lambda: now[0])
    rate = Pace(0.05)
    reported = []
    for _ in range(3):  # configurations
        for iteration_s in (0.03, *[0.01] * 12):
            now[0] += iteration_s
            rate.passed(iteration_s)
            if rate.is_due():
                reported.append(round(rate.taken(), 6))
        rate.reset()
    assert reported == [0.03, 0.01, 0.01] * 3


def test_with_long_iterations_or_pace_0_every_resize_point_is_a_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [0.0]
    monkeypatch.setattr(identity.time, "monotonic", lambda: now[0])
    for rate, iteration_s in ((Pace(0.05), 0.06), (Pace(0.0), 0.0)):
        reported = []
        for _ in range(5):
            now[0] += iteration_s
            rate.passed(iteration_s)
            reported.append(rate.is_due() and rate.taken() == iteration_s)
        assert all(reported)


@pytest.mark.parametrize("text", ["", "often", "-1", "nan", "inf"])
def test_a_wrong_pace_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="RESHAPE_ASK_EVERY_S: must be a number of seconds >= 0"):
        Pace.of({"RESHAPE_ASK_EVERY_S": text})


@pytest.mark.parametrize(("every", "asked"), [("0", 199), ("3600", 1)])
def test_iterations_between_requests_send_nothing(tmp_path: Path, every: str, asked: int) -> None:
    requested = []

    def decide(point: m.AtResizePoint) -> m.Message:
        requested.append(point.iteration)
        return m.Proceed()

    with Driver(tmp_path, ["-c", PROGRAM, "200"]) as driver:
        driver.decide = decide
        group = driver.start(2, "first", RESHAPE_ASK_EVERY_S=every)
        driver.finish()
        assert group.process.returncode == 0
    assert requested == [*range(1, asked + 1)]
