"""Processor allocation strategy of PRIO 3.2: which running job gets idle processors.

The caller passes the rule of PRIO 3.3 that applies, so that the reason cites it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from scheduler.model.job_view import HistoryView, JobView
from scheduler.model.orders import Reason
from scheduler.policies.resizing.interface import Grow, Stay
from scheduler.state.view import View


def max_benefit_priority(
    job: JobView,
    view: View,
    *,
    window: int,
    min_potential: float,
    idle: int,
    rule: Callable[[int, str], str],
    bullet: int,
    short: int,
) -> Grow | Stay:
    """Expand the job "that is predicted to benefit most" (Max-Benefit-Priority, PRIO 3.2).

    The "pre-allocation steps" keep idle processors for every job of higher priority and, among jobs
    of equal priority, for every job of higher expand potential whose resize point is expected
    before this job's next one. This job takes its next size if the remaining processors suffice. A
    job keeps its size if its measurements predict that an iteration on the next size takes no less
    time than now, and nothing is kept for such a job.

    Parameters
    ----------
    window : `remap_window_size`, number of resizes before the potential is known.
    min_potential : threshold that the potential must exceed, speedup per processor.
    idle : number of processors that may be allocated.
    rule : makes the rule to cite from the number of a bullet of PRIO 3.3 and words.
    bullet, short : bullets to cite for an expansion, and for too few processors.
    """
    to = view.next_larger(job)
    if to is None:
        text = "no valid size above {size}, or an expansion to it failed just now"
        return Stay(Reason(rule(bullet, "no larger size"), text, {"size": job.size}))
    potential = _potential(job.history, window)
    if not potential > min_potential:
        numbers = {"potential": potential, "min_potential": min_potential}
        text = "expand potential {potential:.4g} is not above {min_potential:.4g}"
        return Stay(Reason(rule(bullet, "expand potential below the threshold"), text, numbers))
    needed = to - job.size
    kept = _kept_for_others(job, view, potential, window, min_potential) if needed <= idle else 0
    facts: dict[str, int | float | str] = {"size": job.size, "to": to, "needed": needed}
    facts |= {"free": view.free, "idle": idle, "kept": kept}
    rest = ", {idle} of them not reserved" if idle < view.free else ""
    rest += ", {kept} kept for jobs that come first or gain more" if kept else ""
    if needed > idle - kept:
        text = "{needed} processors wanted for {to}; {free} idle" + rest
        return Stay(Reason(rule(short, "too few idle processors"), text, facts))
    now_s, then_s = _expected_s(job, to)
    facts["now_s"], facts["then_s"] = now_s, then_s
    if then_s >= now_s > 0:
        text = "an iteration of {now_s:.4g} s on {size} is expected to take {then_s:.4g} s on {to}"
        return Stay(Reason(rule(bullet, "no gain expected"), text, facts))
    text = "from {size} to {to}: {needed} of {free} idle processors" + rest
    text += "; an iteration of {now_s:.4g} s is expected to take {then_s:.4g} s"
    if job.spec.performance and job.history.time_s(to) is None:
        facts["model"] = job.spec.performance
        text += " by {model}"
    pause_s = view.pause_s(job)
    if pause_s:
        facts["pause_s"] = pause_s
        text += ", the pause {pause_s:.3g} s"
    return Grow(to, Reason(rule(bullet, "expand by Max-Benefit-Priority"), text, facts))


def _potential(history: HistoryView, window: int) -> float:
    """Expand potential of a job, by which jobs of equal priority are ranked; infinite if not known.

    A job of unknown potential ranks above all of its priority, so that it explores. (By the words
    of PRIO 3.2 it is no "candidate for a resizing strategy" at all, but then no job would ever
    expand.)
    """
    potential = history.expand_potential(window)
    return inf if potential is None else potential


def _kept_for_others(
    job: JobView, view: View, potential: float, window: int, min_potential: float
) -> int:
    """Number of processors pre-allocated to jobs that rank higher (PRIO 3.2, steps 1 and 2)."""
    priority = job.spec.priority
    next_point = view.now + (job.history.predict_s(job.size) or 0.0)
    kept = 0
    for other in view.resizable:  # the inner loop of a decision: few calls for each job
        history = other.history
        rank = other.spec.priority
        if rank < priority or other is job:
            continue
        if rank == priority and history.next_point_at >= next_point:
            continue
        theirs = _potential(history, window)
        if (rank == priority and theirs <= potential) or not theirs > min_potential:
            continue
        to = None if _at_sweet_spot(other) else view.next_larger(other)
        if to is not None and _gains(other, to):
            kept += to - other.size
    return kept


def _gains(job: JobView, to: int) -> bool:
    """Whether an iteration on the next size is expected to take less time than now."""
    now_s, then_s = _expected_s(job, to)
    return not then_s >= now_s > 0


def _expected_s(job: JobView, to: int) -> tuple[float, float]:
    """Expected iteration times on the present size and on another one, s; 0 if not known."""
    return job.history.predict_s(job.size) or 0.0, job.history.predict_s(to) or 0.0


def _at_sweet_spot(job: JobView) -> bool:
    spot = job.history.sweet_spot
    return spot is not None and job.size >= spot
