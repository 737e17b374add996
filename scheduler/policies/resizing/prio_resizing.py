"""Rules that the three scenarios of PRIO 3.3 share; they use the job's own measurements.

The sweet spot, the benefit of the last expansion and Max-Benefit-Priority are the same in all
scenarios, which differ in whether queued or running jobs come first (`prio_scenarios`).

A resize may also have to earn back its pause before the expected end of the job. The expected pause
is that of earlier resizes (PRIO 2, "the redistribution time for mapping the distributed data"), so
the first resizes of a service are not restricted.
"""

from __future__ import annotations

from math import isfinite
from typing import ClassVar

import msgspec

from scheduler.model.groups import leaving_groups
from scheduler.model.job_view import JobView
from scheduler.model.orders import Facts, Reason
from scheduler.policies.resizing.allocation import Benefit, max_benefit_priority
from scheduler.policies.resizing.interface import Decision, Grow, Shrink, Stay
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


class PrioResizing(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Common parameters and rules of the scenarios.

    Parameters
    ----------
    remap_window_size : number of resizes before the expand potential of a job is known (PRIO 3.2).
    min_potential : threshold that the potential must exceed, speedup per processor (PRIO 3.2).
    min_benefit : least benefit of an expansion as a share of the ideal gain (`History.benefited`);
        0 accepts any improvement, as in the paper.
    settle : iterations on a size before its benefit is evaluated and the job may expand again; more
        than 1 makes decisions on noisy iteration times more stable.
    earn_back : keep the size if the expected pause of a resize is not earned back before the
        expected end of the job (`if_earned_back`). False, as in the paper, ignores the pause.

    Raises
    ------
    ValueError : a parameter is out of range.
    """

    #: Name that reasons cite.
    title: ClassVar[str] = ""

    remap_window_size: int = 2
    min_potential: float = 0.0
    min_benefit: float = 0.0
    settle: int = 1
    earn_back: bool = False

    def __post_init__(self) -> None:
        """Check the parameters."""
        for name in ("remap_window_size", "settle"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)}")
        for name in ("min_potential", "min_benefit"):
            if not isfinite(getattr(self, name)):
                raise ValueError(f"{name} must be a finite number, got {getattr(self, name)}")
        if self.min_benefit < 0:
            raise ValueError(f"min_benefit must be >= 0, got {self.min_benefit}")

    def decide(self, job: JobView, view: View) -> Decision:
        """Decide on a job at its resize point."""
        decision = self.choose(job, view)
        if not self.earn_back:
            return decision
        rule = f"{self.title}: earn the pause back (earn_back)"
        return if_earned_back(decision, job, view, rule)

    def choose(self, job: JobView, view: View) -> Decision:
        """Decide by the bullets of the scenario, whatever the pause."""
        raise NotImplementedError

    def rule(self, bullet: int, words: str) -> str:
        """Rule of a reason: in words, and the bullet of PRIO 3.3 that says so."""
        return f"{self.title}: {words} (PRIO 3.3 bullet {bullet})"

    def keep_sweet_spot(self, job: JobView, source: str) -> Stay | None:
        """Keep the size if it is at or above the sweet spot; None if it is not.

        Parameters
        ----------
        source : where the paper says so, as the reason cites it.
        """
        spot = job.history.sweet_spot
        if spot is None or job.size < spot:
            return None
        rule = f"{self.title}: stay at the sweet spot ({source})"
        return Stay(Reason(rule, "its sweet spot is {size} processors", {"size": job.size}))

    def undo_useless_expansion(self, job: JobView, bullet: int) -> Shrink | Stay | None:
        """Undo an expansion without benefit and record the sweet spot; None if it is not due.

        Parameters
        ----------
        bullet : of PRIO 3.3, as the reason cites it.
        """
        history = job.history
        if history.settled < self.settle:
            facts = {"settled": history.settled, "size": job.size, "settle": self.settle}
            text = "only {settled} of {settle} iterations on {size} processors"
            return Stay(Reason(f"{self.title}: try a size first (settle)", text, facts))
        before = history.expanded_from()
        if before is None or history.benefited(self.min_benefit) is not False:
            return None
        rule = self.rule(bullet, "undo an expansion without benefit")
        on_before_s, on_size_s = history.comparable_s(before, job.size)
        times = {
            "size": job.size,
            "before": before,
            "on_size_s": on_size_s,
            "on_before_s": on_before_s,
        }
        text = "an iteration takes {on_size_s:.4g} s on {size}, {on_before_s:.4g} s on {before}"
        if leaving_groups(job.groups, job.size - before) is None:
            text += "; no group can leave so that {before} stay"
            return Stay(Reason(rule, text, times), sweet_spot=before)
        return Shrink(before, Reason(rule, text, times), sweet_spot=before)

    def expand(
        self, job: JobView, view: View, idle: int, *, bullet: int, short: int
    ) -> Grow | Stay:
        """Expand the job by Max-Benefit-Priority on `idle` processors, or keep its size.

        Parameters
        ----------
        bullet, short : bullets of PRIO 3.3 for an expansion, and for too few processors.
        """
        return max_benefit_priority(
            job,
            view,
            Benefit(self.remap_window_size, self.min_potential),
            idle=idle,
            rule=self.rule,
            bullet=bullet,
            short=short,
        )
