"""Random events for a core, also failures, repetitions and impossible ones, and its invariants."""

from __future__ import annotations

import random
from collections import Counter
from math import inf

import msgspec
import pytest
from fixed_estimates import Constant
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from reshape.topology import Topology
from scheduler.core.core import Core
from scheduler.model.arrays import StepOf, TaskArray
from scheduler.model.events import (
    ClockSet,
    DepthChanged,
    DrainChanged,
    Event,
    HoldChanged,
    JobCancelled,
    JobEnded,
    JobRequeued,
    JobSpec,
    JobStarted,
    JobSubmitted,
    JobUpdated,
    NodeJoined,
    NodeLost,
    NodeRemoved,
    ReservationCancelled,
    ReservationRequested,
    ResizeDone,
    ResizeFailed,
    ResizePoint,
    SilenceChanged,
    Wakeup,
)
from scheduler.model.job import FINAL, TRANSITIONS, Job, JobState
from scheduler.model.machine import Machine
from scheduler.model.orders import Continue, Contract, Expand, Order, Reason, Start
from scheduler.model.procset import ProcSet
from scheduler.model.requests import Conditions, Dependency
from scheduler.model.resources import Quantity
from scheduler.partition.partition import Partition
from scheduler.partition.queueing import LEAST_S
from scheduler.policies.backfill.backfill import Backfill
from scheduler.policies.backfill.own_pass import CurrentPass
from scheduler.policies.queue_orders.aging import Aging
from scheduler.policies.resizing.interface import Decision, Grow, Shrink, Stay
from scheduler.policies.resizing.malleable import Malleable
from scheduler.policies.resizing.prio_scenarios import PbaPr
from scheduler.policies.scenario import QueueRules, Scenario
from scheduler.policies.scenarios import scenario
from scheduler.policies.selection.basic import Contiguous, FewNodes
from scheduler.state.derived_jobs import lent_group
from scheduler.state.view import View

NODES = {"n1": 4, "n2": 3, "n3": 5}
MEMORY = {"n2": {"memory": 6}, "n3": {"memory": 4, "disk": 1}}


class ChaoticPass(msgspec.Struct, frozen=True):
    """Starts any jobs and reserves for any, in any order; the same at the same time."""

    seed: int = 0

    def schedule(self, current: CurrentPass) -> None:
        dice = random.Random(f"{self.seed} {current.now}")
        jobs = list(current.queue)
        dice.shuffle(jobs)
        for job in jobs:
            choice = dice.randrange(4)
            size = dice.choice([job.starts_on(n) for n in range(1, 7)])
            if choice == 0:
                at = current.earliest(job)
                assert current.now <= at == current.reserve(job)
            elif choice < 3 and not current.start(job, size=size) and dice.random() < 0.5:
                current.reserve(job)


#: Nothing, a hold, a begin time, or a dependency on one of the first jobs.
CONDITIONS = st.one_of(
    st.none(),
    st.none(),
    st.just(Conditions("user")),
    st.builds(Conditions, begin=st.sampled_from([1.0, 5.0, 20.0])),
    st.builds(
        Conditions,
        dependency=st.sampled_from(
            ["after:1", "afterany:1,afterok:2", "afterok:1?afternotok:3", "singleton", "after:2:3"]
        ).map(Dependency.parse),
        kill_on_invalid=st.booleans(),
    ),
)


class Chaos(msgspec.Struct, frozen=True):
    """Decides anything, possible or not; the same for the same history."""

    seed: int = 0

    def decide(self, job: Job, view: View) -> Decision:
        dice = random.Random(f"{self.seed} {job.id} {job.history.points}")
        reason = Reason("chaos")
        to = dice.randint(-1, 9)
        groups = tuple(dice.sample([*job.groups, 99], dice.randint(0, len(job.groups))))
        return dice.choice(
            [
                Grow(to, reason),
                Grow(min(job.size + 1, 8), reason),
                Shrink(to, reason, groups or None),
                Shrink(dice.choice(job.history.visits), reason),
                Shrink(job.size - len(job.groups[min(job.groups)]), reason, (min(job.groups),)),
                Stay(reason, sweet_spot=to),
            ]
        )


def noted(kind: str, policy: object, method: str, error: BaseException) -> str:
    """Sentence on a failure of a policy, which a core contains."""
    return str(error)


