"""Harvesting strategies of PRIO 3.2: which running jobs are contracted for queued ones.

Both strategies apply "if there are jobs waiting to be scheduled" and compare the running job with
the head of the queue. Neither contracts a job if the free processors and those of contractions
under way suffice. The caller passes the rule of PRIO 3.3 that applies, so that the reason cites it.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heapreplace
from typing import Literal, TypeAlias

from scheduler.model.job_view import JobView
from scheduler.model.orders import Reason
from scheduler.policies.resizing.interface import Shrink
from scheduler.state.view import View

#: Whether to harvest even if the result does not suffice for the head of the queue.
Harvest: TypeAlias = Literal["always", "useful"]


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
        available = view.free_for(queued) + view.freeing - ahead
        if queued.processors > available - needed:
            more = 0
            for other in view.resizable:
                smaller = other.smaller
                if smaller and contractable(other):
                    more += other.size - smaller[-1]
            return queued if queued.processors <= available + more else None
        ahead += queued.processors
    return None


def fcfs_contract_priority(
    job: JobView,
    view: View,
    head: JobView,
    contractable: Callable[[JobView], bool],
    harvest: Harvest,
    rule: str,
) -> Shrink | None:
    """Contract jobs "in the order they arrive at their resize point" (PRIO 3.2).

    "A high priority job that arrives at its resize point will be contracted only if the queued job
    has a higher priority than the current job. A low priority job will be contracted to its
    previous resize point irrespective of the priority of queued jobs." The previous configuration
    is the largest smaller one to which the job's groups allow a contraction.

    The paper does not say when to stop. Here no job is contracted if what is free or on its way
    suffices for the whole queue.

    Parameters
    ----------
    contractable : whether a running job is of low or of lower priority than the head.

    Returns
    -------
    None if the job is not contracted.
    """
    if not view.queue_demand_exceeds(view.free_for(head) + view.freeing):
        return None
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
    job: JobView,
    view: View,
    head: JobView,
    outranked_by: Callable[[JobView, View], Callable[[JobView], bool]],
    low: float,
    harvest: Harvest,
    rule: str,
) -> Shrink | None:
    """Contract jobs "in the ascending order of their expected performance impact" (PRIO 3.2).

    The list has all running jobs of lower priority than the head, "low priority jobs above the high
    priority jobs". Within each class they are sorted by impact, the relative increase of the
    iteration time on the previous configuration. The list is traversed, step by step down to the
    starting configurations, "till the required number of processors can be freed". The job is
    contracted to the size that the traversal reached for it.

    Parameters
    ----------
    outranked_by : returns a test of whether a running job is of lower priority than the head.
    low : largest user-assigned priority of a low priority job.

    Returns
    -------
    None if the traversal does not contract the job.
    """
    if not job.smaller:
        return None
    lacking = head.processors - view.free_for(head) - view.freeing
    outranked = outranked_by(head, view)
    if lacking <= 0 or not outranked(job):
        return None
    listed = [
        other
        for other in view.resizable
        if other.size > other.processors and other.smaller and outranked(other)
    ]
    to, freed, jobs = traverse(job, listed, low, lacking)
    is_useful = freed >= lacking and view.has_resources(head)
    if to == job.size or (harvest == "useful" and not is_useful):
        return None
    impact = _impact(job, job.size, to)
    facts = _facts(job, head, view, to) | {"short": lacking, "found": freed, "jobs": jobs}
    facts |= {"impact": 100 * impact}
    text = (
        "job {head} requests {needed}, {short} more than are free or being released; {found} can"
        " come from the running jobs with the least impact (of {jobs}), and this one,"
        " {impact:.3g} % slower on {to} than on {size}, is among them"
    )
    if not view.helps(head, job, to):
        return None
    return Shrink(to, Reason(rule, text, facts))


def traverse(job: JobView, listed: list[JobView], low: float, lacking: int) -> tuple[int, int, int]:
    """Traverse the list of Least-Impact-Priority until this many processors are found.

    Parameters
    ----------
    job : job at its resize point, one of the listed ones.
    listed : jobs that can contract, in any order.
    low : largest user-assigned priority of a low priority job; these come first.
    lacking : number of processors to find.

    Returns
    -------
    size that the traversal reached for the job, processors found, number of jobs contracted.
    """
    all_of_them = sum([other.size - other.smaller[-1] for other in listed])
    if all_of_them <= lacking:  # every job goes down to its starting size, whatever the order
        return job.smaller[-1], all_of_them, len(listed)
    #: High class after low class, impact of the next step, job, steps that it has taken.
    heap = [
        (each.spec.priority > low, _impact(each, each.size, each.smaller[0]), each.id, 0, each)
        for each in listed
    ]
    heapify(heap)
    freed, giving, to = 0, set(), job.size
    while heap and freed < lacking:
        is_high, _, number, taken, other = heap[0]
        before, at = other.smaller[taken - 1] if taken else other.size, other.smaller[taken]
        freed += before - at
        giving.add(number)
        if other is job:
            to = at
        taken += 1
        if taken < len(other.smaller):
            impact = _impact(other, at, other.smaller[taken])
            heapreplace(heap, (is_high, impact, number, taken, other))
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
