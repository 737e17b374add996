"""Harvesting strategies of PRIO 3.2: which running jobs are contracted for queued ones.

Both strategies apply "if there are jobs waiting to be scheduled" and compare the running job with
the head of the queue. Neither contracts a job if the free processors and those of contractions
under way suffice. The caller passes the rule of PRIO 3.3 that applies, so that the reason cites it.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heapreplace
from typing import Literal, TypeAlias

import msgspec

from scheduler.model.job_view import JobView
from scheduler.model.orders import Reason
from scheduler.policies.queue_orders.aging import CLASSES
from scheduler.policies.resizing.interface import Shrink
from scheduler.state.view import View

#: Comparison by which a queued job is "of a higher priority" than a running one.
Higher: TypeAlias = Literal["priority", "queued"]
#: Whether to harvest even if the result does not suffice for the head of the queue.
Harvest: TypeAlias = Literal["always", "useful"]


class Ranks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Comparison of running jobs with the head of the queue.

    Parameters
    ----------
    higher : "priority" compares the priorities of PRIO 3.1, aging against running priority, both
        with the user's priority, as in the paper ("the scheduler assigns an aging priority to all
        the queued and running jobs"), or the user-assigned priorities alone if the queue order
        gives no priorities. "queued" ranks the head higher unless its user-assigned priority is
        lower.
    low : largest user-assigned priority of the low class (PRIO's gold); jobs above it are of the
        high class (platinum).
    """

    higher: Higher = "priority"
    low: float = CLASSES["gold"]

    def outranked_by(self, head: JobView, view: View) -> Callable[[JobView], bool]:
        """Return a test of whether a running job is of lower priority than the head."""
        user = head.spec.priority
        if self.higher == "queued":
            return lambda job: job.spec.priority <= user
        if not view.has_priorities:
            return lambda job: job.spec.priority < user
        priority, priority_of = view.priority(head), view.priority
        return lambda job: priority_of(job) < priority

    def is_high(self, job: JobView) -> bool:
        """Whether a job belongs to the high class."""
        return job.spec.priority > self.low

    def low_or_outranked_by(self, head: JobView, view: View) -> Callable[[JobView], bool]:
        """Return a test of whether FCFS-Contract contracts a running job for the head."""
        low = self.low
        outranked: Callable[[JobView], bool] | None = None  # made for the first high job

        def is_contracted(job: JobView) -> bool:
            nonlocal outranked
            if job.spec.priority <= low:
                return True
            if outranked is None:
                outranked = self.outranked_by(head, view)
            return outranked(job)

        return is_contracted


def gains_from_contractions(
    view: View, contractable: Callable[[JobView], bool], needed: int = 0
) -> JobView | None:
    """First queued job that lacks processors, if it can start as a result of contractions.

    Jobs before it in queue order start on what is free or on its way. A job that lacks a further
    resource gains nothing from contractions, and neither do the jobs behind it.

    Parameters
    ----------
    contractable : whether the harvesting strategy contracts a running job.
    needed : processors that a running job would take before; contractions release them again.
    """
    ahead = 0
    for queued in view.queue:
        if queued.processors > view.installed:
            continue
        if not view.has_resources(queued):
            return None
        there = view.free_for(queued) + view.freeing - ahead
        if queued.processors > there - needed:
            more = 0
            for other in view.resizable:
                smaller = other.smaller
                if smaller and contractable(other):
                    more += other.size - smaller[-1]
            return queued if queued.processors <= there + more else None
        ahead += queued.processors
    return None


def fcfs_contract_priority(
    job: JobView, view: View, ranks: Ranks, harvest: Harvest, rule: str
) -> Shrink | None:
    """Contract jobs "in the order they arrive at their resize point" (PRIO 3.2).

    "A high priority job that arrives at its resize point will be contracted only if the queued job
    has a higher priority than the current job. A low priority job will be contracted to its
    previous resize point irrespective of the priority of queued jobs." The previous configuration
    is the largest smaller one to which the job's groups allow a contraction.

    The paper does not say when to stop. Here no job is contracted if what is free or on its way
    suffices for the whole queue.

    Returns
    -------
    None if the job is not contracted.
    """
    head = view.head
    if head is None:
        return None
    there = view.free_for(head) + view.freeing
    if not view.queue_demand_exceeds(there):
        return None
    contractable = ranks.low_or_outranked_by(head, view)
    if not job.smaller or not contractable(job):
        return None
    if harvest == "useful" and gains_from_contractions(view, contractable) is None:
        return None
    to = job.smaller[0]
    if not view.helps(head, job, to):
        return None
    facts = _facts(job, head, view, to) | {"queued": len(view.queue)}
    text = (
        "job {head}, first in a queue of {queued}, requests {needed}; {free} are free and"
        " {freeing} are being released, too few for all: back from {size} to the previous {to}"
    )
    return Shrink(to, Reason(rule, text, facts))


