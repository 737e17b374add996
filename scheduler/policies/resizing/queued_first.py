"""PBA-PR and FCFS-PR: PRIO 3.3 policy 1, "favoring queued applications"."""

from __future__ import annotations

from typing import ClassVar, Literal, TypeAlias

from scheduler.model.job_view import JobView
from scheduler.model.orders import Reason
from scheduler.policies.queue_orders.aging import CLASSES
from scheduler.policies.resizing.harvesting import (
    ContractFor,
    Harvest,
    Higher,
    Ranks,
    any_outranks,
    fcfs_contract_priority,
    least_impact_priority,
)
from scheduler.policies.resizing.interface import Decision, Shrink, Stay
from scheduler.policies.resizing.prio_resizing import PrioResizing
from scheduler.state.view import View

GrowPast: TypeAlias = Literal["any", "lower", "none"]
HarvestFor: TypeAlias = Literal["queued", "higher"]


class QueuedFirst(PrioResizing, frozen=True):
    """Policy that favours queued jobs; the bullets are those of PRIO 3.3, scenario 1.

    Parameters decide what the paper leaves open.

    Parameters
    ----------
    higher, low : when a queued job ranks above a running one (`harvesting.Ranks`).
    harvest : "always" contracts a job whenever the strategy selects it, as in the paper; "useful"
        only if the head can start as a result. With "always" and bullet 7, jobs expand and contract
        in turn while a large job is queued, which is costly if a resize is.
    harvest_for : "queued" consults the harvesting strategy whenever jobs are queued; PRIO 3.2
        compares the running job with "the first queued job", or contracts it "irrespective of the
        priority of queued jobs". "higher" is the condition of bullet 1 as written: any of the
        queued jobs has a higher priority than the running one.
    harvest_unexplored : whether to contract jobs that were resized less than `remap_window_size`
        times, which PRIO 3.2 does not consider "a candidate for a resizing strategy".
    grow_past : which jobs may expand while others are queued. "any" is bullet 7 as written. The
        text of policy 1 differs: a low priority job "will not be allowed to expand unless all the
        queued jobs have been scheduled", a high priority one "if all the queued jobs have a lower
        priority than this job". "lower" follows this text: a job may expand if the head does not
        rank above it. "none": no job may.
    protect_reservation : while jobs are queued, expand only on processors that the head's
        reservation does not need. Bullet 7 says only "idle processors after backfill", but an
        expanded job keeps its processors, so that the head could wait forever, which the policy
        ("favoring queued applications over running applications") excludes.
    """

    higher: Higher = "priority"
    low: float = CLASSES["gold"]
    harvest: Harvest = "always"
    harvest_for: HarvestFor = "queued"
    harvest_unexplored: bool = True
    grow_past: GrowPast = "any"
    protect_reservation: bool = True

    def decide(self, job: JobView, view: View) -> Decision:
        """Expand, contract or maintain a job at its resize point, bullet by bullet."""
        head = view.head
        if head is not None:
            # 1: "If there are higher priority jobs waiting in the queue, then contract the current
            # job if it is selected based on the [...] harvesting strategy."
            harvest = self._harvest(job, view)
            if harvest is not None:
                return harvest
        # 2: "check whether the application has already reached its sweet spot [...]. If it has,
        # then maintain the current processor size for the job."
        stay = self.keep_sweet_spot(job, self.rule(2))
        if stay is not None:
            return stay
        # 3: "check whether the current job benefited from its previous expansion. If it did not
        # then contract the job to its immediate previous configuration and record the application
        # sweet spot."
        undone = self.undo_useless_expansion(job, self.rule(3))
        if undone is not None:
            return undone
        # 4: "If the first queued job cannot yet be scheduled using the processors harvested from
        # the current job, then schedule as many waiting jobs as possible using priority-based
        # backfill": the core's pass at the return of the processors.
        if head is not None and not self._may_pass(job, head, view):
            text = "jobs are queued, the first is {head}"
            return Stay(Reason(f"{self.title} 3.3 policy 1", text, {"head": head.id}))
        protects = self.protect_reservation
        idle = view.spare(job.expected_end, job) if protects else view.free_for(job)
        # 5: "If there are no queued jobs and if the application benefited due to expansion at its
        # last resize point, then expand the job using the Max-Benefit-Priority [...] strategy."
        # 6: "If the job cannot be expanded due to insufficient processors, then maintain".
        # 7: "If there are idle processors after backfill and if there are still queued jobs, then
        # expand the current job using the Max-Benefit-Priority strategy."
        return self.expand(job, view, idle, self.rule(5 if head is None else 7), self.rule(6))

    def _harvest(self, job: JobView, view: View) -> Shrink | None:
        """Contract the job if the harvesting strategy selects it."""
        ranks = Ranks(self.higher, self.low)
        if self.harvest_for == "higher" and not any_outranks(job, view, ranks):
            return None
        resizes = len(job.history.visits) - 1
        if not self.harvest_unexplored and resizes < self.remap_window_size:
            return None
        return self.contract(job, view, ranks)

    def contract(self, job: JobView, view: View, ranks: Ranks) -> Shrink | None:
        """Contract the job if the harvesting strategy of the scenario selects it."""
        raise NotImplementedError

    def _may_pass(self, job: JobView, head: JobView, view: View) -> bool:
        """Whether the job may expand although another one is queued."""
        if self.grow_past == "lower":
            return not Ranks(self.higher, self.low).outranked_by(head, view)(job)
        return self.grow_past == "any"


class PbaPr(QueuedFirst, frozen=True):
    """Performance-based allocation with priority: PRIO 3.3, policy 1, scenario 1.

    Jobs are contracted by Least-Impact-Priority.
    """

    title: ClassVar[str] = "PBA-PR"

    def contract(self, job: JobView, view: View, ranks: Ranks) -> Shrink | None:
        """Contract the job by Least-Impact-Priority."""
        return least_impact_priority(job, view, ranks, self.harvest, self.rule(1))


class FcfsPr(QueuedFirst, frozen=True):
    """FCFS-Max-Benefit with priority: PRIO 3.3, policy 1, scenario 2.

    "Identical to the steps in Scenario 1. The only difference is that the jobs are contracted
    using the FCFS-contract harvesting strategy."

    Parameters
    ----------
    contract_for : see `harvesting.fcfs_contract_priority`.
    """

    title: ClassVar[str] = "FCFS-PR"

    contract_for: ContractFor = "queue"

    def contract(self, job: JobView, view: View, ranks: Ranks) -> Shrink | None:
        """Contract the job by FCFS-Contract-Priority."""
        return fcfs_contract_priority(
            job, view, ranks, self.harvest, self.rule(1), self.contract_for
        )
