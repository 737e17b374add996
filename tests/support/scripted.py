"""A resizing policy for tests that follows a list of sizes, in one file as a user would write it.

`steps` is text such as "4 6 2/1+2": expand to 4, then to 6, then contract to 2 by letting groups 1
and 2 leave. `hold` is the number of iterations between two steps. With `gate`, step N waits until
there is a file whose path is `gate` followed by N.
"""

from __future__ import annotations

import os.path

import msgspec

from scheduler.model.job_view import JobView
from scheduler.model.orders import Reason
from scheduler.policies.resizing.interface import Decision, Grow, Shrink, Stay
from scheduler.state.view import View


class Scripted(msgspec.Struct, frozen=True):
    """Resizes a job step by step, whatever the state of the machine."""

    steps: str = ""
    hold: int = 1
    gate: str = ""

    def decide(self, job: JobView, view: View) -> Decision:
        """Return the next step of the job, or stay if the hold is not over."""
        reason = Reason("scripted")
        steps = self.steps.split()
        if job.resizes >= len(steps) or job.history.points % self.hold:
            return Stay(reason)
        if self.gate and not os.path.exists(f"{self.gate}{job.resizes + 1}"):
            return Stay(reason)
        to, _, groups = steps[job.resizes].partition("/")
        if int(to) > job.size:
            return Grow(int(to), reason)
        leaving = tuple(map(int, groups.split("+"))) if groups else None
        return Shrink(int(to), reason, leaving)
