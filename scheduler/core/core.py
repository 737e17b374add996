"""The decision core: it turns the events of one instant into orders.

A core owns partitions, normally one: processors with a queue, a scenario and scheduling passes of
their own. Jobs and nodes name their partitions, and the core hands each event to the partition that
it concerns. Rules of redirection move jobs between two of them (`scheduler.core.redirector`).
Drivers (live service, simulator, replay) hand events to ``core.handle``, carry out the orders and
report what happens as further events.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any

from msgspec.structs import replace

from scheduler.core.redirector import redirectors
from scheduler.core.routing import JointMachine, Router
from scheduler.model.events import (
    Event,
    HoldChanged,
    JobCancelled,
    JobSignalled,
    JobSpec,
    JobSubmitted,
    JobUpdated,
    NodeJoined,
    ResizePoint,
    Wakeup,
)
from scheduler.model.job import PENDING, Job
from scheduler.model.machine import Machine, Node
from scheduler.model.orders import Order, Reason
from scheduler.model.procset import ProcSet
from scheduler.partition.eligibility import Awaited
from scheduler.partition.machine_events import in_the_way
from scheduler.partition.partition import EventOrder, Partition
from scheduler.partition.passes import instant_order, kind_order
from scheduler.policies.containment import ContainedSelection, ErrorReporter
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import by_partition, contained
from scheduler.state.exclusions import Exclusion
from scheduler.state.records import CoreRecord, PartitionRecord

#: Events that concern the tasks of an array if they are of the array.
_OF_ALL_TASKS = (HoldChanged, JobCancelled, JobSignalled)


class Core:
    """The decision core.

    Parameters
    ----------
    scenario : rules of the partitions; its `partitions` or `redirection` say which ones there are.
    machine : machine of the first partition. Nodes that join later are added to the machines of the
        partitions in which they have processors.
    others : machines of other partitions, by name, with the same numbering; partitions that are not
        among them begin without nodes.
    kill_at_walltime, order, keep_ended : see `Partition`.
    report_error : function that is called for each error of a policy, which is then contained
        (`scheduler.policies.containment`). None lets exceptions out.

    Attributes
    ----------
    scenario, kill_at_walltime, order : see above.
    partitions : the partitions; the first one takes the jobs and nodes that name none.
    redirectors : apply the rules of redirection.
    jobs : job number -> job, of all partitions, without forgotten ones.
    live : the jobs among them that hold processors.
    machine : nodes and processors of all partitions together, for reading.

    Raises
    ------
    ValueError : the machines have different numberings.
    """

    def __init__(
        self,
        scenario: Scenario,
        machine: Machine | None = None,
        others: Mapping[str, Machine] | None = None,
        *,
        kill_at_walltime: bool = True,
        order: EventOrder = "batch",
        keep_ended: bool = True,
        report_error: ErrorReporter | None = None,
    ) -> None:
        machine = Machine() if machine is None else machine
        others = {} if others is None else others
        if any(other.numbering is not machine.numbering for other in others.values()):
            raise ValueError("the machines of all partitions must share their numbering")
        self.scenario, self.kill_at_walltime, self.order = scenario, kill_at_walltime, order
        self._keep_ended = keep_ended
        self.jobs: dict[int, Job] = {}
        awaited = Awaited()
        self._report = report_error
        self.partitions: list[Partition] = []
        for name, own_scenario in by_partition(scenario, others).items():
            part = others.get(name) if self.partitions else machine
            self.partitions.append(
                Partition(
                    name,
                    own_scenario if report_error is None else contained(own_scenario, report_error),
                    machine.emptied(machine.numbering) if part is None else part,
                    self.jobs,
                    awaited,
                    kill_at_walltime=kill_at_walltime,
                    order=order,
                    keep_ended=keep_ended,
                    report_error=report_error,
                )
            )
        self._first = self.partitions[0]
        self._is_one = len(self.partitions) == 1
        self._router = Router(self.partitions, self.jobs)
        self.redirectors = redirectors(self.partitions)
        self.live: dict[int, Job] | ChainMap[int, Job] = self._first.live
        self.machine: Machine | JointMachine = machine
        if not self._is_one:
            self.live = ChainMap(*(partition.live for partition in self.partitions))
            self.machine = JointMachine([partition.machine for partition in self.partitions])

    @classmethod
    def on(
        cls,
        scenario: Scenario,
        nodes: Iterable[Node],
        like: Machine,
        shares: Mapping[str, Mapping[str, int]],
        **options: Any,
    ) -> Core:
        """Create a core on nodes that are all up.

        Parameters
        ----------
        nodes : nodes with their processors and resources.
        like : machine whose network, places of nodes and shared resources the core takes over.
        shares : node -> partition -> processors of the node, as of `NodeJoined`.
        options : keyword arguments of `Core`.
        """
        core = cls(scenario, like.emptied(), **options)
        events: list[Event] = []
        for node in nodes:
            own = shares.get(node.name, {})
            amounts, features = node.resources, node.features
            events.append(
                NodeJoined(0.0, node.name, node.count, amounts, shares=own, features=features)
            )
        core.handle(events)
        return core

    @classmethod
    def restored(
        cls,
        record: CoreRecord,
        jobs: Iterable[Job],
        scenario: Scenario,
        machine: Machine,
        *,
        points: Sequence[ResizePoint] = (),
        **options: Any,
    ) -> Core:
        """Create a core that takes over a recorded state, without any decision.

        A recorded partition that the scenario does not name is kept while it has nodes.

        Parameters
        ----------
        record : see `record`.
        jobs : all queued and live jobs as they were recorded, and any ended ones.
        machine : machine without nodes.
        points : resize points after the records of their jobs, oldest first.
        options : keyword arguments of `Core`.
        """
        others = {
            part.name: machine.emptied(machine.numbering)
            for part in record.partitions
            if part.name and any(not node.removed for node in part.nodes)
        }
        core = cls(scenario, machine, others, **options)
        own_jobs: dict[str, list[Job]] = {partition.name: [] for partition in core.partitions}
        for job in jobs:
            own_jobs[core.partition_of(job).name].append(job)
        now = max((point.at for point in points), default=record.now)
        parts = {core.named(part.name).name: part for part in reversed(record.partitions)}
        for partition in core.partitions:
            part = parts.get(partition.name, PartitionRecord())
            partition.restore(now, part, own_jobs[partition.name], points)
        for redirector in core.redirectors:
            redirector.resume(record.counts)
        return core

    def resumed(self, scenario: Scenario, *, kill_at_walltime: bool, **options: Any) -> Core:
        """Core with other rules and the recorded state of this one, which is not used any more.

        What `record` does not keep is dropped, as in the recovery of a service. A replay calls this
        where the journal says that the service was started again.

        Parameters
        ----------
        options : keyword arguments of `Core` that differ from those of this core.
        """
        kept = {
            "order": self.order,
            "keep_ended": self._keep_ended,
            "report_error": self._report,
        }
        return Core.restored(
            self.record(),
            list(self.jobs.values()),
            scenario,
            self._first.machine.emptied(),
            kill_at_walltime=kill_at_walltime,
            **{**kept, **options},
        )

    @property
    def now(self) -> float:
        """Time of the latest instant handled, s."""
        return self._first.now

    @property
    def depth_limit(self) -> int | None:
        """Depth of passes to which the driver has limited the core; None: no limit."""
        return self._first.passes.depth_limit

    @property
    def examined(self) -> int:
        """Number of jobs that all passes so far have examined one by one."""
        return sum(partition.state.examined for partition in self.partitions)

    @property
    def exclusions(self) -> dict[str, Exclusion]:
        """Advance reservations and what nodes exclude, of all partitions, by name."""
        return {
            exclusion.name: exclusion
            for part in self.partitions
            for exclusion in part.state.exclusions
        }

    def reason_pending(self, job: int) -> Reason:
        """Return why a queued job does not run yet.

        Raises
        ------
        KeyError : no job of this number is queued.
        """
        partition = self.partition_of(self.jobs[job])
        reason = partition.reason_pending(job)
        text, facts = reason.text, dict(reason.facts)
        selection = partition.scenario.selection
        if isinstance(selection, ContainedSelection):
            failure = selection.failures.get(self.jobs[job].processors)
            if failure is not None:
                text, facts["failure"] = f"{text}; {{failure}}", failure
        pass_failure = partition.passes.current.failure
        if pass_failure:
            text, facts["pass_failure"] = f"{text}; {{pass_failure}}", pass_failure
        if partition is not self._first:
            text, facts["partition"] = f"in partition {{partition}}: {text}", partition.name
        return Reason(reason.rule, text, facts)

    def reason_to_come(self, array: Job, position: int) -> Reason:
        """Return why the task at a position of an array that has not ended is no job yet."""
        return self.partition_of(array).reason_to_come(array, position)

    def tasks_of(self, array: Job, positions: ProcSet | None = None) -> list[Job]:
        """Tasks of an array that are jobs and have not ended, by number.

        Parameters
        ----------
        positions : of the tasks that are asked for; None: all.
        """
        return self._first.queueing.arrays.tasks(array, positions)

    def named(self, name: str) -> Partition:
        """Partition of a name; the first one if there is none of this name."""
        return self._router.named(name)

    def partition_of(self, job: Job) -> Partition:
        """Partition in which a job is queued, runs or ran."""
        return self._router.named(job.partition)

    def steps_of(self, job: int) -> list[Job]:
        """Steps of a job that have not ended, in the order of their requests."""
        return [step for partition in self.partitions for step in partition.state.steps.of(job)]

    def held(self, job: Job) -> ProcSet:
        """Processors that a job and its steps hold."""
        return self.partition_of(job).state.steps.held(job)

    def with_reservation(self, name: str) -> Partition | None:
        """Partition with an advance reservation of this name; None if there is none."""
        return self._router.with_reservation(name)

    def in_the_way(self, job: Job, until: float) -> Exclusion | None:
        """First advance reservation, or expiry, that a live job overruns if it ends at `until`, s.

        None: there is none; see `scheduler.partition.machine_events.in_the_way`.
        """
        partition = self.partition_of(job)
        return in_the_way(partition.state, partition.resizes, job, until)

    def pass_point(self, number: int, at: float, left: int, iteration_s: float) -> bool:
        """Note a resize point without an event if a lasting answer still applies at it.

        Parameters
        ----------
        number : of the job; its latest event was a resize point, or the end of its start or resize.
        at : time of the resize point, s.
        left : iterations that the job has left.
        iteration_s : time of the last iteration.

        Returns
        -------
        False: nothing is noted, and the resize point needs its event.
        """
        job = self.jobs[number]
        partition = self._first if self._is_one else self.partition_of(job)
        return partition.pass_point(job, at, left, iteration_s)

    def handle(self, events: Sequence[Event]) -> list[Order]:
        """Apply the events of one instant and return the orders that follow from them.

        A live driver may pass events of several instants; the latest time counts as now.
        """
        return self._first.handle(events) if self._is_one else self._handle_all(events)

    def _handle_all(self, events: Sequence[Event]) -> list[Order]:
        """Apply the events of one instant to several partitions."""
        now = max((event.at for event in events), default=-inf)
        now = max(self.now, now)
        for partition in self.partitions:
            partition.state.now = now
        orders: list[Order] = []
        routed: dict[str, list[Event]] = {partition.name: [] for partition in self.partitions}
        new: dict[int, str] = {}  # number of a new job -> name of its partition
        changed: list[Partition] = []  # between which a job was moved
        sort_key = instant_order if self.order == "batch" else kind_order
        ordered = events if len(events) == 1 else sorted(events, key=sort_key)
        for event in (part for each in ordered for part in self._with_tasks(each)):
            if isinstance(event, JobSubmitted) and self._is_new_job(event):
                new[event.job] = self._router.of_job(event).name
            if isinstance(event, JobUpdated):
                orders += self._router.of_job(event).queueing.bring(event)
            if isinstance(event, JobUpdated) and self._moves(event):
                changed += self._move(self.jobs[event.job], event.spec)
                continue
            moved = len(orders)
            taker = next((each for each in self.redirectors if each.takes(event, orders)), None)
            if taker is None:
                for partition, part in self._router.parts(event):
                    routed[partition.name].append(part)
            elif len(orders) > moved:
                changed += [taker.principal, taker.group]
        for partition in changed:
            routed[partition.name] = routed[partition.name] or [Wakeup(now)]  # for a pass
        decided = {
            partition.name: partition.handle(routed[partition.name])
            for partition in self.partitions
            if routed[partition.name]
        }
        while entered := [partition for partition in self.partitions if partition.has_entered]:
            for partition in entered:
                decided.setdefault(partition.name, []).extend(partition.handle_entered())
        for redirector in self.redirectors:
            name = redirector.principal.name
            if name in decided:
                arrived = [number for number, own in new.items() if own == name]
                redirector.count(routed[name], decided[name], arrived)
        for further in decided.values():
            orders += further
        return orders

    def _with_tasks(self, event: Event) -> list[Event]:
        """Return an event; if it is of an array, also the same of tasks that were redirected.

        The partition of an array knows neither these nor whether a task is ended for that.
        """
        array = self.jobs.get(event.job) if isinstance(event, _OF_ALL_TASKS) else None
        if array is None or array.spec.array is None:
            return [event]
        assert isinstance(event, _OF_ALL_TASKS)
        positions = None if isinstance(event, JobSignalled) else event.tasks
        elsewhere = [
            task
            for task in self.tasks_of(array, positions)
            if task.partition != array.partition or task.cause is PENDING
        ]
        if isinstance(event, JobSignalled):
            return [event, *(replace(event, job=task.id) for task in elsewhere)]
        return [event, *(replace(event, job=task.id, tasks=None) for task in elsewhere)]

    def _is_new_job(self, event: JobSubmitted) -> bool:
        """Whether a submission is neither a repetition nor a step."""
        return event.job not in self.jobs and event.spec.step_of is None

    def _moves(self, event: JobUpdated) -> bool:
        """Whether a queued job is to be in another partition than now."""
        job = self.jobs.get(event.job)
        if job is None or job.state is not PENDING:
            return False
        return self.named(event.spec.partition) is not self.partition_of(job)

    def _move(self, job: Job, spec: JobSpec) -> list[Partition]:
        """Move a queued job to another partition; return the two."""
        old, new = self.partition_of(job), self.named(spec.partition)
        old.queueing.withdraw(job)
        new.queueing.change_request(job, spec)
        return [old, new]

    def forget(self, job: int) -> None:
        """Drop the record of a job that has ended; see `SchedulerState.forget`."""
        self._first.state.forget(job)

    def record(self) -> CoreRecord:
        """Return the scheduler state, apart from the jobs, for durable storage."""
        counts: dict[int, int] = {}
        for redirector in self.redirectors:
            if redirector.counters is not None:
                counts |= redirector.counters.counts
        return CoreRecord(self.now, [part.record() for part in self.partitions], counts)
