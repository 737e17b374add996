"""Learned demands: simulated jobs of known demands, with neighbours that come and go."""

from __future__ import annotations

import random

import pytest

from scheduler.core.core import Core
from scheduler.model.events import JobEnded, JobSpec, JobStarted, JobSubmitted, ResizePoint
from scheduler.model.job import Job
from scheduler.model.machine import Machine
from scheduler.model.orders import Start
from scheduler.model.procset import ProcSet
from scheduler.model.sharing import PenaltyRule, SharedCapacity
from scheduler.policies.scenario import Scenario
from scheduler.policies.selection.on_table import LessConsume, OnTable

NAME = "bandwidth"


class Simulated:
    """Jobs that iterate on nodes of four processors and a capacity of 100.

    Parameters
    ----------
    demands : true demand of a process, by name of the job.
    noise : of iteration times, relative.
    selection : first fit, which does not separate neighbours, or another one.
    """

    def __init__(
        self,
        demands: dict[str, float],
        penalty: PenaltyRule = "excess",
        noise: float = 0.0,
        selection: OnTable | None = None,
    ) -> None:
        self.capacity = SharedCapacity(4, {NAME: 100}, penalty)
        self.scenario = Scenario("learns", selection=selection or OnTable(learn_demands=True))
        self.core = Core(self.scenario, Machine([("a", 4), ("b", 4)], shared=self.capacity))
        self.demands, self.noise = demands, noise
        self.dice, self.now, self.last = random.Random(1), 0.0, 0

    def submit(self, name: str, processors: int, declared: int = 0) -> ProcSet | None:
        """Submit a job; return the processors on which it starts at once."""
        self.now += 1
        self.last += 1
        shared = {NAME: declared} if declared else {}
        spec = JobSpec(processors, 1e6, name=name, shared=shared)
        orders = self.core.handle([JobSubmitted(self.now, self.last, spec)])
        for order in orders:
            if type(order) is Start:
                self.core.handle([JobStarted(self.now, order.job)])
                return order.processors
        return None

    def begin(self, name: str) -> None:
        """Start job 3 of two processes on node a, while job 2, of no demand, fills node b."""
        self.demands["filler"] = 0
        self.submit("filler", 4)
        self.submit("filler", 4)
        self.end(1)
        assert self.submit(name, 2) == ProcSet.span(0, 2)

    def end(self, job: int) -> None:
        self.now += 1
        self.core.handle([JobEnded(self.now, job)])

    def iterate(self, times: int = 6) -> None:
        """Let all jobs iterate, each as long as its worst node makes it."""
        for _ in range(times):
            for job in list(self.core.live.values()):
                self.now += 1
                seconds = 1 + max(self.capacity.penalty((self.on(n),)) for n in self.nodes(job))
                seconds *= 1 + self.noise * self.dice.uniform(-1, 1)
                self.core.handle([ResizePoint(self.now, job.id, 1, seconds)])

    def nodes(self, job: Job) -> set[int]:
        return {p // 4 for held in job.groups.values() for p in held}

    def on(self, node: int) -> float:
        """True demand on a node."""
        return sum(
            self.demands[job.spec.name] * sum(p // 4 == node for p in held)
            for job in self.core.live.values()
            for held in job.groups.values()
        )

    def learned(self, job: int) -> float | None:
        demands = self.core.partitions[0].state.demands
        assert demands is not None
        return demands.learned(self.core.jobs[job])


@pytest.mark.parametrize("penalty", ["excess", "ratio"])
@pytest.mark.parametrize("demand", [15, 25, 40, 60])
def test_the_learned_demand_converges(demand: int, penalty: PenaltyRule) -> None:
    """Neighbours of declared demands, 90 or 40 in all, come and go; times have noise of 0.5 %."""
    jobs = Simulated({"unknown": demand, "heavy": 45, "light": 20}, penalty, noise=0.005)
    jobs.begin("unknown")
    jobs.iterate()
    assert jobs.learned(3) is None, "one situation tells nothing"
    for name, declared in (("heavy", 45), ("light", 20)) * 2:
        assert jobs.submit(name, 2, declared=declared) == ProcSet.span(2, 2)
        jobs.iterate()
        jobs.end(jobs.last)
        jobs.iterate()
    assert jobs.learned(3) == pytest.approx(demand, abs=2)


def test_a_job_that_overloads_its_node_alone_is_taken_for_one_that_does_not() -> None:
    """(120 + 90) / 120 and (85 + 90) / 100 are equal: one neighbour does not tell them apart."""
    jobs = Simulated({"unknown": 60, "heavy": 45})
    jobs.begin("unknown")
    jobs.iterate()
    jobs.submit("heavy", 2, declared=45)
    jobs.iterate()
    assert jobs.learned(3) == pytest.approx(42.5, abs=1)


def test_two_jobs_that_declare_nothing_learn_from_one_another() -> None:
    jobs = Simulated({"first": 35, "second": 35})
    jobs.begin("first")
    jobs.iterate()
    for _ in range(2):
        jobs.submit("second", 2)
        jobs.iterate()
        second = jobs.last
        learned = jobs.learned(second)
        jobs.end(second)
        jobs.iterate()
    assert jobs.learned(3) == pytest.approx(35, abs=2)
    assert learned is None, "it never ran with other neighbours"


def test_a_job_without_demand_is_found_to_have_none() -> None:
    jobs = Simulated({"idle": 0, "known": 48})
    jobs.begin("idle")
    jobs.iterate()
    jobs.submit("known", 2, declared=48)
    jobs.iterate()
    assert jobs.learned(3) == 0


def test_times_that_sharing_does_not_explain_teach_nothing() -> None:
    """The job is slower when its neighbour, which demands 10, is gone."""
    jobs = Simulated({"odd": 0, "known": 10})
    jobs.begin("odd")
    for i in range(4):
        if i % 2:
            jobs.submit("known", 2, declared=10)
        for _ in range(5):
            jobs.now += 1
            jobs.core.handle([ResizePoint(jobs.now, 3, 1, 1.0 if i % 2 else 2.0)])
        if i % 2:
            jobs.end(jobs.last)
    assert jobs.learned(3) is None


def test_what_was_learned_places_the_next_job_and_survives_recovery() -> None:
    jobs = Simulated({"unknown": 45, "known": 45}, selection=LessConsume(learn_demands=True))
    jobs.begin("unknown")
    jobs.iterate()
    jobs.submit("known", 2, declared=45)
    jobs.iterate()
    assert jobs.learned(3) == pytest.approx(45, abs=1)
    jobs.end(2)  # node b is free
    jobs.end(4)
    before, record = jobs.core, jobs.core.record()
    assert jobs.submit("known", 1, declared=20) == ProcSet.of([4]), "not beside job 3"
    jobs.end(jobs.last)
    live = [job.copy() for job in before.live.values()]
    empty = before.partitions[0].machine.emptied()
    jobs.core = Core.restored(record, live, jobs.scenario, empty)
    assert jobs.submit("known", 1, declared=20) == ProcSet.of([4])
    assert jobs.submit("unknown", 1) == ProcSet.of([5]), "55 of node b are left"


def test_nothing_is_learned_unless_the_scenario_says_so() -> None:
    core = Core(
        Scenario("t", selection=LessConsume()),
        Machine([("a", 4)], shared=SharedCapacity(4, {NAME: 100})),
    )
    assert core.partitions[0].state.demands is None
