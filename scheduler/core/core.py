"""The decision core: it turns the events of one instant into orders.

A core owns partitions, normally one: processors with a queue, a scenario and scheduling passes of
their own. With a rule of redirection there are two, the principal group, which takes submissions,
and the redirection group (`scheduler.core.redirector`). Drivers (live service, simulator, replay)
hand events to ``core.handle``, carry out the orders and report what happens as further events.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Sequence
from typing import Any

from scheduler.core.joint_machine import JointMachine
from scheduler.core.partition import EventOrder, Partition
from scheduler.core.redirector import Redirector, divided
from scheduler.core.resizing import PolicyErrorHandler
from scheduler.model.events import Event, ResizePoint
from scheduler.model.job import Job
from scheduler.model.machine import Machine, Node
from scheduler.model.orders import Order, Reason
from scheduler.policies.containment import ContainedSelection, Report, contained
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import of_redirection_group
from scheduler.state.exclusions import Exclusions
from scheduler.state.records import CoreRecord, PartitionRecord


class Core:
    """The decision core.

    Parameters
    ----------
    scenario : scenario of the first partition; its `redirection` is the rule of redirection.
    machine : machine of the first partition. Nodes that join later are added to all machines.
    group : machine of the redirection group, with the same numbering; None: it is empty, and
        without a rule of redirection there is no such group.
    kill_at_walltime, order, keep_ended, on_policy_error : see `Partition`.
    report_error : function that is called for each error of a queue order, a processor selection or
        a predictor, which is then contained (`scheduler.policies.containment`). None lets
        exceptions out.

    Attributes
    ----------
    scenario, kill_at_walltime, order : see above.
    partitions : the partitions; the first one takes submissions and advance reservations.
    redirector : applies the rule of redirection; None if there is one partition.
    jobs : job number -> job, of all partitions, without forgotten ones.
    live : the jobs among them that hold processors.
    machine : nodes and processors of all partitions together, for reading.

    Raises
    ------
    ValueError : the two machines have different numberings.
    """

    def __init__(
        self,
        scenario: Scenario,
        machine: Machine | None = None,
        group: Machine | None = None,
        *,
        kill_at_walltime: bool = True,
        order: EventOrder = "batch",
        keep_ended: bool = True,
        on_policy_error: PolicyErrorHandler | None = None,
        report_error: Report | None = None,
    ) -> None:
        machine = Machine() if machine is None else machine
        if group is None and scenario.redirection is not None:
            group = machine.emptied(machine.numbering)
        parts = [(scenario, machine)]
        if group is not None:
            if group.numbering is not machine.numbering:
                raise ValueError("the machines of the two groups must share their numbering")
            parts.append((of_redirection_group(scenario), group))
        self.scenario, self.kill_at_walltime, self.order = scenario, kill_at_walltime, order
        self._keep_ended = keep_ended
        self.jobs: dict[int, Job] = {}
        self._on_policy_error, self._report = on_policy_error, report_error
        self.partitions = [
            Partition(
                chosen if report_error is None else contained(chosen, report_error),
                part,
                self.jobs,
                kill_at_walltime=kill_at_walltime,
                order=order,
                keep_ended=keep_ended,
                on_policy_error=on_policy_error,
            )
            for chosen, part in parts
        ]
        self._first = self.partitions[0]
        self.live: dict[int, Job] | ChainMap[int, Job] = self._first.live
        self.machine: Machine | JointMachine = machine
        self.redirector: Redirector | None = None
        if group is not None:
            second = self.partitions[1]
            self.live = ChainMap(self._first.live, second.live)
            self.machine = JointMachine(machine, group)
            self.redirector = Redirector(scenario.redirection, self._first, second)

    @classmethod
    def on(cls, scenario: Scenario, nodes: Iterable[Node], like: Machine, **options: Any) -> Core:
        """Create a core on nodes that are all up; a redirection group is a part of them.

        Parameters
        ----------
        nodes : nodes with their processors and resources.
        like : machine whose network, places of nodes and shared resources the core takes over.
        options : keyword arguments of `Core`.

        Raises
        ------
        ValueError : the machine is too small for a redirection group.
        """
        rule, nodes = scenario.redirection, list(nodes)
        reserved = {} if rule is None else rule.reserved({n.name: n.count for n in nodes})
        machine = like.emptied()
        group = machine.emptied(machine.numbering) if reserved else None
        for node in nodes:
            kept = reserved.get(node.name, 0)
            rest, share = divided(node.resources, kept, node.count)
            if node.count > kept:
                machine.join(node.name, node.count - kept, rest)
            if kept and group is not None:
                group.join(node.name, kept, share)
        return cls(scenario, machine, group, **options)

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

        Parameters
        ----------
        record : see `record`.
        jobs : all queued and live jobs as they were recorded, and any ended ones.
        machine : machine without nodes.
        points : resize points after the records of their jobs, oldest first.
        options : keyword arguments of `Core`.
        """
        has_group = any(part.nodes for part in record.partitions[1:])
        group = machine.emptied(machine.numbering) if has_group else None
        core = cls(scenario, machine, group, **options)
        by_partition: dict[Partition, list[Job]] = {each: [] for each in core.partitions}
        for job in jobs:
            by_partition[core.partition_of(job)].append(job)
        now = max((point.at for point in points), default=record.now)
        parts = [*record.partitions, PartitionRecord()]  # a rule of redirection may be new
        for (partition, own), part in zip(by_partition.items(), parts, strict=False):
            partition.restore(now, part, own, points)
        if core.redirector is not None:
            core.redirector.resume(record.counts)
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
            "on_policy_error": self._on_policy_error,
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
        return self._first.depth_limit

    @property
    def examined(self) -> int:
        """Number of jobs that all passes so far have examined one by one."""
        return sum(partition.state.examined for partition in self.partitions)

    @property
    def exclusions(self) -> Exclusions:
        """Advance reservations, which get processors of the first partition, and expiring nodes."""
        return self._first.exclusions

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
        if partition is not self._first:
            text = f"in the redirection group: {text}"
        return Reason(reason.rule, text, facts)

    def partition_of(self, job: Job) -> Partition:
        """Partition in which a job is queued, runs or ran."""
        return self.partitions[0 if job.redirected_at is None else -1]

    def handle(self, events: Sequence[Event]) -> list[Order]:
        """Apply the events of one instant and return the orders that follow from them.

        A live driver may pass events of several instants; the latest time counts as now.
        """
        redirector = self.redirector
        if redirector is None:
            return self._first.handle(events)
        return redirector.handle(events)

    def forget(self, job: int) -> None:
        """Drop the record of a job that has ended; see `SchedulerState.forget`."""
        self._first.forget(job)

    def record(self) -> CoreRecord:
        """Return the scheduler state, apart from the jobs, for durable storage."""
        counters = None if self.redirector is None else self.redirector.counters
        return CoreRecord(
            self.now,
            [partition.record() for partition in self.partitions],
            {} if counters is None else counters.counts(),
        )
