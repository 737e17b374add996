"""A resizing policy that resizes every job as often as it can, so that faults meet many resizes."""

from __future__ import annotations

from zlib import crc32

import msgspec

from scheduler.model.job_view import JobView
from scheduler.model.orders import Reason
from scheduler.policies.resizing.interface import Decision, Grow, Shrink, Stay
from scheduler.state.view import View


class Restless(msgspec.Struct, frozen=True):
    """Expands or contracts a job after every few iterations.

    Parameters
    ----------
    hold : iterations between two resizes.
    seed : selects between expansion and contraction where both are possible.
    """

    hold: int = 2
    seed: int = 0

    def decide(self, job: JobView, view: View) -> Decision:
        """Resize the job if it has stayed long enough at its size."""
        if job.history.settled < self.hold:
            return Stay(Reason("hold"))
        coin = crc32(f"{self.seed} {job.id} {job.resizes}".encode())
        larger, smaller = _sizes(job, view)
        if larger and (not smaller or coin % 3):
            return Grow(larger[coin // 3 % len(larger)], Reason("restless"))
        if smaller:
            return Shrink(smaller[coin // 3 % len(smaller)], Reason("restless"))
        return Stay(Reason("no other size"))


def _sizes(job: JobView, view: View) -> tuple[list[int], list[int]]:
    """Larger and smaller sizes to which a job can be resized: all of them if it has a minimum."""
    if not job.minimum:
        following = view.next_larger(job)
        larger = [] if following is None else [following]
        smaller = job.history.contractions()
    else:
        sizes = job.valid_sizes
        larger = [to for to in sizes if job.size < to and not view.failed_lately(job, to)]
        reached = {job.contracts_to(to) for to in sizes if to < job.size}
        smaller = sorted(to for to in reached if to is not None)
    return [to for to in larger if to - job.size <= view.free], smaller
