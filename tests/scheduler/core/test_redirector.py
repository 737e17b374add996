"""A site of two groups under random events; its counts equal those of the paper's algorithm."""

from __future__ import annotations

from collections.abc import Sequence, Set

from core_life import NODES, AnyLife
from example_counts import examples
from hypothesis import strategies as st
from hypothesis.stateful import initialize

from scheduler.core.core import Core
from scheduler.model.events import (
    Event,
    JobSubmitted,
    NodeJoined,
)
from scheduler.model.job import Job, JobState
from scheduler.model.orders import Kill, Order, Requeue, Start
from scheduler.partition.passes import instant_order
from scheduler.policies.redirection import Redirection
from scheduler.policies.scenarios import scenario

RESERVED = {"n1": 1, "n2": 3, "n3": 0}
RULES = {
    "processors": lambda running, arriving: running.processors >= arriving.processors,
    "walltime": lambda running, arriving: arriving.walltime_s >= running.walltime_s,
    "none": lambda running, arriving: True,
}
LONGEST = {
    "longest-walltime": lambda job, count: job.spec.walltime_s,
    "most-counted": lambda job, count: count,
    "latest-start": lambda job, count: job.started_at,
    "fewest-processors": lambda job, count: -job.spec.processors,
}


class Algorithm2:
    """The paper's redirection, line by line, as a check on what a core did at one instant."""

    def __init__(self, rule: Redirection) -> None:
        self.rule = rule
        self.counter: dict[int, int] = {}

    def follow(self, core: Core, new: Sequence[Job], orders: Sequence[Order]) -> None:
        live = jobs_of(core)
        ended = [o.job for o in orders if isinstance(o, Kill) and o.reason.rule == "redirection"]
        started = {o.job for o in orders if isinstance(o, Start) and not o.restart}
        started &= live.keys()
        self.counter = {k: count for k, count in self.counter.items() if k in live}
        self.counter |= {k: 0 for k in started if live[k] not in new}
        for j in new:
            if self.counts(core, j, started):
                for k in self.counter:
                    if RULES[self.rule.filter](live[k].spec, j.spec):
                        self.counter[k] += 1
                leaving = {k for k in live if live[k].state is JobState.COMPLETING} - {*ended}
                chosen = [
                    k
                    for k, count in self.counter.items()
                    if count > self.rule.theta
                    and live[k].spec.processors <= core.partitions[1].machine.processors
                    and k not in leaving
                ]
                if chosen:
                    key = LONGEST[self.rule.conflict]
                    best = max(key(live[k], self.counter[k]) for k in chosen)
                    least = min(k for k in chosen if key(live[k], self.counter[k]) == best)
                    assert ended.pop(0) == least
                    self.counter = dict.fromkeys(self.counter, 0)
            if j.id in started:
                self.counter[j.id] = 0
        assert not ended, "redirected without cause"

    def counts(self, core: Core, job: Job, started: Set[int]) -> bool:
        """Whether the running jobs count an arrival."""
        queue = core.partitions[0].queue
        waiting = [(queued.queued_at, queued.id) for queued in queue]
        came = job.queued_at, job.id
        passed = job.id in started and min(waiting, default=came) < came
        return self.rule.counts == "submitted" or job.id in queue or passed


def jobs_of(core: Core) -> dict[int, Job]:
    """Live jobs of the principal group without steps, which do not count."""
    return {n: job for n, job in core.partitions[0].live.items() if job.spec.step_of is None}


class TwoGroups(AnyLife):
    """Any life of a core with a redirection group."""

    @initialize(
        base=st.sampled_from(["easy", "conservative", "fcfs-pr"]),
        second=st.sampled_from([None, "fcfs", "conservative"]),
        theta=st.integers(0, 2),
        conflict=st.sampled_from(sorted(LONGEST)),
        filter=st.sampled_from(sorted(RULES)),
        counts=st.sampled_from(["waiting", "submitted"]),
        order=st.sampled_from(["batch", "batch", "sequential"]),
        kill=st.booleans(),
    )
    def begin(self, base, second, theta, conflict, filter, counts, order, kill) -> None:
        rule = Redirection(theta, conflict=conflict, filter=filter, counts=counts, scenario=second)
        changes = {f"redirection.{name}": getattr(rule, name) for name in rule.__struct_fields__}
        self.core = Core(scenario(base, changes), kill_at_walltime=kill, order=order)
        self.start(self.core.partitions)
        self.core.handle([NodeJoined(0.0, "n1", 4, shares={"redirection": 2})])
        self.twin = Algorithm2(rule)
        self.moved: set[int] = set()

    def joined(self, node: str) -> NodeJoined:
        return NodeJoined(self.time, node, NODES[node], shares={"redirection": RESERVED[node]})

    def check_answers(self, events: list[Event], orders: list[Order]) -> None:
        super().check_answers(events, orders)
        numbers = dict.fromkeys(
            event.job
            for event in sorted(events, key=instant_order)
            if isinstance(event, JobSubmitted) and event.spec.step_of is None
        )
        self.twin.follow(self.core, [self.core.jobs[number] for number in numbers], orders)
        (redirector,) = self.core.redirectors
        counters = redirector.counters
        assert counters is not None
        assert {job: counters.counts[job] for job in jobs_of(self.core)} == self.twin.counter
        again = [
            order.job
            for order in orders
            if isinstance(order, Requeue) and order.reason.rule != "requeue"  # not for its death
        ]
        assert not self.moved & {*again}, "redirected twice"
        self.moved |= {*again}
        for job in self.core.jobs.values():
            assert (job.redirected_at is not None) == (job.id in self.moved)
            if job.spec.step_of is not None:  # it is, or was, where its job is when it is requested
                continue
            group = self.core.partitions[job.id in self.moved]
            assert job.groups == {} or job.id in group.live


TestTwoGroups = TwoGroups.TestCase
TestTwoGroups.settings = examples(200, stateful_step_count=40)
