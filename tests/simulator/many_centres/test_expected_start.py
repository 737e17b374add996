"""The expected start of a job, against what then happens."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.clock.agenda import Agenda
from scheduler.clock.loop import EventLoop
from scheduler.core.core import Core
from scheduler.model.events import JobEnded, JobSpec, JobSubmitted
from scheduler.model.machine import Machine
from scheduler.model.orders import Start
from scheduler.policies.scenarios import scenario
from simulator.engine.rigid_jobs import RigidJobs
from simulator.many_centres.expected_start import expected_start, expected_start_of

PROCESSORS = 8
JOBS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, PROCESSORS), st.integers(1, 30)), max_size=12
)
SCENARIOS = {
    "fcfs": scenario("fcfs"),
    "easy": scenario("easy"),
    "sjbf": scenario("easy", {"backfill_order": "sjf"}),
    "sjf": scenario("easy", {"order": "sjf"}),
    "lxwf": scenario("easy", {"order": "lxwf"}),
}


class AskLast:
    """A core that is asked for the start of the last job just before it is submitted."""

    def __init__(self, core: Core, last: int) -> None:
        self.core, self.machine, self.last = core, core.machine, last
        self.partition = core.partitions[0]
        self.jobs, self.live, self.now = core.jobs, core.live, 0.0
        self.expected = inf
        self.expected_when_queued = inf

    def handle(self, events):
        other = [event for event in events if getattr(event, "job", 0) != self.last]
        orders = self.core.handle(other) if other else []
        for event in events:
            if isinstance(event, JobSubmitted) and event.job == self.last:
                self.expected = expected_start(self.partition, event.at, event.spec)
                orders = [*orders, *self.core.handle([event])]
                if self.last in self.partition.queue:
                    self.expected_when_queued = expected_start_of(
                        self.partition, event.at, self.last
                    )
            elif event not in other:
                orders = [*orders, *self.core.handle([event])]
        return orders


@pytest.mark.parametrize("name", SCENARIOS)
@given(JOBS, st.integers(1, PROCESSORS), st.integers(1, 30))
def test_with_exact_estimates_and_no_later_arrival_the_job_starts_as_expected(
    name: str, jobs: list[tuple[int, int, int]], processors: int, run_s: int
) -> None:
    jobs = [*sorted(jobs), (21, processors, run_s)]
    core = Core(
        SCENARIOS[name],
        Machine([("machine", PROCESSORS)], counted=True),
        kill_at_walltime=False,
        keep_ended=False,
    )
    site, agenda = AskLast(core, len(jobs)), Agenda()
    specs = [JobSpec(size, float(time)) for _, size, time in jobs]
    physics = RigidJobs(agenda, [float(time) for _, _, time in jobs])
    loop = EventLoop(site, [float(at) for at, _, _ in jobs], specs, agenda, physics)
    loop.run()
    assert site.expected == loop.started[-1]
    if site.expected > 21:
        assert site.expected_when_queued == loop.started[-1]


def submitted(core: Core, job: int, processors: int, walltime_s: float) -> list[int]:
    orders = core.handle([JobSubmitted(0.0, job, JobSpec(processors, walltime_s))])
    return [order.job for order in orders if isinstance(order, Start)]


def core_with_queue(name: str) -> Core:
    """Figure 8.5 of GUIM: job 1 runs, jobs 2, 3 and 4 are queued."""
    core = Core(SCENARIOS[name], Machine([("machine", 4)], counted=True), kill_at_walltime=False)
    assert submitted(core, 1, 3, 10.0) == [1]
    assert submitted(core, 2, 4, 10.0) == []
    assert submitted(core, 3, 4, 10.0) == []
    assert submitted(core, 4, 4, 10.0) == []
    return core


def test_a_job_is_expected_behind_the_queue_under_fcfs() -> None:
    assert expected_start(core_with_queue("fcfs").partitions[0], 1.0, JobSpec(1, 5.0)) == 40.0


def test_a_short_job_is_expected_at_once_under_backfilling() -> None:
    assert expected_start(core_with_queue("easy").partitions[0], 1.0, JobSpec(1, 5.0)) == 1.0


def test_an_expectation_changes_nothing_and_ends_at_its_limit() -> None:
    core = core_with_queue("fcfs")
    assert expected_start(core.partitions[0], 1.0, JobSpec(1, 5.0), latest=39.0) == inf
    assert list(core.partitions[0].queue.jobs) == [2, 3, 4]
    assert core.handle([JobEnded(10.0, 1)])[0].job == 2


def test_an_overdue_job_is_expected_to_end_now() -> None:
    core = core_with_queue("fcfs")
    assert expected_start_of(core.partitions[0], 15.0, 2) == 15.0
    assert expected_start_of(core.partitions[0], 15.0, 3) == 25.0


def test_a_job_larger_than_the_machine_never_starts() -> None:
    assert expected_start(core_with_queue("easy").partitions[0], 1.0, JobSpec(5, 1.0)) == inf


def test_a_core_that_predicts_expects_the_job_to_run_as_long_as_predicted() -> None:
    core = Core(
        scenario("easy", {"estimates": "tsafrir"}),
        Machine([("machine", 4)], counted=True),
        kill_at_walltime=False,
    )
    spec = JobSpec(3, 100.0, user="u")
    core.handle([JobSubmitted(0.0, 1, spec), JobSubmitted(0.0, 2, JobSpec(1, 100.0, user="u"))])
    core.handle([JobEnded(10.0, 1), JobEnded(10.0, 2)])
    core.handle([JobSubmitted(20.0, 3, spec)])  # expected to end at 30
    core.handle([JobSubmitted(20.0, 4, JobSpec(4, 100.0, user="u"))])
    assert expected_start(core.partitions[0], 20.0, JobSpec(1, 100.0, user="u")) == 20.0
    assert expected_start(core.partitions[0], 20.0, JobSpec(1, 100.0, user="other")) == 40.0
    assert expected_start_of(core.partitions[0], 20.0, 4) == 30.0
