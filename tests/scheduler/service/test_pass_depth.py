"""The bound of the time of passes: when the depth changes, and that the journal holds it."""

from __future__ import annotations

from pathlib import Path

import pytest
from desk import Desk

from scheduler.config.settings import NodeConfig, PassConfig, ServeConfig
from scheduler.journal.replay import compare
from scheduler.model.events import DepthChanged
from scheduler.protocol import messages as m
from scheduler.service.driver import LEAST_DEPTH, SHORT_PASSES, PassDepth

JOB = m.Submission(argv=["true"], processors=1, walltime_s=60.0)


def test_a_long_pass_reduces_the_depth() -> None:
    control = PassDepth(0.05, None)
    assert control.change(1.0, 0.04, 10_000) is None
    assert control.change(2.0, 0.2, 10_000) == DepthChanged(2.0, 2500)
    assert control.change(3.0, 0.06, 2500) == DepthChanged(3.0, 1250)
    assert control.change(4.0, 9.0, 1250) == DepthChanged(4.0, LEAST_DEPTH)
    assert control.change(5.0, 9.0, LEAST_DEPTH) is None


def test_short_passes_of_the_full_depth_increase_it() -> None:
    control = PassDepth(0.05, 100)
    for _ in range(SHORT_PASSES - 1):
        assert control.change(1.0, 0.001, 100) is None
        assert control.change(1.0, 0.001, 60) is None
    assert control.change(2.0, 0.02, 100) is None
    for _ in range(SHORT_PASSES - 1):
        assert control.change(3.0, 0.001, 100) is None
    assert control.change(4.0, 0.001, 100) == DepthChanged(4.0, 200)


def test_without_a_bound_the_limit_ends() -> None:
    assert PassDepth(None, 70).initial_change(5.0) == DepthChanged(5.0, None)
    assert PassDepth(None, None).initial_change(5.0) is None
    assert PassDepth(0.05, 70).initial_change(5.0) is None
    assert PassDepth(None, None).change(1.0, 100.0, 10_000) is None


@pytest.mark.parametrize(
    ("scenario", "parameters", "depth"),
    [
        ("conservative", {}, 1000),
        ("easy", {"backfill.reservations": 3}, 1000),
        ("rua", {}, 1000),
        ("conservative", {"backfill.max_jobs": 7}, 7),
        ("conservative", {"backfill.max_jobs": None}, None),
        ("easy", {}, None),
        ("fcfs-pr", {}, None),
    ],
)
def test_depth_of_a_service(
    scenario: str, parameters: dict[str, int | None], depth: int | None
) -> None:
    config = ServeConfig((NodeConfig("n", 4),), scenario=scenario, parameters=parameters)
    assert config.composed().backfill.max_jobs == depth


def test_the_journal_holds_the_depth(tmp_path: Path) -> None:
    folder, passes = tmp_path / "service", PassConfig(longest_s=1e-9)
    desk = Desk(folder, scenario="conservative", passes=passes)
    desk.hello()
    desk.ask(b"a", m.Submit(submission=m.Submission(argv=["true"], processors=4, walltime_s=60.0)))
    for _ in range(LEAST_DEPTH + 5):
        desk.ask(b"a", m.Submit(submission=JOB))
    desk.ask(b"a", m.ChangeJobs.one(2, m.CancelJob()))  # the next pass examines all jobs
    desk.turn()
    core = desk.components.core
    assert core.depth_limit == LEAST_DEPTH
    assert core.reason_pending(LEAST_DEPTH + 1).rule != "NotExamined"
    assert core.reason_pending(LEAST_DEPTH + 5).rule == "NotExamined"
    desk.components.journal.close()

    desk = Desk(folder, scenario="conservative", passes=passes)
    assert desk.components.core.depth_limit == LEAST_DEPTH
    desk.components.journal.close()

    desk = Desk(folder, scenario="conservative", passes=PassConfig(longest_s=None))
    desk.driver.restore_alarms()
    desk.turn()
    assert desk.components.core.depth_limit is None
    assert desk.components.core.reason_pending(LEAST_DEPTH + 5).rule != "NotExamined"
    assert compare(desk.components.journal.batches()).difference is None
    desk.components.journal.close()
