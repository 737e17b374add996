"""Whether a resize earns back its pause before the expected end of the job.

The expected pause is that of earlier resizes (PRIO 2, "the redistribution time for mapping the
distributed data"), so the first resizes of a service are not restricted.
"""

from __future__ import annotations

from scheduler.model.job_view import JobView
from scheduler.model.orders import Facts, Reason
from scheduler.policies.resizing.interface import Decision, Shrink, Stay
from scheduler.state.view import View


def if_earned_back(decision: Decision, job: JobView, view: View, rule: str) -> Decision:
    """Return a decision, or to keep the size if the pause of the resize is not earned back.

    An expansion has to save more time than its pause takes until the job is expected to end. A
    contraction has to be over before that, because it releases nothing earlier otherwise.

    Parameters
    ----------
    rule : rule to cite.
    """
    pause_s = None if isinstance(decision, Stay) else view.pause_s(job)
    if isinstance(decision, Stay) or not pause_s:
        return decision
    left_s = max(0.0, min(job.estimated_end, job.ends_by_progress) - view.now)
    facts: Facts = {"size": job.size, "to": decision.to, "pause_s": pause_s, "left_s": left_s}
    if isinstance(decision, Shrink):
        if left_s > pause_s:
            return decision
        text = (
            "it is expected to end in {left_s:.3g} s, and a contraction to {to} would pause it for"
            " {pause_s:.3g} s"
        )
        return Stay(Reason(rule, text, facts), decision.sweet_spot)
    now_s, then_s = job.history.predict_s(job.size), job.history.predict_s(decision.to)
    if not now_s or then_s is None:
        return decision
    saved_s = left_s * (1.0 - then_s / now_s) if then_s < now_s else 0.0
    if saved_s > pause_s:
        return decision
    text = (
        "from {size} to {to} it would save {saved_s:.3g} of {left_s:.3g} s until its expected end,"
        " and pause for {pause_s:.3g} s"
    )
    return Stay(Reason(rule, text, {**facts, "saved_s": saved_s}))