def least_impact_priority(
    job: JobView, view: View, ranks: Ranks, harvest: Harvest, rule: str
) -> Shrink | None:
    """Contract jobs "in the ascending order of their expected performance impact" (PRIO 3.2).

    The list has all running jobs of lower priority than the head, "low priority jobs above the high
    priority jobs". Within each class they are sorted by impact, the relative increase of the
    iteration time on the previous configuration. The list is traversed, step by step down to the
    starting configurations, "till the required number of processors can be freed". The job is
    contracted to the size that the traversal reached for it.

    Returns
    -------
    None if the traversal does not contract the job.
    """
    head = view.head
    if head is None or not job.smaller:
        return None
    wanted = head.processors - view.free_for(head) - view.freeing
    outranked = ranks.outranked_by(head, view)
    if wanted <= 0 or not outranked(job):
        return None
    listed = [
        other
        for other in view.resizable
        if other.size > other.processors and other.smaller and outranked(other)
    ]
    to, freed, jobs = traverse(job, listed, ranks, wanted)
    is_useful = freed >= wanted and view.has_resources(head)
    if to == job.size or (harvest == "useful" and not is_useful):
        return None
    impact = _impact(job, job.size, to)
    facts = _facts(job, head, view, to) | {"short": wanted, "found": freed, "jobs": jobs}
    facts |= {"impact": 100 * impact}
    text = (
        "job {head} requests {needed}, {short} more than are free or being released; {found} can"
        " come from the running jobs with the least impact (of {jobs}), and this one,"
        " {impact:.3g} % slower on {to} than on {size}, is among them"
    )
    if not view.helps(head, job, to):
        return None
    return Shrink(to, Reason(rule, text, facts))


class _Steps:
    """Steps of one job of the list to its smaller configurations."""

    def __init__(self, job: JobView, ranks: Ranks) -> None:
        self.job, self._high = job, ranks.is_high(job)
        self._taken, self.at = 0, job.size

    @property
    def rank(self) -> tuple[bool, float, int]:
        """Sort key: low class before high class, then the impact of the next step."""
        job = self.job
        return self._high, _impact(job, self.at, job.smaller[self._taken]), job.id

    def take(self) -> int:
        """Take the next step and return the number of processors that it frees."""
        before, self.at = self.at, self.job.smaller[self._taken]
        self._taken += 1
        return before - self.at

    @property
    def left(self) -> bool:
        """Whether the job has a further step."""
        return self._taken < len(self.job.smaller)


def traverse(
    job: JobView, listed: list[JobView], ranks: Ranks, wanted: int
) -> tuple[int, int, int]:
    """Traverse the list of Least-Impact-Priority until this many processors are found.

    Parameters
    ----------
    job : job at its resize point, one of the listed ones.
    listed : jobs that can contract, in any order.
    wanted : number of processors to find.

    Returns
    -------
    size that the traversal reached for the job, processors found, number of jobs contracted.
    """
    all_of_them = sum([other.size - other.smaller[-1] for other in listed])
    if all_of_them <= wanted:  # every job goes down to its starting size, whatever the order
        return job.smaller[-1], all_of_them, len(listed)
    heap = [(step.rank, step) for step in [_Steps(other, ranks) for other in listed]]
    heapify(heap)
    freed, giving, to = 0, set(), job.size
    while heap and freed < wanted:
        step = heap[0][1]
        freed += step.take()
        giving.add(step.job.id)
        if step.job is job:
            to = step.at
        if step.left:
            heapreplace(heap, (step.rank, step))
        else:
            heappop(heap)
    return to, freed, len(giving)


def _impact(job: JobView, size: int, to: int) -> float:
    """Expected impact of a contraction: relative increase of the iteration time."""
    now_s, then_s = job.history.predict_s(size), job.history.predict_s(to)
    return then_s / now_s - 1.0 if now_s and then_s else 0.0


def _facts(job: JobView, head: JobView, view: View, to: int) -> dict[str, int | float | str]:
    return {
        "size": job.size,
        "to": to,
        "head": head.id,
        "needed": head.processors,
        "free": view.free,
        "freeing": view.freeing,
    }
