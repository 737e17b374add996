"""The interface of a resizing policy, and what it may decide.

A policy is a class of typed parameters with one method::

    class Eager(msgspec.Struct, frozen=True):
        '''Grow to the next size whenever nobody waits.'''

        reserve: int = 0  # processors to leave idle

        def decide(self, job: Job, view: View) -> Decision:
            to = view.next_larger(job)
            if to is not None and not view.queue and to - job.size <= view.free - self.reserve:
                return Grow(to, Reason("Eager", "{free} processors idle", {"free": view.free}))
            return Stay(Reason("Eager"))

Register it with `scheduler.policies.registry.register("doubler", Eager)` or by an entry point of
the group ``reshape.policies``; live service, simulator and replay then know it by its name. The
core checks every decision against what is possible and goes on unchanged if it is not.
"""

from __future__ import annotations

from typing import Protocol, TypeAlias

import msgspec

from scheduler.model.job import Job
from scheduler.model.orders import Reason
from scheduler.state.view import View


class Grow(msgspec.Struct, frozen=True):
    """Expand the job to this many processors."""

    to: int
    reason: Reason


class Shrink(msgspec.Struct, frozen=True):
    """Contract the job to this many processors.

    `groups` names the leaving groups; None lets the newest that fit leave. `sweet_spot`, if given,
    is recorded as the job's.
    """

    to: int
    reason: Reason
    groups: tuple[int, ...] | None = None
    sweet_spot: int | None = None


class Stay(msgspec.Struct, frozen=True):
    """Keep the present size. `sweet_spot`, if given, is recorded as the job's."""

    reason: Reason
    sweet_spot: int | None = None


Decision: TypeAlias = Grow | Shrink | Stay


class Resizing(Protocol):
    """Decides at the resize points of resizable jobs."""

    def decide(self, job: Job, view: View) -> Decision:
        """What to do with a RUNNING job at its resize point; its history is up to date."""
