"""Predictions of run times: learning and corrections."""

from __future__ import annotations

import pytest

from scheduler.core.core import Core
from scheduler.model.events import JobEnded, JobSpec, JobSubmitted, Wakeup
from scheduler.model.machine import Machine
from scheduler.model.orders import WakeAt
from scheduler.policies.queue_orders.basic import Lxwf
from scheduler.policies.scenarios import scenario
from scheduler.predictions.estimates import Tsafrir
from scheduler.predictions.history import Statistical


def core_of(processors: int = 4) -> Core:
    return Core(scenario("easy++"), Machine([("n", processors)]), kill_at_walltime=False)


def submit(core: Core, at: float, job: int, user: str, walltime_s: float = 1000.0) -> float:
    core.handle([JobSubmitted(at, job, JobSpec(1, walltime_s, user=user))])
    return core.jobs[job].estimate_s


def test_the_prediction_is_the_mean_of_the_last_two_jobs_of_the_user() -> None:
    core = core_of()
    assert submit(core, 0, 1, "ann") == submit(core, 0, 2, "ann") == 1000
    core.handle([JobEnded(10, 1)])
    assert submit(core, 10, 3, "ann") == 1000, "one run is not enough"
    core.handle([JobEnded(21, 2)])
    assert submit(core, 21, 4, "ann") == 15, "(10 + 21) / 2, whole seconds"
    assert submit(core, 22, 5, "bob") == 1000
    core.handle([JobEnded(40, 3)])
    assert submit(core, 40, 6, "ann") == 25, "(21 + 30) / 2: the first is forgotten"
    assert submit(core, 40, 7, "ann", walltime_s=20) == 20, "never above the walltime"
    assert core.jobs[4].estimate_s == 15, "fixed at submission"


def test_an_exceeded_prediction_is_corrected() -> None:
    core = core_of()
    for job in (1, 2):
        submit(core, 0, job, "ann")
    core.handle([JobEnded(10, 1), JobEnded(10, 2)])
    orders = core.handle([JobSubmitted(100, 3, JobSpec(1, 500.0, user="ann"))])
    assert orders[-1] == WakeAt(110.0)
    for at, estimate in ((110, 70), (170, 310), (410, 500)):
        (order,) = core.handle([Wakeup(at)])
        assert core.jobs[3].estimate_s == estimate
        assert order == WakeAt(100.0 + estimate)
    assert core.jobs[3].misses == 3
    assert core.handle([Wakeup(600)]) == [], "jobs may exceed their walltimes here"


def test_parameters_out_of_range_are_refused() -> None:
    for number in (0, 2**70):
        with pytest.raises(ValueError, match=f"window must be >= 1 and <= 1e9, got {number}"):
            Tsafrir(window=number)
    with pytest.raises(ValueError, match=f"window must be <= 1e9, got {2**70}"):
        Statistical(window=2**70)
    with pytest.raises(ValueError, match="corrections must ascend from above 0"):
        Tsafrir(corrections=(60, 60))
    with pytest.raises(ValueError, match="weight_per_hour must be >= 0 and finite, got -1"):
        Lxwf(-1)
