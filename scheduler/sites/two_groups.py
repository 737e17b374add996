"""A site with a redirection group: two cores over disjoint processors of one machine.

Jobs are submitted to the principal core. A job during which too many others arrive is ended there.
When its processes have ended, it is queued in the core of the redirection group under the same
number: `Kill`, `JobEnded` from the driver, `Requeue`, `Start`. Each core has its own scenario and
is independent of the other. The site routes events to the cores, counts arrivals and decides on
redirections (`scheduler.policies.redirection`, REDIR algorithms 1 and 2).

At each instant the scheduling pass precedes the counting. Every arrival is counted. The processors
of a redirected job become free when its processes have ended, and a separate pass follows.

Without a redirection rule and a redirection group the site behaves as its principal core.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any

import msgspec

from scheduler.core.core import Core, EventOrder
from scheduler.core.event_order import instant_order
from scheduler.core.resizing import PolicyErrorHandler
from scheduler.model.events import (
    ClockSet,
    DepthChanged,
    DrainChanged,
    Event,
    JobCancelled,
    JobEnded,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    NodeRemoved,
    ReservationCancelled,
    ReservationRequested,
    ResizePoint,
    Wakeup,
)
from scheduler.model.job import Job, JobState
from scheduler.model.machine import Machine, Node
from scheduler.model.orders import Order, Reason, Requeue, Start
from scheduler.policies.containment import ContainedSelection, Report, contained
from scheduler.policies.redirection import Counted, Counters
from scheduler.policies.scenario import Scenario
from scheduler.policies.scenarios import of_redirection_group
from scheduler.sites.two_group_machine import TwoGroupMachine
from scheduler.state.exclusions import Exclusions
from scheduler.state.records import SiteRecord
from scheduler.text.counts import noun

S = JobState


#: Events that concern both groups.
OF_BOTH_GROUPS = (Wakeup, NodeLost, NodeRemoved, ClockSet, DepthChanged, DrainChanged)


class TwoGroupSite:
    """Two cores that a driver uses as one site.

    Parameters
    ----------
    scenario : scenario of the principal group; its `redirection` is the redirection rule.
    machine : machine of the principal group. Nodes that join later are added to both machines.
    group : machine of the redirection group, with the same numbering; None is an empty one.
    kill_at_walltime, order, keep_ended : see `Core`.
    report_error : function that is called for each error of a queue order, a processor selection or
        a predictor, which is then contained (`scheduler.policies.containment`). None lets
        exceptions out.

    Attributes
    ----------
    principal, redirection : the cores.
    jobs : job number -> job, of both groups.
    live : the jobs among them that hold processors.
    machine : nodes and processors of both groups together.

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
        report_error: Report | None = None,
    ) -> None:
        machine = Machine() if machine is None else machine
        if group is None:
            network, counted = machine.space.network, machine.counted
            group = Machine(
                network=network,
                counted=counted,
                numbering=machine.numbering,
                shared=machine.shared,
            )
        if group.numbering is not machine.numbering:
            raise ValueError("the machines of the two groups must share their numbering")
        self._report = report_error
        self._scenario = scenario
        self.principal, self.redirection = (
            Core(
                self._contained(chosen),
                part,
                kill_at_walltime=kill_at_walltime,
                order=order,
                keep_ended=keep_ended,
            )
            for chosen, part in ((scenario, machine), (of_redirection_group(scenario), group))
        )
        self.jobs = self.redirection.state.jobs = self.principal.jobs
        self.live: Mapping[int, Job] = ChainMap(self.principal.live, self.redirection.live)
        self.machine = TwoGroupMachine(machine, group)
        self._rule = scenario.redirection
        self._counters = None if self._rule is None else Counters(self._rule)

    @classmethod
    def on(
        cls, scenario: Scenario, nodes: Iterable[Node], like: Machine, **options: Any
    ) -> TwoGroupSite:
        """Create a site on nodes that are all up; the redirection group is a part of them.

        Parameters
        ----------
        nodes : nodes with their processors and resources.
        like : machine whose network, places of nodes and shared resources the site takes over.
        options : keyword arguments of `TwoGroupSite`.

        Raises
        ------
        ValueError : the machine is too small for a redirection group.
        """
        rule = scenario.redirection
        nodes = list(nodes)
        reserved = {} if rule is None else rule.reserved({n.name: n.count for n in nodes})
        network = like.space.network
        machine = Machine(network=network, places=like.numbering.places, shared=like.shared)
        group = Machine(network=network, numbering=machine.numbering, shared=like.shared)
        for node in nodes:
            kept = reserved.get(node.name, 0)
            rest, share = _divided(node.resources, kept, node.count)
            if node.count > kept:
                machine.join(node.name, node.count - kept, rest)
            if kept:
                group.join(node.name, kept, share)
        return cls(scenario, machine, group, **options)

    @property
    def now(self) -> float:
        """Time of the latest instant handled."""
        return self.principal.now

    @property
    def scenario(self) -> Scenario:
        """The scenario that decides; it may be replaced between two instants.

        A different rule of redirection resets all counts.
        """
        return self._scenario

    @scenario.setter
    def scenario(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self.principal.scenario = self._contained(scenario)
        self.redirection.scenario = self._contained(of_redirection_group(scenario))
        if scenario.redirection == self._rule:
            return
        self._rule, self._counters = scenario.redirection, None
        if self._rule is not None:
            self._counters = Counters(self._rule)
            for job in self.principal.live.values():
                self._counters.started(job)

    @property
    def kill_at_walltime(self) -> bool:
        """Whether jobs that exceed their walltime are ended; redirection renews them."""
        return self.principal.kill_at_walltime

    @kill_at_walltime.setter
    def kill_at_walltime(self, kill: bool) -> None:
        self.principal.kill_at_walltime = self.redirection.kill_at_walltime = kill

    @property
    def on_policy_error(self) -> PolicyErrorHandler | None:
        """Called when a resizing policy raises an exception; None lets it propagate."""
        return self.principal.on_policy_error

    @on_policy_error.setter
    def on_policy_error(self, handler: PolicyErrorHandler | None) -> None:
        self.principal.on_policy_error = self.redirection.on_policy_error = handler

    @property
    def depth_limit(self) -> int | None:
        """Depth of passes to which the driver has limited the cores; None: no limit."""
        return self.principal.depth_limit

    @property
    def examined(self) -> int:
        """Number of jobs that all passes so far have examined one by one."""
        return self.principal.state.examined + self.redirection.state.examined

    @property
    def exclusions(self) -> Exclusions:
        """Advance reservations, which get processors of the principal group, and expiring nodes."""
        return self.principal.state.exclusions

    @property
    def counters(self) -> Counters | None:
        """Counts of the running jobs of the principal group; None without a redirection rule."""
        return self._counters

    def reason_pending(self, job: int) -> Reason:
        """Return why a queued job does not run yet.

        Raises
        ------
        KeyError : no job of this number is queued.
        """
        core = self.redirection if job in self.redirection.queue else self.principal
        reason = core.reason_pending(job)
        text, facts = reason.text, dict(reason.facts)
        selection = core.scenario.selection
        if isinstance(selection, ContainedSelection):
            failure = selection.failures.get(core.jobs[job].processors)
            if failure is not None:
                text, facts["failure"] = f"{text}; {{failure}}", failure
        if core is self.redirection:
            text = f"in the redirection group: {text}"
        return Reason(reason.rule, text, facts)

    def record(self) -> SiteRecord:
        """Return the scheduler state, apart from the jobs, for durable storage."""
        counters = self._counters
        return SiteRecord(
            now=self.now,
            principal=self.principal.record(),
            redirection=self.redirection.record(),
            counts={} if counters is None else counters.counts(),
        )

    def restore(
        self, record: SiteRecord, jobs: Iterable[Job], points: Sequence[ResizePoint] = ()
    ) -> None:
        """Take over a recorded state, without any decision. Precondition: the site is new.

        Parameters
        ----------
        record : see `record`.
        jobs : all queued and live jobs as they were recorded, and any ended ones.
        points : resize points after the records of their jobs, oldest first.
        """
        redirected: dict[bool, list[Job]] = {False: [], True: []}
        for job in jobs:
            redirected[job.redirected_at is not None].append(job)
        now = max((point.at for point in points), default=record.now)
        self.principal.restore(now, record.principal, redirected[False], points)
        self.redirection.restore(now, record.redirection, redirected[True], points)
        if self._counters is not None:
            for number, job in self.principal.live.items():
                self._counters.resume(job, record.counts.get(number, 0))

    def resume(self, scenario: Scenario, *, kill_at_walltime: bool) -> None:
        """Drop everything that `record` does not keep, as the recovery of a service does.

        A replay calls this where the journal says that the service was started again.
        """
        record, jobs = self.record(), list(self.jobs.values())
        old = self.principal.machine
        machine = Machine(network=old.space.network, places=old.numbering.places, shared=old.shared)
        handler = self.on_policy_error
        TwoGroupSite.__init__(
            self,
            scenario,
            machine,
            kill_at_walltime=kill_at_walltime,
            order=self.principal.order,
            keep_ended=self.principal.keep_ended,
            report_error=self._report,
        )
        self.on_policy_error = handler
        self.restore(record, jobs)

    def forget(self, job: int) -> None:
        """Drop the record of a job that has ended; see `Core.forget`."""
        self.principal.forget(job)

    def handle(self, events: Sequence[Event]) -> list[Order]:
        """Apply the events of one instant and return the orders that follow from them."""
        if self._rule is None and not self.redirection.machine.nodes:
            return self.principal.handle(events)
        now = max((event.at for event in events), default=-inf)
        self.principal.state.now = self.redirection.state.now = max(self.now, now)
        mine: list[Event] = []
        theirs: list[Event] = []
        orders: list[Order] = []
        new: dict[int, None] = {}
        for event in events if len(events) == 1 else sorted(events, key=instant_order):
            if type(event) is JobSubmitted and event.job not in self.jobs:
                new[event.job] = None
            self._route(event, mine, theirs, orders)
        if orders:  # a job changed its group: both need a pass
            mine = mine or [Wakeup(self.now)]
            theirs = theirs or [Wakeup(self.now)]
        decided = self.principal.handle(mine) if mine else []
        others = self.redirection.handle(theirs) if theirs else []
        if mine:
            self._count(mine, decided, new)  # a redirection adds its order to `decided`
        return [*orders, *decided, *others]

    def _contained(self, scenario: Scenario) -> Scenario:
        """Scenario for a core: errors of its policies are contained if they are reported."""
        return scenario if self._report is None else contained(scenario, self._report)

    # Routing of events.

    def _route(
        self, event: Event, mine: list[Event], theirs: list[Event], orders: list[Order]
    ) -> None:
        """Add an event to the events of the group or groups that it concerns."""
        if isinstance(event, OF_BOTH_GROUPS):
            mine.append(event)
            theirs.append(event)
            return
        if isinstance(event, ReservationRequested | ReservationCancelled):
            mine.append(event)
            return
        if isinstance(event, NodeJoined):
            rest, group = _divided(event.resources, event.reserved, event.processors)
            mine.append(_part(event, event.processors - event.reserved, rest))
            theirs.append(_part(event, event.reserved, group))
            return
        job = self.jobs.get(event.job)
        if job is None or job.redirected_at is None:
            if job is not None and job.cause is S.PENDING:
                self._transfer(job, event, mine, orders)
            else:
                mine.append(event)
        else:
            theirs.append(event)

    def _transfer(self, job: Job, event: Event, mine: list[Event], orders: list[Order]) -> None:
        """Apply an event of a job that is being ended in order to be redirected."""
        if isinstance(event, JobCancelled):
            job.cause, job.why = S.CANCELLED, event.why
        elif isinstance(event, JobEnded) and (event.exit_code or event.signal):
            reason = Reason("redirection", "{why}", {"why": job.why})
            self.principal.state.vacate(job)
            job.redirect(self.now)
            self.redirection.admit(job)
            if self._counters is not None and job.id in self._counters:
                self._counters.forget(job.id)
            orders.append(Requeue(job.id, reason))
        else:
            if isinstance(event, JobEnded):  # it completed before it was ended
                job.cause, job.why = None, ""
            mine.append(event)

    # Counting and redirecting.

    def _count(self, events: list[Event], orders: list[Order], new: dict[int, None]) -> None:
        """Update the counts after an instant of the principal group, and redirect a job if due."""
        if self._counters is None:
            return
        live = self.principal.live
        for event in events:
            number = getattr(event, "job", 0)
            if number in self._counters and number not in live:
                self._counters.forget(number)
        started = {order.job for order in orders if type(order) is Start and not order.restart}
        started &= live.keys()  # in sequential order a job may have ended meanwhile
        for number in started - new.keys():
            self._counters.started(live[number])
        # REDIR III.A: "Each job running in the principal group holds the number of jobs submitted
        # during its execution": all of them, whether they then wait or not.
        for number in new:
            job = self.jobs.get(number)
            if job is not None:
                self._redirect(self._counters.arrived(job, self.redirection.machine.processors))
            if job is not None and number in started:
                self._counters.started(job)

    def _redirect(self, over: list[Counted]) -> None:
        """End one of the jobs whose counts exceed theta, if any of them is still running."""
        rule = self._rule
        candidates = [entry for entry in over if entry[0].state is not S.COMPLETING]
        if not candidates or rule is None or self._counters is None:
            return
        job, count = rule.choose(candidates)
        self._counters.reset()
        facts: dict[str, int | str] = {"count": count, "theta": rule.theta}
        text = f"{{count}} {noun(count, 'job')} came while it ran, more than {{theta}}"
        if len(candidates) > 1:
            facts |= {"jobs": len(candidates), "conflict": rule.conflict}
            text += "; chosen of {jobs} such jobs by {conflict}"
        self.principal.state.kill(job, S.PENDING, Reason("redirection", text, facts))


def _divided(
    resources: Mapping[str, int], reserved: int, processors: int
) -> tuple[dict[str, int], dict[str, int]]:
    """Divide a node's resources: the share of its other processors, and of the reserved ones."""
    share = {name: amount * reserved // processors for name, amount in resources.items()}
    return {name: amount - share[name] for name, amount in resources.items()}, share


def _part(event: NodeJoined, processors: int, resources: Mapping[str, int]) -> Event:
    """Event by which a node joins one group; without processors for it the node is lost there."""
    if processors < 1:
        return NodeLost(event.at, event.node)
    return msgspec.structs.replace(event, processors=processors, reserved=0, resources=resources)