OTHER = QueueRules(Aging(), Chaos())
SCENARIOS = [
    Scenario("chaos", resizing=Chaos()),
    scenario("conservative", {"resizing": "fcfs-pr"}),
    scenario("easy"),
    scenario("easy", {"backfill.pick": "bb", "backfill.max_jobs": 2}),
    scenario("conservative", {"backfill.max_jobs": 3, "order": "sjf"}),
    scenario("conservative", {"backfill.pick": "bl"}),
    scenario("fcfs", {"resizing": "fcfs-pr", "resizing.higher": "queued"}),
    scenario("fcfs-pr"),
    scenario("max-b-pr", {"backfill.adaptive_start": 0.3}),
    scenario("easy", {"selection": "contiguous"}),
    scenario("fcfs-pr", {"selection": "contiguous"}),
    scenario("fcfs-pr", {"selection": "few-nodes"}),
    Scenario("chaos", resizing=Chaos(), selection=FewNodes()),
    scenario("steady"),
    scenario("malleable"),
    Scenario("malleable by queue", order=Aging(), resizing=Malleable(), queues={"main": OTHER}),
    scenario("malleable", {"order": "fcfs", "selection": "few-nodes", "resizing.slack": 1}),
    scenario("pba-pr"),
    scenario("pba", {"resizing.harvest": "useful", "order": "aging"}),
    scenario("max-b-pr", {"order.qfactor_weight": 0}),
    scenario("fcfs-pr", {"backfill.reservations": 2, "resizing.remap_window_size": 1}),
    scenario("easy++"),
    scenario("fcfs-pr", {"estimates": "iterations", "estimates.fallback": "statistical"}),
    Scenario(
        "expiring", backfill=Backfill(reservations=None), estimates=Constant(3), resizing=PbaPr()
    ),
    Scenario("own pass", scheduling=ChaoticPass(), resizing=Chaos()),
    Scenario("own pass by place", scheduling=ChaoticPass(1), selection=Contiguous()),
    Scenario("own pass, few jobs", scheduling=ChaoticPass(2), backfill=Backfill(max_jobs=2)),
]


