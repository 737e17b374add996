"""A core that is restored from its record continues as if it had never been interrupted."""

from __future__ import annotations

import msgspec
import pytest
from core_life import SCENARIOS, AnyLife, noted
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from scheduler.core.core import Core
from scheduler.model.arrays import TaskArray, TaskOf
from scheduler.model.events import (
    Event,
    HoldChanged,
    JobCancelled,
    JobEnded,
    JobSpec,
    JobSubmitted,
    JobUpdated,
    NodeJoined,
)
from scheduler.model.job import COMPLETED, FINAL, PENDING, JobState
from scheduler.model.machine import Machine
from scheduler.model.orders import WakeAt
from scheduler.model.procset import ProcSet
from scheduler.model.requests import Conditions, Dependency, Kind, Term
from scheduler.model.resources import Amounts, Quantity
from scheduler.partition.eligibility import outcome
from scheduler.partition.partition import Partition
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import scenario
from scheduler.state.derived_jobs import task_to_come
from scheduler.state.records import decode_core, decode_job, encode_core, encode_job


def restored(core: Core, chosen: Scenario) -> Core:
    """Build a core from the encoded record of another one."""
    return Core.restored(
        decode_core(encode_core(core.record())),
        [decode_job(encode_job(job)) for job in core.jobs.values()],
        chosen,
        Machine(),
        kill_at_walltime=core.kill_at_walltime,
        order=core.order,
        report_error=noted,
    )


def amounts(partition: Partition, quantity: Quantity) -> dict[str, int]:
    """Amounts by name, without those of 0: a restored core forgets what only ended jobs named."""
    if not isinstance(quantity, Amounts):
        return {"processors": quantity}
    named = zip(["processors", *partition.machine.pools.names], quantity, strict=True)
    return {name: amount for name, amount in named if amount or name == "processors"}


def releases(partition: Partition) -> list[tuple[float, int, dict[str, int]]]:
    """Expected releases; those that are overdue count as due now."""
    expected = partition.state.releases
    return sorted(
        ((max(at, partition.now), job, amounts(partition, part)) for at, job, part in expected),
        key=lambda release: (release[0], release[1], release[2]["processors"]),
    )


class InterruptedLife(AnyLife):
    """Any life of a core, interrupted at any time by a recovery from its record."""

    @initialize(
        chosen=st.sampled_from(SCENARIOS),
        order=st.sampled_from(["batch", "batch", "sequential"]),
        kill=st.booleans(),
    )
    def begin(self, chosen: Scenario, order: str, kill: bool) -> None:
        self.chosen = chosen
        super().begin(chosen, order, kill)

    @rule()
    def recover(self) -> None:
        self.deliver()
        copy = restored(self.core, self.chosen)
        [before], [after] = self.core.partitions, copy.partitions
        assert list(after.live) == sorted(before.live, key=lambda n: (before.live[n].started_at, n))
        queues = [[job.id for job in each.queue] for each in (after, before)]
        if before.queue.ages:  # sorted again at the next pass
            queues = [sorted(queue) for queue in queues]
        assert queues[0] == queues[1]
        assert after.machine.free == before.machine.free
        assert after.machine.nodes == before.machine.nodes
        assert after.machine.processors == before.machine.processors
        assert after.machine.installed == before.machine.installed
        for quantity in ("free", "installed"):
            assert amounts(after, getattr(after.state, quantity)) == amounts(
                before, getattr(before.state, quantity)
            )
        assert releases(after) == releases(before)
        assert after.state.freeing == before.state.freeing
        assert after.state.depth == before.state.depth
        for number, job in before.jobs.items():
            assert encode_job(after.jobs[number]) == encode_job(job)
            if job.state not in FINAL and job.conditions is None:  # others get it when they enter
                assert amounts(after, after.jobs[number].demand) == amounts(before, job.demand)
        self.core, self.partitions = copy, copy.partitions


TestInterruptedLife = InterruptedLife.TestCase
TestInterruptedLife.settings = examples(150, stateful_step_count=40)


@pytest.mark.parametrize("recovers", [False, True])
@pytest.mark.parametrize("count", [2, 3])
def test_a_held_array_ends_with_its_tasks(count: int, recovers: bool) -> None:
    core = Core(scenario("easy"))
    core.handle([NodeJoined(0.0, "n1", 2)])
    core.handle([JobSubmitted(1.0, 1, JobSpec(1, 9.0, array=TaskArray.parse(f"1-{count}")))])
    core.handle([HoldChanged(2.0, 1, "user")])  # the first two tasks run
    if recovers:
        core = restored(core, core.scenario)
    core.handle([JobEnded(3.0, task, 0) for task in (2, 3)])
    [partition] = core.partitions
    array = core.jobs[1]
    if count == 3:  # the last task is held with its array
        assert (array.state, sorted(partition.queueing.eligibility.waiting)) == (PENDING, [1, 4])
        core.handle([HoldChanged(4.0, 1, "")])
        core.handle([JobEnded(5.0, 4, 0)])
    assert (array.state, list(partition.queueing.eligibility.waiting)) == (COMPLETED, [])


