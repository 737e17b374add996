"""A resizing policy for tests: a list of sizes to go through. One file, as a user's would be.

`steps` is text such as "4 6 2/1+2": expand to 4, then to 6, then contract to 2 by letting groups 1
and 2 leave. `hold` is the number of iterations between two steps.
"""

from __future__ import annotations

import msgspec

from scheduler.core.orders import Reason
from scheduler.core.state import Job
from scheduler.core.view import View
from scheduler.policies.interface import Decision, Grow, Shrink, Stay


class Scripted(msgspec.Struct, frozen=True):
    steps: str = ""
    hold: int = 1

    def decide(self, job: Job, view: View) -> Decision:
        reason = Reason("scripted")
        steps = self.steps.split()
        if job.resizes >= len(steps) or job.history.points % self.hold:
            return Stay(reason)
        to, _, groups = steps[job.resizes].partition("/")
        if int(to) > job.size:
            return Grow(int(to), reason)
        leaving = tuple(map(int, groups.split("+"))) if groups else None
        return Shrink(int(to), reason, leaving)
