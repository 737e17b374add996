"""Malleable: one policy that decides on starts, with sizes, and on resizes.

A job starts as soon as its smallest size fits beside the floors of the running jobs, which are the
smallest sizes to which they can contract. All jobs move towards their parts of the machine
(`scheduler.policies.resizing.targets`) at their resize points. What contractions free for a job is
left to it: other jobs expand only on processors that no job waits for, and start only on what is
not needed by jobs before them. If there is no room for the head of the queue, a later job starts if
it does not delay the head, which is EASY with floors in place of sizes.

The idea of giving each job a minimum at once and dividing the rest is that of the malleable
strategies in arXiv 2602.17318; how much each rule here contributes is in docs/studies/malleable.md.
"""

from __future__ import annotations

import msgspec

from reshape.errors import check_ranges
from scheduler.model.job_view import JobView
from scheduler.policies.backfill.own_pass import CurrentPass
from scheduler.policies.resizing import targets
from scheduler.policies.resizing.interface import Decision
from scheduler.state.view import View


class Malleable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Start jobs on what is free, and divide the machine between them.

    Parameters
    ----------
    favour_short : exponent by which jobs with less work left get more processors, at most 10; 0
        gives all the same number.
    slack : a job contracts without need only if it has more than this multiple of its part.
    earn_back : an expansion is made only if it saves this multiple of its expected pause.
    most_paused : largest share of its run time that a job may be paused for expansions.
    settle : iterations on a size before the next resize.
    min_benefit : least gain of an expansion as a share of the ideal one; an expansion that gained
        less is undone after three iterations. The size before it is the sweet spot of the job for
        8 iterations, but at least 30 s, each further time for twice as long.

    Raises
    ------
    ValueError : a parameter is out of range.
    """

    favour_short: float = 0.25
    slack: float = 1.3
    earn_back: float = 2.0
    most_paused: float = 0.1
    settle: int = 1
    min_benefit: float = 0.05

    def __post_init__(self) -> None:
        """Check the parameters."""
        check_ranges(self, favour_short=">= 0 and <= 10", slack=">= 1 and finite")
        check_ranges(self, earn_back=">= 0 and finite", settle=">= 1")
        check_ranges(self, most_paused="> 0 and <= 1", min_benefit=">= 0 and < 1")

    def schedule(self, current: CurrentPass) -> None:
        """Start the queued jobs for which there is room and that fit on what is free."""
        targets.schedule(current, self.favour_short)

    def decide(self, job: JobView, view: View) -> Decision:
        """Move a job towards its part of the machine."""
        return targets.decide(
            job,
            view,
            self.favour_short,
            self.slack,
            self.earn_back,
            self.most_paused,
            self.settle,
            self.min_benefit,
        )
