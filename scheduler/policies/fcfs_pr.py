"""FCFS-PR: FCFS-Max-Benefit with priority, PRIO 3.3 policy 1, scenario 2."""

from __future__ import annotations

from math import isfinite
from typing import Literal

import msgspec

from scheduler.core.groups import leaving_groups
from scheduler.core.orders import Reason
from scheduler.core.state import Job
from scheduler.core.view import View
from scheduler.policies.interface import Decision, Shrink, Stay
from scheduler.policies.strategies import fcfs_contract_priority, max_benefit_priority


class FcfsPr(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Queued jobs are favoured over running ones; see PRIO 3.3 for the bullets cited.

    "Identical to the steps in Scenario 1. The only difference is that the jobs are contracted
    using the FCFS-contract harvesting strategy." Where the paper is silent a parameter decides.

    Parameters
    ----------
    remap_window_size : resizes before the expand potential of a job is known (PRIO 3.2).
    min_potential : threshold the expand potential must exceed, speedup per processor (PRIO 3.2).
    min_benefit : what an expansion must have brought, as a part of a perfect gain
        (`History.benefited`); 0 is any improvement, as the paper has it.
    settle : iterations on a size before its benefit is judged and it may grow again; more than 1
        steadies jobs whose iteration times are noisy.
    protect_reservation : while jobs are queued, grow only on processors that the reservation of
        the first one leaves over. Bullet 7 says only "idle processors after backfill"; but a job
        that grew keeps what it took, so without this the head could wait for ever, which the
        policy ("favouring queued applications over running applications") excludes.
    harvest : "always" contracts a job whenever jobs are queued, as the paper has it; "useful" only
        if that can let the first queued job start (`fcfs_contract_priority`). Taken together with
        bullet 7 the former makes jobs grow and shrink in turn while a large job waits, which
        matters most where a resize costs something.

    Raises
    ------
    ValueError : a parameter is out of range.
    """

    remap_window_size: int = 2
    min_potential: float = 0.0
    min_benefit: float = 0.0
    settle: int = 1
    protect_reservation: bool = True
    harvest: Literal["always", "useful"] = "always"

    def __post_init__(self) -> None:
        """Check the parameters."""
        for name in ("remap_window_size", "settle"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be >= 1, got {getattr(self, name)}")
        for name in ("min_potential", "min_benefit"):
            if not isfinite(getattr(self, name)):
                raise ValueError(f"{name} must be a finite number, got {getattr(self, name)}")
        if self.harvest not in ("always", "useful"):
            raise ValueError(f"harvest must be always or useful, got {self.harvest!r}")
        if self.min_benefit < 0:
            raise ValueError(f"min_benefit must be >= 0, got {self.min_benefit}")

    def decide(self, job: Job, view: View) -> Decision:
        """Expand, contract or maintain a job at its resize point, bullet by bullet."""
        queued = view.head is not None
        if queued:
            harvest = fcfs_contract_priority(
                job, view, "FCFS-PR 3.3 bullet 1", useful=self.harvest == "useful"
            )
            if harvest is not None:
                return harvest
        history = job.history
        if history.sweet_spot is not None and job.size >= history.sweet_spot:
            text, facts = "{size} processors are its sweet spot", {"size": job.size}
            return Stay(Reason("FCFS-PR 3.3 bullet 2", text, facts))
        if history.settled < self.settle:
            facts = {"settled": history.settled, "size": job.size, "settle": self.settle}
            text = "only {settled} of {settle} iterations on {size} processors"
            return Stay(Reason("FCFS-PR settle", text, facts))
        if history.benefited(self.min_benefit) is False:
            return self._back_to_sweet_spot(job)
        # Bullet 4, backfilling with what was harvested, is the pass the core makes at its return.
        idle = view.spare(job.expected_end) if self.protect_reservation else view.free
        return max_benefit_priority(
            job,
            view,
            idle=idle,
            window=self.remap_window_size,
            min_potential=self.min_potential,
            rule=f"FCFS-PR 3.3 bullet {7 if queued else 5}",
            short="FCFS-PR 3.3 bullet 6",
        )

    def _back_to_sweet_spot(self, job: Job) -> Shrink | Stay:
        """Bullet 3: the last expansion brought nothing, so undo it and remember where."""
        before = job.history.expanded_from()
        assert before is not None
        facts = {
            "size": job.size,
            "before": before,
            "now_s": job.history.time_s(job.size) or 0.0,
            "before_s": job.history.time_s(before) or 0.0,
        }
        text = "an iteration takes {now_s:.4g} s on {size}, {before_s:.4g} s on {before}"
        groups = leaving_groups(job.groups, job.size - before)
        if groups is None:
            text += "; no group can leave so that {before} stay"
            return Stay(Reason("FCFS-PR 3.3 bullet 3", text, facts), sweet_spot=before)
        return Shrink(before, Reason("FCFS-PR 3.3 bullet 3", text, facts), groups, before)
