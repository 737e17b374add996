"""Processor allocation strategy of PRIO 3.2: which running job gets idle processors.

The caller passes the rule of PRIO 3.3 that applies, so that the reason cites it.
"""

from __future__ import annotations

from math import inf

from scheduler.model.job_view import JobView
from scheduler.model.orders import Reason
from scheduler.policies.resizing.interface import Grow, Stay
from scheduler.state.view import View


def max_benefit_priority(
    job: JobView, view: View, *, idle: int, window: int, min_potential: float, rule: str, short: str
) -> Grow | Stay:
    """Expand the job "that is predicted to benefit most" (Max-Benefit-Priority, PRIO 3.2).

    The "pre-allocation steps" keep idle processors for every job of higher priority and, among jobs
    of equal priority, for every job of higher expand potential whose resize point is expected
    before this job's next one. This job takes its next size if the remaining processors suffice. A
    job whose potential is not known yet is unexplored and ranks highest. A job keeps its size if
    its measurements predict that an iteration on the next size takes no less time than now.

    Parameters
    ----------
    idle : number of processors that may be allocated.
    window : `remap_window_size`, number of resizes before the potential is known.
    min_potential : threshold that the potential must exceed, speedup per processor.
    rule, short : rules to cite when the job expands, and when there are too few processors.
    """
    to = view.next_larger(job)
    if to is None:
        text = "no valid size above {size}, or an expansion to it failed just now"
        return Stay(Reason(rule, text, {"size": job.size}))
    potential = _potential(job, window)
    if potential <= min_potential:
        facts = {"potential": potential, "min_potential": min_potential}
        text = "expand potential {potential:.4g} is not above {min_potential:.4g}"
        return Stay(Reason(f"{rule}, threshold", text, facts))
    needed = to - job.size
    kept = _kept_for_others(job, view, potential, window, min_potential) if needed <= idle else 0
    facts = {"size": job.size, "to": to, "needed": needed}
    facts |= {"free": view.free, "idle": idle, "kept": kept}
    rest = (", {idle} of them not reserved" if idle < view.free else "") + (
        ", {kept} kept for jobs that come first or gain more" if kept else ""
    )
    if needed > idle - kept:
        return Stay(Reason(short, "{needed} processors wanted for {to}; {free} idle" + rest, facts))
    now_s, then_s = job.history.predict_s(job.size) or 0.0, job.history.predict_s(to) or 0.0
    facts["now_s"], facts["then_s"] = now_s, then_s
    if then_s >= now_s > 0:
        text = "an iteration of {now_s:.4g} s on {size} is expected to take {then_s:.4g} s on {to}"
        return Stay(Reason(f"{rule}, no gain", text, facts))
    text = "from {size} to {to}: {needed} of {free} idle processors" + rest
    text += "; an iteration of {now_s:.4g} s is expected to take {then_s:.4g} s"
    pause_s = view.pause_s(job)
    if pause_s:
        facts["pause_s"] = pause_s
        text += ", the pause {pause_s:.3g} s"
    return Grow(to, Reason(f"{rule}, Max-Benefit-Priority", text, facts))


def _kept_for_others(
    job: JobView, view: View, potential: float, window: int, min_potential: float
) -> int:
    """Number of processors pre-allocated to jobs that rank higher (PRIO 3.2, steps 1 and 2)."""
    priority = job.spec.priority
    next_point = view.now + (job.history.predict_s(job.size) or 0.0)
    kept = 0
    for other in view.resizable:
        history = other.history
        if other.spec.priority < priority or other is job:
            continue
        if other.spec.priority == priority and history.next_point_at >= next_point:
            continue
        theirs = _potential(other, window)
        if theirs <= min_potential or (other.spec.priority == priority and theirs <= potential):
            continue
        to = None if _at_sweet_spot(other) else view.next_larger(other)
        kept += 0 if to is None else to - other.size
    return kept


def _potential(job: JobView, window: int) -> float:
    potential = job.history.expand_potential(window)
    return inf if potential is None else potential


def _at_sweet_spot(job: JobView) -> bool:
    spot = job.history.sweet_spot
    return spot is not None and job.size >= spot