class AnyLife(RuleBasedStateMachine):
    """Drives a partition by events that may come, and by some that should not."""

    @initialize(
        chosen=st.sampled_from(SCENARIOS),
        order=st.sampled_from(["batch", "batch", "sequential"]),
        kill=st.booleans(),
    )
    def begin(self, chosen: Scenario, order: str, kill: bool) -> None:
        self.core = Core(
            chosen,
            Machine([("n1", 4)]),
            kill_at_walltime=kill,
            order=order,
            report_error=noted,
        )
        self.start(self.core.partitions)

    def start(self, partitions: list[Partition]) -> None:
        self.partitions = partitions
        self.time = 0.0
        self.submitted: set[int] = set()
        self.last = 0  # number of a job or a task
        self.before: dict[int, JobState] = {}
        self.waiting: list[Event] = []

    @rule(seconds=st.sampled_from([0.25, 1.0, 3.0, 10.0]))
    def time_passes(self, seconds: float) -> None:
        self.deliver()
        self.time += seconds

    @rule(
        processors=st.integers(1, 6),
        walltime_s=st.sampled_from([1.0, 5.0, 20.0, 100.0]),
        more=st.sampled_from([0, 0, 1, 4]),
        fewer=st.sampled_from([0, 0, 1, 4]),
        topology=st.sampled_from([None, Topology(), Topology("nearly-square")]),
        resources=st.sampled_from([{}, {}, {"memory": 3}, {"memory": 6, "disk": 1}]),
        requeue=st.booleans(),
        reservation=st.sampled_from(["", "", "", "r", "s"]),
        conditions=CONDITIONS,
        array=st.sampled_from(["", "", "", "", "0-5", "0-3%1", "2,4-6:2%2"]),
    )
    def submit(
        self,
        processors: int,
        walltime_s: float,
        more: int,
        fewer: int,
        topology: Topology | None,
        resources: dict[str, int],
        requeue: bool,
        reservation: str,
        conditions: Conditions | None,
        array: str,
    ) -> None:
        tasks = TaskArray.parse(array) if array else None
        job, self.last = self.last + 1, self.last + 1 + (0 if tasks is None else tasks.count)
        self.submitted.add(job)
        most = processors + more
        spec = JobSpec(
            processors,
            walltime_s,
            most,
            topology,
            resources=resources,
            requeue=requeue,
            reservation=reservation,
            conditions=conditions,
            array=tasks,
            min_processors=max(1, processors - fewer) if fewer else None,
        )
        self.waiting.append(JobSubmitted(self.time, job, spec))

    @rule(data=st.data(), processors=st.integers(1, 4), more=st.sampled_from([0, 0, 1, 3]))
    def start_steps(self, data: st.DataObject, processors: int, more: int) -> None:
        """A script requests steps; now and then its job has ended, or there is none."""
        if not self.core.live:
            self.last += 1
            self.submitted.add(self.last)
            self.waiting.append(JobSubmitted(self.time, self.last, JobSpec(processors, 20.0)))
        self.deliver()
        rigid = [n for n, job in self.core.live.items() if not job.spec.resizable]
        job = data.draw(st.sampled_from([*rigid, *rigid, *rigid, 0]), label="job")
        partition = self.core.jobs[job].partition if job in self.core.jobs else ""
        for index in range(data.draw(st.integers(1, 3), label="steps")):
            self.last += 1
            self.submitted.add(self.last)
            spec = JobSpec(
                processors,
                100.0,
                processors + more,
                partition=partition,
                step_of=StepOf(job, index),
            )
            self.waiting.append(JobSubmitted(self.time, self.last, spec))
        self.deliver()

    @rule(
        data=st.data(),
        what=st.sampled_from(["hold", "release", "requeue", "update"]),
        processors=st.integers(1, 6),
        walltime_s=st.sampled_from([1.0, 5.0, 100.0]),
        conditions=CONDITIONS,
    )
    def change(
        self,
        data: st.DataObject,
        what: str,
        processors: int,
        walltime_s: float,
        conditions: Conditions | None,
    ) -> None:
        """A user changes a job, or an administrator does."""
        self.deliver()
        number = data.draw(st.integers(0, self.last + 1), label="job")
        job = self.core.jobs.get(number)
        if what == "requeue":
            self.waiting.append(JobRequeued(self.time, number))
        elif what != "update":
            self.waiting.append(HoldChanged(self.time, number, "user" if what == "hold" else ""))
        elif job is not None and not job.tasks_queued:
            spec = msgspec.structs.replace(job.spec, walltime_s=walltime_s)
            if job.state is JobState.PENDING:
                resizable = job.spec.resizable
                spec = msgspec.structs.replace(
                    spec,
                    processors=processors,
                    max_processors=processors + 2 if resizable else None,
                    min_processors=max(1, processors - 2) if resizable else None,
                    conditions=conditions,
                )
            self.waiting.append(JobUpdated(self.time, number, spec))
        self.deliver()

    @rule(data=st.data(), several=st.booleans())
    def ordinary_life(self, data: st.DataObject, several: bool) -> None:
        """Live jobs go one step on as their state suggests."""
        self.step(data, several=several)

    def step(self, data: st.DataObject, *, several: bool) -> None:
        if self.core.live:
            first = data.draw(st.sampled_from(sorted(self.core.live)), label="job")
            for job in sorted(self.core.live) if several else [first]:
                self.waiting.append(self.next_step(self.core.jobs[job], data))
            self.time += 0.5
            self.deliver()

    @rule(data=st.data())
    def more_of_it(self, data: st.DataObject) -> None:
        """Weigh that rule more than the others."""
        for _ in range(3):
            self.step(data, several=True)

    def next_step(self, job: Job, data: st.DataObject) -> Event:
        if job.state is JobState.COMPLETING:
            return JobEnded(self.time, job.id, signal=15, died=True)
        if job.state is JobState.STARTING:
            return JobStarted(self.time, job.id)
        steps: list[Event] = [JobEnded(self.time, job.id), *[self.point(job, data)] * 3]
        checkpoint = data.draw(st.integers(0, 3), label="checkpoint")
        steps.append(JobEnded(self.time, job.id, signal=9, died=True, checkpoint=checkpoint))
        if job.resize is not None:
            steps += [ResizeDone(self.time, job.id, job.resize.serial)] * 4
            steps.append(ResizeFailed(self.time, job.id, job.resize.serial, "gone"))
            steps.append(ResizeFailed(self.time, job.id, job.resize.serial, "gone", restart=True))
        return data.draw(st.sampled_from(steps), label="step")

    def point(self, job: Job, data: st.DataObject) -> ResizePoint:
        seconds = data.draw(st.sampled_from([0.5, 1.0, 2.0]), label="iteration_s")
        return ResizePoint(self.time, job.id, 1, seconds, iterations=12)

    @rule(data=st.data())
    def nonsense(self, data: st.DataObject) -> None:
        """An event of any job, in whatever state, or of none."""
        job = data.draw(st.integers(0, self.last + 1), label="job")
        serial = data.draw(st.integers(0, 3), label="serial")
        events = [
            JobStarted(self.time, job),
            ResizePoint(self.time, job, 1, 1.0),
            ResizeDone(self.time, job, serial),
            ResizeFailed(self.time, job, serial, "nonsense", restart=bool(serial % 2)),
            JobEnded(self.time, job, exit_code=serial),
            JobCancelled(self.time, job),
            Wakeup(self.time),
        ]
        self.waiting.append(data.draw(st.sampled_from(events), label="event"))

    @rule(jobs=st.sampled_from([None, 1, 2, 4]))
    def limit_depth(self, jobs: int | None) -> None:
        self.waiting.append(DepthChanged(self.time, jobs))

    @rule(node=st.sampled_from(sorted(NODES)), lose=st.booleans())
    def nodes(self, node: str, lose: bool) -> None:
        self.waiting.append(NodeLost(self.time, node) if lose else self.joined(node))

    @rule(node=st.sampled_from(sorted(NODES)), seconds=st.sampled_from([0.0, 3.0, 12.0, 60.0]))
    def expiring_node(self, node: str, seconds: float) -> None:
        until = self.time + seconds
        self.waiting.append(msgspec.structs.replace(self.joined(node), until=until))

    @rule(
        name=st.sampled_from(["r", "s", "t"]),
        processors=st.integers(0, 5),
        after=st.sampled_from([-1.0, 0.0, 2.0, 8.0]),
        duration_s=st.sampled_from([2.0, 10.0, 30.0]),
    )
    def reserve(self, name: str, processors: int, after: float, duration_s: float) -> None:
        nodes = () if processors else ("n1",)
        begin = self.time + after
        self.waiting.append(
            ReservationRequested(self.time, name, begin, duration_s, processors, nodes)
        )

    @rule(name=st.sampled_from(["r", "s", "t"]))
    def cancel_reservation(self, name: str) -> None:
        self.waiting.append(ReservationCancelled(self.time, name))

    @rule(by_s=st.sampled_from([-60.0, -5.0, 4.0, 100.0]))
    def set_clock(self, by_s: float) -> None:
        self.waiting.append(ClockSet(self.time, by_s))

    @rule(node=st.sampled_from([*sorted(NODES), "unknown"]), drains=st.booleans())
    def drain(self, node: str, drains: bool) -> None:
        self.waiting.append(DrainChanged(self.time, node, drains))

    @rule(
        node=st.sampled_from([*sorted(NODES), "unknown"]),
        after=st.sampled_from([None, -1.0, 3.0, 30.0]),
    )
    def change_silence(self, node: str, after: float | None) -> None:
        until = None if after is None else self.time + after
        self.waiting.append(SilenceChanged(self.time, node, until))

    @rule(node=st.sampled_from([*sorted(NODES), "unknown"]))
    def remove(self, node: str) -> None:
        self.waiting.append(NodeRemoved(self.time, node))

    def joined(self, node: str) -> NodeJoined:
        return NodeJoined(self.time, node, NODES[node], resources=MEMORY.get(node, {}))

    def deliver(self) -> None:
        events, self.waiting = self.waiting, []
        before = {job.id: job.state for job in self.core.jobs.values()}
        orders = self.core.handle(events) if events else []
        self.check_answers(events, orders)
        for job in self.core.jobs.values():
            old = before.get(job.id, JobState.PENDING)
            assert job.state in reachable(old), f"job {job.id}: {old.name} -> {job.state.name}"

    def check_answers(self, events: list[Event], orders: list[Order]) -> None:
        asked = Counter(event.job for event in events if isinstance(event, ResizePoint))
        told = Counter(o.job for o in orders if isinstance(o, Expand | Contract | Continue))
        assert asked == told
        assert msgspec.json.decode(msgspec.json.encode(orders), type=list[Order]) == orders
        assert msgspec.json.decode(msgspec.json.encode(events), type=list[Event]) == events
        for order in orders:
            if not hasattr(order, "reason"):
                continue
            assert str(order.reason).endswith("]")
            if isinstance(order, Start | Expand):
                assert order.group < self.core.jobs[order.job].next_group
                is_step = self.core.jobs[order.job].spec.step_of is not None
                if not (isinstance(order, Start) and (order.restart or is_step)):
                    self.check_exclusions(order)

    def check_exclusions(self, order: Start | Expand) -> None:
        """No job gets processors that are excluded before it ends by its estimate."""
        job = self.core.jobs[order.job]
        for partition in self.partitions:
            if job.id in partition.live:
                state = partition.state
                kept = state.kept_from(job)
                if isinstance(order, Start):
                    kept = state.blocked(job, state.now, state.now + job.estimate_s)
                assert not order.processors & kept

    @invariant()
    def every_processor_in_one_place(self) -> None:
        everywhere: set[int] = set()
        for partition in self.partitions:
            machine, seen = partition.machine, machine_numbers(partition.machine)
            held = [held for job in partition.live.values() for held in job.own_groups.values()]
            assert all(held)
            taken: set[int] = set()
            for part in [*held, machine.free]:
                assert not taken & set(part), "given twice"
                taken |= set(part)
            up = {n for node in machine.nodes.values() for n in node.offered}
            assert set(machine.free) <= up
            assert up <= taken, "lost"
            assert taken <= seen
            assert machine.free_count == len(machine.free)
            assert machine.processors == len(up)
            assert not everywhere & seen, "in two groups"
            everywhere |= seen

    @invariant()
    def steps_have_what_their_jobs_were_granted(self) -> None:
        """Jobs keep their grants, which their steps share; none waits for what is idle."""
        for partition in self.partitions:
            steps = partition.state.steps
            for number in {
                job.spec.step_of.job for job in self.core.jobs.values() if job.spec.step_of
            }:
                lent = [lent_group(step) for step in steps.of(number) if step.is_lent]
                assert all(lent)
                job = partition.live.get(number)
                if job is None:
                    assert not lent
                    assert not steps.waiting(number)
                    continue
                granted = ProcSet.union(job.groups.values())
                assert len(granted) == job.size
                assert not ProcSet.union(lent) - granted
                idle = steps.idle(job)
                assert len(granted) == len(idle) + sum(map(len, lent)), "lent twice"
                assert all(step.processors > len(idle) for step in steps.waiting(number))
                if job.state is JobState.COMPLETING:
                    assert {step.state for step in steps.of(number)} <= {JobState.COMPLETING}
                for step in steps.of(number):
                    if step.is_lent and job.expected_end > step.started_at + LEAST_S:
                        assert step.expected_end == pytest.approx(job.expected_end)
        for step in self.core.jobs.values():
            if step.spec.step_of is not None:
                assert step in self.core.steps_of(step.spec.step_of.job) or step.state in FINAL

    @invariant()
    def every_job_in_one_place(self) -> None:
        known = self.submitted - {e.job for e in self.waiting if isinstance(e, JobSubmitted)}
        assert {job.id for job in self.core.jobs.values() if job.spec.task_of is None} == known
        for job in self.core.jobs.values():
            queued = [job.id in partition.queue for partition in self.partitions]
            live = [job.id in partition.live for partition in self.partitions]
            apart = [
                job.id in partition.queueing.eligibility.waiting for partition in self.partitions
            ]
            is_open = job.state is JobState.PENDING and job.conditions is None
            is_array = job.spec.array is not None and is_open
            is_step = job.spec.step_of is not None and is_open
            places = [*queued, *live, *apart, is_array, is_step, job.state in FINAL]
            assert sum(places) == 1, f"job {job.id} {job.state.name}: {places}"
            assert any([*queued, *apart, is_array, is_step]) == (job.state is JobState.PENDING)
            assert any(apart) == (job.conditions is not None)
            if any(apart) or is_array or is_step:
                assert str(self.core.reason_pending(job.id))
            assert bool(job.groups) == any(live)
            assert (job.ended_at is not None) == (job.state in FINAL)
        for queue in [partition.queue for partition in self.partitions]:
            wanted = sum(job.spec.processors for job in queue if job.spec.processors <= 5)
            assert not queue.demand_exceeds(wanted, 5)
            assert wanted == 0 or queue.demand_exceeds(wanted - 1, 5)

    @invariant()
    def sizes_and_groups_agree(self) -> None:
        for job in self.core.live.values():
            joining = job.resize.joining if job.resize is not None else ()
            computing = [held for group, held in job.groups.items() if group not in joining]
            if job.state is not JobState.COMPLETING:
                assert sum(map(len, computing)) == job.size
                assert (job.minimum or job.processors) <= job.size
                assert job.size in job.valid_sizes or job.size == job.processors
                assert job.processors <= job.spec.processors
                assert job.size <= (job.spec.max_processors or job.spec.processors)
            assert (job.resize is not None) == (
                job.state in {JobState.EXPANDING, JobState.CONTRACTING}
            )
            if job.resizes == 0:
                assert job.size == job.processors

    @invariant()
    def what_will_come_back_is_known(self) -> None:
        for partition in self.partitions:
            none = partition.state.quantity(0)
            expected: dict[int, Quantity] = {}
            for _, job, quantity in partition.state.releases:
                expected[job] = expected.get(job, none) + quantity
            returning = partition.machine.count_usable
            for job in partition.live.values():
                back = partition.state.quantity(sum(map(returning, job.own_groups.values())), job)
                assert expected.pop(job.id, none) == back
            assert all(quantity == none for quantity in expected.values())
            assert list(partition.state.releases) == sorted(partition.state.releases)
            resizes = [job.resize for job in partition.live.values() if job.resize is not None]
            assert partition.state.freeing == sum(r.old - r.new for r in resizes if not r.expands)

    @invariant()
    def nobody_waits_for_what_is_there(self) -> None:
        for partition in self.partitions:
            own = partition.scenario.own_scheduling
            head = partition.state.head if own is None else None
            kept = (
                ProcSet()
                if head is None
                else partition.state.kept_from(head) & partition.machine.free
            )
            if kept and head is not None:
                space = partition.machine.space.copy()
                space.take(kept)
                if space.free.count() >= head.processors and head.demand <= partition.state.free:
                    assert partition.state.placing
                    assert partition.state.selection.select(space, head.processors) is None
            elif head is not None and head.demand <= partition.state.free:
                own = partition.state.reservations.get(head.id, -inf)
                if min(partition.state.reservations.values(), default=inf) < own:
                    continue  # another was promised its start while nodes were away
                assert partition.state.placing, "only the selection can have refused"
                assert (
                    partition.state.selection.select(partition.machine.space, head.spec.processors)
                    is None
                )
            for job in partition.queue:
                assert str(self.core.reason_pending(job.id))

    @invariant()
    def only_examined_jobs_hold_reservations(self) -> None:
        for partition in self.partitions:
            state = partition.state
            if state.window is not None and not state.pass_due:
                assert len(state.window) <= (state.depth or 0)
                if len(state.window) < (state.depth or 0):
                    others = (job for job in partition.queue if job not in state.window)
                    assert not any(map(state.can_start, others))
                many = partition.scenario.backfill.reservations not in (0, 1)
                assert not many or partition.state.reservations.keys() <= {
                    job.id for job in state.window
                }
                for job in partition.queue:
                    rule = partition.reason_pending(job.id).rule
                    unseen = (
                        job not in state.window and job.processors <= partition.machine.installed
                    )
                    assert (rule == "NotExamined") <= unseen

    @invariant()
    def further_resources_are_held_once(self) -> None:
        for partition in self.partitions:
            pools, held, there = partition.machine.pools, Counter(), Counter()
            for job in partition.live.values():
                held.update(job.spec.resources)
            for node in partition.machine.nodes.values():
                there.update(node.resources if node.up else {})
            assert pools.held == [held[name] for name in pools.names]
            assert pools.there == [there[name] for name in pools.names]
            assert bool(pools.names) == partition.state.multi_resource

    def teardown(self) -> None:
        """Every job told to end ends, and all processors of nodes that are there come back."""
        if not hasattr(self, "core"):  # no machine was drawn
            return
        self.deliver()
        latest = self.time + 1000
        while left := [job for job in self.core.jobs.values() if job.state not in FINAL]:
            assert self.time < latest, [(job.id, job.state, job.spec) for job in left]
            self.time += 1
            queued = [job for job in self.core.jobs.values() if job.state is JobState.PENDING]
            self.waiting = [JobCancelled(self.time, job.id) for job in queued]
            self.waiting += [JobEnded(self.time, job) for job in self.core.live]
            self.deliver()
        assert self.core.machine.free_count == self.core.machine.processors
        for job in list(self.core.jobs):
            self.core.forget(job)


def machine_numbers(machine: Machine) -> set[int]:
    numbers: list[int] = [n for node in machine.nodes.values() for n in node.numbers]
    assert len(numbers) == len(set(numbers))
    for node in machine.nodes.values():
        assert machine.by_node(node.numbers) == {node.name: node.numbers}
    assert isinstance(machine.free, ProcSet)
    return set(numbers)


def reachable(state: JobState) -> set[JobState]:
    """States that one instant may lead to: it may hold several events of a job."""
    found, new = {state}, {state}
    while new:
        new = {to for old in new for to in TRANSITIONS[old]} - found
        found |= new
    return found
