"""Redirection between two partitions of the core: routes events, counts arrivals, moves jobs.

Jobs are submitted to the principal group. A job that makes too many others wait is ended there.
When its processes have ended, it is queued in the redirection group under the same number: `Kill`,
`JobEnded` from the driver, `Requeue`, `Start`. Each group is a partition with its own scenario and
is independent of the other (`scheduler.policies.redirection`, REDIR algorithms 1 and 2).

At each instant the scheduling pass precedes the counting, so that it is known which arrivals wait.
The processors of a redirected job become free when its processes have ended, and a separate pass
follows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf

import msgspec

from scheduler.core.event_order import instant_order
from scheduler.core.partition import Partition
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
    Wakeup,
)
from scheduler.model.job import Job, JobState
from scheduler.model.orders import Order, Reason, Requeue, Start
from scheduler.policies.redirection import Counted, Counters, Redirection
from scheduler.text.formats import noun

S = JobState

#: Events that concern both groups.
OF_BOTH_GROUPS = (Wakeup, NodeLost, NodeRemoved, ClockSet, DepthChanged, DrainChanged)


class Redirector:
    """Leads events to two partitions and applies the rule of redirection between them.

    Parameters
    ----------
    rule : None: no job is redirected any more, but nodes still have a share in the group.
    principal, group : the principal group, and the redirection group.

    Attributes
    ----------
    counters : counts of the running jobs of the principal group; None without a rule.
    """

    def __init__(self, rule: Redirection | None, principal: Partition, group: Partition) -> None:
        self._rule, self._principal, self._group = rule, principal, group
        self._jobs = principal.jobs  # those of both
        self.counters = None if rule is None else Counters(rule)

    def resume(self, counts: Mapping[int, int]) -> None:
        """Continue the counts of the jobs of a recorded state."""
        if self.counters is not None:
            for number, job in self._principal.live.items():
                self.counters.resume(job, counts.get(number, 0))

    def handle(self, events: Sequence[Event]) -> list[Order]:
        """Apply the events of one instant and return the orders that follow from them."""
        principal, group = self._principal, self._group
        now = max((event.at for event in events), default=-inf)
        principal.state.now = group.state.now = now = max(principal.now, now)
        mine: list[Event] = []
        theirs: list[Event] = []
        orders: list[Order] = []
        new: dict[int, None] = {}
        for event in events if len(events) == 1 else sorted(events, key=instant_order):
            if type(event) is JobSubmitted and event.job not in self._jobs:
                new[event.job] = None
            self._route(event, mine, theirs, orders)
        if orders:  # a job changed its group: both need a pass
            mine = mine or [Wakeup(now)]
            theirs = theirs or [Wakeup(now)]
        decided = principal.handle(mine) if mine else []
        others = group.handle(theirs) if theirs else []
        if mine:
            self._count(mine, decided, new)  # a redirection adds its order to `decided`
        return [*orders, *decided, *others]

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
            rest, group = divided(event.resources, event.reserved, event.processors)
            mine.append(_part(event, event.processors - event.reserved, rest))
            theirs.append(_part(event, event.reserved, group))
            return
        job = self._jobs.get(event.job)
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
            self._principal.state.vacate(job)
            job.redirect(self._principal.now)
            self._group.admit(job)
            if self.counters is not None and job.id in self.counters:
                self.counters.forget(job.id)
            orders.append(Requeue(job.id, reason))
        else:
            if isinstance(event, JobEnded):  # it completed before it was ended
                job.cause, job.why = None, ""
            mine.append(event)

    # Counting and redirecting.

    def _count(self, events: list[Event], orders: list[Order], new: dict[int, None]) -> None:
        """Update the counts after an instant of the principal group, and redirect a job if due."""
        if self.counters is None:
            return
        live = self._principal.live
        for event in events:
            number = getattr(event, "job", 0)
            if number in self.counters and number not in live:
                self.counters.forget(number)
        started = {order.job for order in orders if type(order) is Start and not order.restart}
        started &= live.keys()  # in sequential order a job may have ended meanwhile
        for number in started - new.keys():
            self.counters.started(live[number])
        # REDIR III.A: "Each job running in the principal group holds the number of jobs submitted
        # during its execution".
        for number in new:
            job = self._jobs.get(number)
            if job is not None and (self._counts_all or self._waits(job)):
                self._redirect(self.counters.arrived(job, self._group.machine.processors))
            if job is not None and number in started:
                self.counters.started(job)

    @property
    def _counts_all(self) -> bool:
        return self._rule is not None and self._rule.counts == "submitted"

    def _waits(self, job: Job) -> bool:
        """Whether a job that just arrived waits, or started by passing a queued job."""
        if job.state is S.PENDING:
            return True
        first = next(iter(self._principal.queue.jobs.values()), None)
        if first is None or job.id not in self._principal.live:
            return False
        return (first.queued_at, first.id) < (job.queued_at, job.id)

    def _redirect(self, over: list[Counted]) -> None:
        """End one of the jobs whose counts exceed theta, if any of them is still running."""
        rule = self._rule
        candidates = [entry for entry in over if entry[0].state is not S.COMPLETING]
        if not candidates or rule is None or self.counters is None:
            return
        job, count = rule.choose(candidates)
        self.counters.reset()
        facts: dict[str, int | str] = {"count": count, "theta": rule.theta}
        waited = "" if self._counts_all else " and had to wait"
        text = f"{{count}} {noun(count, 'job')} came{waited} while it ran, more than {{theta}}"
        if len(candidates) > 1:
            facts |= {"jobs": len(candidates), "conflict": rule.conflict}
            text += "; chosen of {jobs} such jobs by {conflict}"
        self._principal.state.kill(job, S.PENDING, Reason("redirection", text, facts))


def divided(
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
