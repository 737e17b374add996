"""Max-B-PR: PRIO 3.3 policy 2, "favor running applications"."""

from __future__ import annotations

from typing import ClassVar

from scheduler.model.job_view import JobView
from scheduler.policies.resizing.interface import Decision, PrecedesPass
from scheduler.policies.resizing.prio_resizing import SWEET_SPOT, UNDO, PrioResizing
from scheduler.state.view import View


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
        stay = self.keep_sweet_spot(job, f"{self.title}: {SWEET_SPOT} (PRIO 3.2)")
        if stay is not None:
            return stay
        # 1: "check whether the job benefited from expansion at its last resize point. If it did
        # not, then contract the job to its previous processor size."
        undone = self.undo_useless_expansion(job, self.rule(1, UNDO))
        if undone is not None:
            return undone
        # 2: "If it benefited from previous expansion, then expand the job to its next possible
        # processor size using the Max-Benefit-Priority processor allocation strategy."
        # 3: "If the job cannot be expanded due to insufficient processors, then maintain".
        # 4: "Schedule queued jobs using priority-based backfill to use the idle processors": the
        # core's pass, which follows with `expand_first`.
        return self.expand(job, view, view.free_for(job), bullet=2, short=3)
