"""The interface of a resizing policy and the decisions that it may return.

A resizing policy is a class of typed parameters with one method::

    from scheduler.policies.api import Decision, Grow, JobView, Reason, Stay, View


    class Eager(msgspec.Struct, frozen=True):
        '''Grow to the next size whenever no job is queued.'''

        reserve: int = 0  # processors to leave idle

        def decide(self, job: JobView, view: View) -> Decision:
            to = view.next_larger(job)
            if to is not None and not view.queue and to - job.size <= view.free - self.reserve:
                return Grow(to, Reason("Eager", "{free} processors idle", {"free": view.free}))
            return Stay(Reason("Eager"))

It gets a name by `scheduler.policies.registry.register("eager", Eager)` or by an entry point of the
group ``reshape.policies``; service, simulator and replay then find it by this name. The core checks
every decision. If a decision cannot be carried out, the job keeps its size.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

import msgspec

from scheduler.model.job_view import JobView
from scheduler.model.orders import Reason
from scheduler.state.view import View


class Grow(msgspec.Struct, frozen=True):
    """Decision to expand the job to `to` processors."""

    to: int
    reason: Reason


class Shrink(msgspec.Struct, frozen=True):
    """Decision to contract the job to `to` processors.

    Parameters
    ----------
    groups : numbers of the groups that leave; None lets the processor selection choose, by default
        the newest ones that fit.
    sweet_spot : recorded as the sweet spot of the job (processors) unless it is None.
    retry : whether the sweet spot is forgotten after 8 iterations, but at least 30 s, and each
        further one after twice that time, so that the job may expand once more.
    off : names of nodes; only groups that have processors there leave. Empty: any groups.
    """

    to: int
    reason: Reason
    groups: tuple[int, ...] | None = None
    sweet_spot: int | None = None
    retry: bool = False
    off: tuple[str, ...] = ()


class Stay(msgspec.Struct, frozen=True):
    """Decision to keep the present size.

    Parameters
    ----------
    sweet_spot : recorded as the sweet spot of the job (processors) unless it is None.
    retry : whether the sweet spot is forgotten after 8 iterations, but at least 30 s, and each
        further one after twice that time, so that the job may expand once more.
    lasting : whether the policy decides the same until the state of the scheduler changes, the job
        takes another time for an iteration, or three are measured on its size. It is not asked
        again before, which makes simulations faster.
    """

    reason: Reason
    sweet_spot: int | None = None
    retry: bool = False
    lasting: bool = False


Decision: TypeAlias = Grow | Shrink | Stay


class Resizing(Protocol):
    """Resizing policy: decides at the resize points of resizable jobs.

    It decides on what the scheduling pass of the same instant leaves.
    """

    def decide(self, job: JobView, view: View) -> Decision:
        """Decide on a RUNNING job at its resize point; its history includes the last iteration."""
