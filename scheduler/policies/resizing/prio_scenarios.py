"""The three scenarios of PRIO 3.3.

PBA-PR and FCFS-PR belong to policy 1, "favoring queued applications", and Max-B-PR to policy 2,
"favor running applications".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Literal, TypeAlias

from scheduler.model.job_view import JobView
from scheduler.model.orders import Reason
from scheduler.policies.queue_orders.aging import CLASSES
from scheduler.policies.resizing.harvesting import (
    Harvest,
    Higher,
    Ranks,
    fcfs_contract_priority,
    gains_from_contractions,
    least_impact_priority,
)
from scheduler.policies.resizing.interface import Decision, PrecedesPass, Shrink, Stay
from scheduler.policies.resizing.prio_resizing import PrioResizing
from scheduler.state.view import View

GrowPast: TypeAlias = Literal["any", "blocked"]


class QueuedFirst(PrioResizing, frozen=True):
    """Policy that favours queued jobs; the bullets are those of PRIO 3.3, scenario 1.

    While jobs are queued, a job expands only on processors that the head's reservation does not
    need. Bullet 7 says only "idle processors after backfill", but an expanded job keeps its
    processors, so that the head could wait forever, which the policy ("favoring queued applications
    over running applications") excludes.

    Parameters
    ----------
    higher, low : when a queued job ranks above a running one (`harvesting.Ranks`).
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
            contracted = self.contract(job, view, Ranks(self.higher, self.low))
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

    def contract(self, job: JobView, view: View, ranks: Ranks) -> Shrink | None:
        """Contract the job if the harvesting strategy of the scenario selects it."""
        raise NotImplementedError

    def contractable(self, head: JobView, view: View, ranks: Ranks) -> Callable[[JobView], bool]:
        """Return a test of whether the harvesting strategy contracts a running job for the head."""
        raise NotImplementedError

    def _keep_for_queue(self, job: JobView, head: JobView, view: View) -> Stay | None:
        """Keep the size because jobs are queued; None if the job may expand nevertheless."""
        if self.grow_past == "any":
            return None
        ranks = Ranks(self.higher, self.low)
        to = view.next_larger(job)
        needed = 0 if to is None else to - job.size
        gains = gains_from_contractions(view, self.contractable(head, view, ranks), needed)
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

    def contractable(self, head: JobView, view: View, ranks: Ranks) -> Callable[[JobView], bool]:
        """Least-Impact-Priority contracts jobs of lower priority than the head."""
        return ranks.outranked_by(head, view)

    def contract(self, job: JobView, view: View, ranks: Ranks) -> Shrink | None:
        """Contract the job by Least-Impact-Priority."""
        rule = self.rule(1, "contract by Least-Impact-Priority")
        return least_impact_priority(job, view, ranks, self.harvest, rule)


class FcfsPr(QueuedFirst, frozen=True):
    """FCFS-Max-Benefit with priority: PRIO 3.3, policy 1, scenario 2.

    "Identical to the steps in Scenario 1. The only difference is that the jobs are contracted
    using the FCFS-contract harvesting strategy."
    """

    title: ClassVar[str] = "FCFS-PR"

    def contractable(self, head: JobView, view: View, ranks: Ranks) -> Callable[[JobView], bool]:
        """FCFS-Contract-Priority contracts low jobs, and high ones of lower priority."""
        return ranks.low_or_outranked_by(head, view)

    def contract(self, job: JobView, view: View, ranks: Ranks) -> Shrink | None:
        """Contract the job by FCFS-Contract-Priority."""
        rule = self.rule(1, "contract by FCFS-Contract-Priority")
        return fcfs_contract_priority(job, view, ranks, self.harvest, rule)


class MaxBPr(PrecedesPass, PrioResizing, frozen=True):
    """Max-benefit with priority: PRIO 3.3, policy 2, scenario 1; its bullets are cited.

    Jobs at their resize points do "not consider the number of queued jobs in their resizing
    decision and expand jobs if enough processors are available", and no running job is contracted
    for a queued one. An expansion may delay the head's reservation: the paper's policy has no rule
    against it.

    Parameters
    ----------
    expand_first : at a resize point, decide before queued jobs are scheduled, in the order of
        bullets 2 and 4. By default the scheduling pass of an instant precedes all its resize
        points. The two differ only if something else happens at the same instant, or if jobs are
        backfilled at contacts alone (`Backfill.moments`).
    """

    title: ClassVar[str] = "Max-B-PR"

    expand_first: bool = False

    @property
    def precedes_pass(self) -> bool:
        """Whether the decisions of an instant come before its scheduling pass."""
        return self.expand_first

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
        # core's pass, which follows with `expand_first`.
        return self.expand(job, view, view.free_for(job), bullet=2, short=3)
