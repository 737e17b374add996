"""How often the service is asked, and what it is told of the iterations in between."""

from __future__ import annotations

from pathlib import Path

import pytest
from driver import Driver

from reshape.errors import ConfigError
from reshape.wire import messages as m
from reshape.wire import pace
from reshape.wire.pace import Pace

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
    monkeypatch.setattr(pace.time, "monotonic", lambda: now[0])
    its = Pace(0.05)
    told = []
    for _ in range(3):  # configurations
        for iteration_s in (0.03, *[0.01] * 12):
            now[0] += iteration_s
            its.passed(iteration_s)
            if its.is_due():
                told.append(round(its.taken(), 6))
        its.reset()
    assert told == [0.03, 0.01, 0.01] * 3


def test_long_iterations_and_pace_zero_ask_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(pace.time, "monotonic", lambda: now[0])
    for its, iteration_s in ((Pace(0.05), 0.06), (Pace(0.0), 0.0)):
        told = []
        for _ in range(5):
            now[0] += iteration_s
            its.passed(iteration_s)
            told.append(its.is_due() and its.taken() == iteration_s)
        assert all(told)


@pytest.mark.parametrize("text", ["", "often", "-1", "nan", "inf"])
def test_a_wrong_pace_is_told(text: str) -> None:
    with pytest.raises(ConfigError, match="RESHAPE_ASK_EVERY_S: must be a number of seconds >= 0"):
        Pace.of({"RESHAPE_ASK_EVERY_S": text})


@pytest.mark.parametrize(("every", "asked"), [("0", 199), ("3600", 1)])
def test_iterations_in_between_do_not_ask(tmp_path: Path, every: str, asked: int) -> None:
    met = []

    def decide(point: m.AtResizePoint) -> m.Message:
        met.append(point.iteration)
        return m.Proceed()

    with Driver(tmp_path, ["-c", PROGRAM, "200"]) as driver:
        driver.decide = decide
        group = driver.start(2, "first", RESHAPE_ASK_EVERY_S=every)
        driver.finish()
        assert group.process.returncode == 0
    assert met == [*range(1, asked + 1)]
