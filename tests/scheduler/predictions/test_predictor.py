"""Predictors in the core: when it calls them, and predictions beyond the walltime."""

from __future__ import annotations

import msgspec

from scheduler.core.core import Core
from scheduler.model.events import JobEnded, JobSpec, JobSubmitted, Wakeup
from scheduler.model.job import Job, JobState
from scheduler.model.machine import Machine
from scheduler.model.orders import Kill, WakeAt
from scheduler.policies.scenario import Scenario
from scheduler.predictions.predictor import Predictor

calls: list[tuple[str, int]] = []


class Fixed(msgspec.Struct, frozen=True):
    """Source of a predictor that predicts a fixed run time."""

    run_s: float = 150.0

    def predictor(self) -> Predictor:
        return FixedPredictor(self.run_s)


class FixedPredictor(Predictor):
    def __init__(self, run_s: float) -> None:
        self._run_s = run_s

    def ended(self, job: Job) -> None:
        calls.append(("ended", job.id))

    def predict(self, job: Job) -> float:
        calls.append(("predict", job.id))
        return self._run_s

    def missed(self, job: Job) -> float:
        calls.append(("missed", job.id))
        return super().missed(job)


def core_of(run_s: float, kill: bool) -> Core:
    calls.clear()
    scenario = Scenario("mine", estimates=Fixed(run_s))
    return Core(scenario, Machine([("n", 4)]), kill_at_walltime=kill)


def test_the_core_calls_the_predictor_at_each_event_of_a_job() -> None:
    core = core_of(10.0, kill=False)
    core.handle([JobSubmitted(0, 1, JobSpec(4, 100.0))])
    core.handle([Wakeup(10)])
    core.handle([JobEnded(50, 1)])
    names = ["predict", "missed", "ended"]
    assert calls == [(name, 1) for name in names]


def test_a_prediction_beyond_the_walltime_is_extended_and_ends_no_job() -> None:
    core = core_of(150.0, kill=False)
    orders = core.handle([JobSubmitted(0, 1, JobSpec(4, 100.0))])
    assert orders[-1] == WakeAt(150.0)
    assert core.jobs[1].estimate_s == core.jobs[1].first_estimate_s == 150
    assert core.handle([Wakeup(150)]) == [WakeAt(210.0)]
    assert core.handle([Wakeup(210)]) == [WakeAt(510.0)], "210 + 300 s, the second step"
    assert core.jobs[1].misses == 2


def test_a_job_is_ended_at_its_walltime_whatever_was_predicted() -> None:
    core = core_of(150.0, kill=True)
    orders = core.handle([JobSubmitted(0, 1, JobSpec(4, 100.0))])
    assert orders[-1] == WakeAt(100.0)
    assert core.jobs[1].estimate_s == 100, "no job runs longer than its walltime here"
    assert core.jobs[1].first_estimate_s == 150
    (kill,) = core.handle([Wakeup(100)])
    assert isinstance(kill, Kill)
    core.handle([JobEnded(101, 1)])
    assert core.jobs[1].state is JobState.TIMEOUT


def test_a_short_prediction_is_extended_before_the_walltime_ends_the_job() -> None:
    core = core_of(10.0, kill=True)
    core.handle([JobSubmitted(0, 1, JobSpec(4, 100.0))])
    assert core.handle([Wakeup(10)]) == [WakeAt(70.0)]
    assert core.handle([Wakeup(70)]) == [WakeAt(100.0)], "70 + 300 s exceeds the walltime"
    assert isinstance(core.handle([Wakeup(100)])[0], Kill)
