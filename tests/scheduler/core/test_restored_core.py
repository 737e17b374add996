"""A core that is restored from its record continues as if it had never been interrupted."""

from __future__ import annotations

from core_life import SCENARIOS, AnyLife
from example_counts import examples
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule

from scheduler.core.core import Core
from scheduler.model.job import FINAL
from scheduler.model.machine import Machine
from scheduler.model.resources import Amounts, Quantity
from scheduler.policies.scenario import Scenario
from scheduler.state.records import SiteRecord, decode_job, decode_site, encode_job, encode_site


def restored(core: Core, scenario: Scenario) -> Core:
    """Build a core from the encoded record of another one."""
    copy = Core(scenario, Machine(), kill_at_walltime=core.kill_at_walltime, order=core.order)
    record = decode_site(encode_site(SiteRecord(core.now, core.record())))
    jobs = [decode_job(encode_job(job)) for job in core.jobs.values()]
    copy.restore(record.now, record.principal, jobs)
    return copy


def amounts(core: Core, quantity: Quantity) -> dict[str, int]:
    """Amounts by name, without those of 0: a restored core forgets what only ended jobs named."""
    if not isinstance(quantity, Amounts):
        return {"processors": quantity}
    named = zip(["processors", *core.machine.pools.names], quantity, strict=True)
    return {name: amount for name, amount in named if amount or name == "processors"}


def releases(core: Core) -> list[tuple[float, int, dict[str, int]]]:
    """Expected releases; those that are overdue count as due now."""
    expected = core.state.releases
    return sorted(
        ((max(at, core.now), job, amounts(core, part)) for at, job, part in expected),
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
        before, after = self.core, restored(self.core, self.chosen)
        assert list(after.live) == sorted(before.live, key=lambda n: (before.live[n].started_at, n))
        queues = [[job.id for job in core.queue] for core in (after, before)]
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
            if job.state not in FINAL:
                assert amounts(after, after.jobs[number].demand) == amounts(before, job.demand)
        self.core, self.cores = after, [after]


TestInterruptedLife = InterruptedLife.TestCase
TestInterruptedLife.settings = examples(150, stateful_step_count=40)