@pytest.mark.parametrize("recovers", [False, True])
def test_a_task_that_is_queued_again_brings_no_further_task(recovers: bool) -> None:
    core = Core(scenario("easy"))
    core.handle([NodeJoined(0.0, "n1", 2)])
    spec = JobSpec(1, 90.0, array=TaskArray.parse("1-6"), requeue=True)
    core.handle([JobSubmitted(1.0, 1, spec)])
    core.handle([JobEnded(2.0, 2)])
    assert [*core.jobs] == [1, 2, 3, 4, 5]  # two run, and one waits
    if recovers:
        core = restored(core, core.scenario)
    core.handle([JobEnded(3.0, 3, signal=9, died=True)])
    assert [*core.jobs] == [1, 2, 3, 4, 5]


#: What is done with tasks of an array, by their positions.
TASK_ACTIONS = st.tuples(
    st.sampled_from(["hold", "release", "cancel", "end", "update"]),
    st.sets(st.integers(0, 7), min_size=1, max_size=4),
)


def task_event(core: Core, at: float, action: str, places: set[int]) -> Event | None:
    """Event of array 1, or of one of its tasks if it runs or is updated."""
    tasks, first = ProcSet.of(places), min(places)
    if action in ("hold", "release"):
        return HoldChanged(at, 1, "user" if action == "hold" else "", tasks)
    if action == "cancel":
        return JobCancelled(at, 1, tasks=tasks)
    if action == "end":
        live = [number for number in core.live if number - 2 in places]
        return JobEnded(at, live[0]) if live else None
    array, number = core.jobs[1], first + 2
    known = core.jobs.get(number) or task_to_come(array, first)
    if known.state is not PENDING or first in array.to_come.cancelled:
        return None
    return JobUpdated(at, number, msgspec.structs.replace(known.spec, walltime_s=50.0))


@examples(300)
@given(
    actions=st.lists(TASK_ACTIONS, max_size=20),
    at_once=st.integers(0, 2),
    dependency=st.sampled_from(["afterany", "afterok", "afternotok", "after"]),
)
def test_tasks_that_have_not_come_are_where_they_belong_after_each_recovery(
    actions: list[tuple[str, set[int]]], at_once: int, dependency: Kind
) -> None:
    core = Core(scenario("easy"))
    core.handle([NodeJoined(0.0, "n1", 2)])
    tasks = msgspec.structs.replace(TaskArray.parse("0-7"), at_once=at_once)
    core.handle([JobSubmitted(1.0, 1, JobSpec(1, 90.0, array=tasks))])
    waits = Conditions(dependency=Dependency((Term(dependency, 8, None, TaskOf(1, 6)),)))
    core.handle([JobSubmitted(1.0, 20, JobSpec(1, 9.0, conditions=waits))])
    updated = 0
    for at, (action, places) in enumerate(actions, 2):
        event = task_event(core, float(at), action, places)
        if event is None:
            continue
        updated += isinstance(event, JobUpdated)
        copy = restored(core, core.scenario)
        orders = [core.handle([event]), copy.handle([event])]
        before, after = ([o for o in each if not isinstance(o, WakeAt)] for each in orders)
        assert before == after
        array, coming = core.jobs[1], core.jobs[1].to_come
        sets = [coming.ready, coming.held, coming.held_by_administrator, coming.cancelled]
        come = ProcSet.of(number - 2 for number in core.jobs if 2 <= number < 10)
        assert sum(map(len, sets)) + len(come) == 8
        assert len(ProcSet.union([*sets, come])) == 8
        assert len(come) == array.tasks_queued
        unended = [core.jobs[place + 2] for place in come]
        unended = [task for task in unended if task.state not in FINAL]
        assert core.tasks_of(array) == unended if array.state is PENDING else not unended
        assert (array.state in FINAL) == (not unended and not coming.left)
        if at_once and not updated:
            assert len(unended) <= at_once
        known = core.jobs.get(8)
        state = JobState.CANCELLED if 6 in coming.cancelled else known and known.state
        met = None if state is None else outcome(waits.dependency.terms[0], state)
        assert (core.jobs[20].conditions is None) == (met is True)
