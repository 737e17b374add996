"""The three scenarios of PRIO 3.3, and the rules that they share.

PBA-PR and FCFS-PR belong to policy 1, "favoring queued applications", and Max-B-PR to policy 2,
"favor running applications". The sweet spot, the benefit of the last expansion and
Max-Benefit-Priority are the same in all of them; they use the measurements of a job.

A resize may also have to earn back its pause before the expected end of the job. The expected pause
is that of earlier resizes (PRIO 2, "the redistribution time for mapping the distributed data"), so
the first resizes of a service are not restricted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal, TypeAlias

import msgspec

from reshape.errors import check_ranges
from scheduler.model.groups import leaving_groups
from scheduler.model.job_view import JobView
from scheduler.model.orders import Facts, Reason
from scheduler.policies.queue_orders.aging import CLASSES
from scheduler.policies.resizing.allocation import max_benefit_priority
from scheduler.policies.resizing.harvesting import (
    Harvest,
    fcfs_contract_priority,
    gains_from_contractions,
    least_impact_priority,
)
from scheduler.policies.resizing.interface import Decision, Grow, Shrink, Stay
from scheduler.state.view import View

#: Comparison by which a queued job is "of a higher priority" than a running one.
Higher: TypeAlias = Literal["priority", "queued"]
#: Which jobs may expand while others are queued.
GrowPast: TypeAlias = Literal["any", "blocked"]


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
        check_ranges(self, remap_window_size=">= 1", settle=">= 1")
        check_ranges(self, min_potential="finite", min_benefit=">= 0 and finite")

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
            window=self.remap_window_size,
            min_potential=self.min_potential,
            idle=idle,
            rule=self.rule,
            bullet=bullet,
            short=short,
        )


class QueuedFirst(PrioResizing, frozen=True):
    """Policy that favours queued jobs; the bullets are those of PRIO 3.3, scenario 1.

    While jobs are queued, a job expands only on processors that the head's reservation does not
    need. Bullet 7 says only "idle processors after backfill", but an expanded job keeps its
    processors, so that the head could wait forever, which the policy ("favoring queued applications
    over running applications") excludes.

    Parameters
    ----------
    higher : "priority" compares the priorities of PRIO 3.1, aging against running priority, both
        with the user's priority, as in the paper ("the scheduler assigns an aging priority to all
        the queued and running jobs"), or the user-assigned priorities alone if the queue order
        gives no priorities. "queued" ranks the head higher unless its user-assigned priority is
        lower.
    low : largest user-assigned priority of the low class (PRIO's gold); jobs above it are of the
        high class (platinum).
    harvest : "always" contracts a job whenever the strategy selects it, as in the paper; "useful"
        only if the head can start as a result. With "always" and bullet 7, jobs expand and contract
        in turn while a large job is queued, which is costly if a resize is; `grow_past` of
        "blocked" belongs to "useful".
    grow_past : which jobs may expand while others are queued. "any" is bullet 7 as written. (The
        text of policy 1 differs: a low priority job "will not be allowed to expand unless all the
        queued jobs have been scheduled".) "blocked": any job may while contractions cannot start
        the next queued job; if they can, the job would be contracted again for it.
    """

    higher: Higher = "priority"
    low: float = CLASSES["gold"]
    harvest: Harvest = "always"
    grow_past: GrowPast = "any"

    def choose(self, job: JobView, view: View) -> Decision:
        """Expand, contract or maintain a job at its resize point, bullet by bullet."""
        head = view.head
        if head is not None:
            # 1: "If there are higher priority jobs waiting in the queue, then contract the current
            # job if it is selected based on the [...] harvesting strategy."
            contracted = self.contract(job, view, head)
            if contracted is not None:
                return contracted
        # 2: "check whether the application has already reached its sweet spot [...]. If it has,
        # then maintain the current processor size for the job."
        stay = self.keep_sweet_spot(job, "PRIO 3.3 bullet 2")
        if stay is not None:
            return stay
        # 3: "check whether the current job benefited from its previous expansion. If it did not
        # then contract the job to its immediate previous configuration and record the application
        # sweet spot."
        undone = self.undo_useless_expansion(job, bullet=3)
        if undone is not None:
            return undone
        # 4: "If the first queued job cannot yet be scheduled using the processors harvested from
        # the current job, then schedule as many waiting jobs as possible using priority-based
        # backfill": the core's pass at the return of the processors.
        stay = None if head is None else self._keep_for_queue(job, head, view)
        if stay is not None:
            return stay
        idle = view.spare(job.expected_end, job)
        # 5: "If there are no queued jobs and if the application benefited due to expansion at its
        # last resize point, then expand the job using the Max-Benefit-Priority [...] strategy."
        # 6: "If the job cannot be expanded due to insufficient processors, then maintain".
        # 7: "If there are idle processors after backfill and if there are still queued jobs, then
        # expand the current job using the Max-Benefit-Priority strategy."
        return self.expand(job, view, idle, bullet=5 if head is None else 7, short=6)

    def contract(self, job: JobView, view: View, head: JobView) -> Shrink | None:
        """Contract the job if the harvesting strategy of the scenario selects it."""
        raise NotImplementedError

    def contractable(self, head: JobView, view: View) -> Callable[[JobView], bool]:
        """Return a test of whether the harvesting strategy contracts a running job for the head."""
        raise NotImplementedError

    def outranked_by(self, head: JobView, view: View) -> Callable[[JobView], bool]:
        """Return a test of whether a running job is of lower priority than the head."""
        user = head.spec.priority
        if self.higher == "queued":
            return lambda job: job.spec.priority <= user
        if not view.has_priorities:
            return lambda job: job.spec.priority < user
        priority, priority_of = view.priority(head), view.priority
        return lambda job: priority_of(job) < priority

    def _keep_for_queue(self, job: JobView, head: JobView, view: View) -> Stay | None:
        """Keep the size because jobs are queued; None if the job may expand nevertheless."""
        if self.grow_past == "any":
            return None
        to = view.next_larger(job)
        needed = 0 if to is None else to - job.size
        gains = gains_from_contractions(view, self.contractable(head, view), needed)
        if to is None or gains is None:
            return None
        facts = {"gains": gains.id, "needed": gains.processors, "size": job.size, "to": to}
        text = (
            "job {gains} requests {needed} processors, which contractions can release; an"
            " expansion from {size} to {to} would be undone"
        )
        rule = f"{self.title}: leave room for a queued job (PRIO 3.3 policy 1)"
        return Stay(Reason(rule, text, facts))


class PbaPr(QueuedFirst, frozen=True):
    """Performance-based allocation with priority: PRIO 3.3, policy 1, scenario 1.

    Jobs are contracted by Least-Impact-Priority.
    """

    title: ClassVar[str] = "PBA-PR"

    def contractable(self, head: JobView, view: View) -> Callable[[JobView], bool]:
        """Least-Impact-Priority contracts jobs of lower priority than the head."""
        return self.outranked_by(head, view)

    def contract(self, job: JobView, view: View, head: JobView) -> Shrink | None:
        """Contract the job by Least-Impact-Priority."""
        rule = self.rule(1, "contract by Least-Impact-Priority")
        by = self.outranked_by
        return least_impact_priority(job, view, head, by, self.low, self.harvest, rule)


class FcfsPr(QueuedFirst, frozen=True):
    """FCFS-Max-Benefit with priority: PRIO 3.3, policy 1, scenario 2.

    "Identical to the steps in Scenario 1. The only difference is that the jobs are contracted
    using the FCFS-contract harvesting strategy."
    """

    title: ClassVar[str] = "FCFS-PR"

    def contractable(self, head: JobView, view: View) -> Callable[[JobView], bool]:
        """FCFS-Contract-Priority contracts low jobs, and high ones of lower priority."""
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

    def contract(self, job: JobView, view: View, head: JobView) -> Shrink | None:
        """Contract the job by FCFS-Contract-Priority."""
        rule = self.rule(1, "contract by FCFS-Contract-Priority")
        contractable = self.contractable(head, view)
        return fcfs_contract_priority(job, view, head, contractable, self.harvest, rule)


class MaxBPr(PrioResizing, frozen=True):
    """Max-benefit with priority: PRIO 3.3, policy 2, scenario 1; its bullets are cited.

    Jobs at their resize points do "not consider the number of queued jobs in their resizing
    decision and expand jobs if enough processors are available", and no running job is contracted
    for a queued one. An expansion may delay the head's reservation: the paper's policy has no rule
    against it.
    """

    title: ClassVar[str] = "Max-B-PR"

    def choose(self, job: JobView, view: View) -> Decision:
        """Expand, contract or maintain a job at its resize point, bullet by bullet."""
        # PRIO 3.2: "A job that has reached its sweet spot is not eligible for additional processor
        # allocation"; without this rule a job would expand and contract in turn.
        stay = self.keep_sweet_spot(job, "PRIO 3.2")
        if stay is not None:
            return stay
        # 1: "check whether the job benefited from expansion at its last resize point. If it did
        # not, then contract the job to its previous processor size."
        undone = self.undo_useless_expansion(job, bullet=1)
        if undone is not None:
            return undone
        # 2: "If it benefited from previous expansion, then expand the job to its next possible
        # processor size using the Max-Benefit-Priority processor allocation strategy."
        # 3: "If the job cannot be expanded due to insufficient processors, then maintain".
        # 4: "Schedule queued jobs using priority-based backfill to use the idle processors": the
        # core's pass, which precedes the resize points of an instant.
        return self.expand(job, view, view.free_for(job), bullet=2, short=3)
