"""A core that is restored from its record continues as if it had never been interrupted."""

from __future__ import annotations

import pytest
from core_life import SCENARIOS, AnyLife, noted
from example_counts import examples
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from scheduler.core.core import Core
from scheduler.model.events import HoldChanged, JobEnded, JobSpec, JobSubmitted, NodeJoined
from scheduler.model.job import COMPLETED, FINAL, PENDING
from scheduler.model.machine import Machine
from scheduler.model.requests.task_array import TaskArray
from scheduler.model.resources import Amounts, Quantity
from scheduler.partition.partition import Partition
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import scenario
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
        on_policy_error=noted,
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
        assert (array.state, sorted(partition.waiting)) == (PENDING, [1, 4])
        core.handle([HoldChanged(4.0, 1, "")])
        core.handle([JobEnded(5.0, 4, 0)])
    assert (array.state, list(partition.waiting)) == (COMPLETED, [])
