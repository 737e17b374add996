"""The part of the application object that reports to the service, and requests sizes of it."""

from __future__ import annotations

from math import inf
from operator import index
from typing import TYPE_CHECKING

from reshape.data.job_context import Fact, SizeRequest, plain_facts
from reshape.errors import ReshapeError
from reshape.registrations import Registrations

if TYPE_CHECKING:
    from reshape.wire.link import Link


class Reports(Registrations):
    """Base of `reshape.app.Application`: what the program tells its service."""

    def __init__(self) -> None:
        super().__init__()
        self._link: Link | None = None

    def report(self, **facts: Fact) -> None:
        """Report facts of the result, such as ``verified=True``, which `reshape info` shows.

        Only rank 0 reports. Without a service this does nothing.

        Raises
        ------
        ReshapeError : a value is not a bool, number or string, or a number is not finite or does
            not fit into 64 bits.
        """
        checked = plain_facts(facts)
        if self._link is not None and self.comm.rank == 0:
            self._link.facts(checked)

    def progress(self, done: float, total: float) -> None:
        """Report how much of the work is done, which `reshape queue` shows and forecasts use.

        It takes the place of the number of iterations, for programs that end when they have
        converged, or whose iterations take different times. Call it in an iteration, as often as
        is convenient: what was reported last goes with the next request of a resize point, every
        50 ms at most. The value of rank 0 counts.

        Parameters
        ----------
        done, total : work done when this iteration ends, and all work, in any unit.

        Raises
        ------
        ReshapeError : `total` is not above 0, or `done` is not between 0 and `total`.
        """
        if not 0 <= done <= total or not 0 < total < inf:
            raise ReshapeError(
                f"app.progress({done!r}, {total!r}): expected numbers with 0 <= done <= total, and "
                "total > 0"
            )
        job = self._here()
        if done > 0:
            job.expected = max(job.done + 1, round((job.done + 1) * total / done))

    def request(self, minimum: int | None = None, maximum: int | None = None) -> SizeRequest:
        """Request bounds on the number of processes from now on, in place of any earlier ones.

        The service answers at a resize point. If it accepts, the job gets a size between the bounds
        at that resize point or, if there are too few processors, at a later one; it is then
        resized within the bounds only. They cannot exceed what the submission allows. All ranks
        call this in the same iteration, with the same values.

        Parameters
        ----------
        minimum, maximum : numbers of processes; None: no bound but that of the submission.

        Returns
        -------
        the request, whose `state` becomes "accepted" or "declined", for the reason in `why`.
        Without a service it is declined.

        Raises
        ------
        ReshapeError : a bound is < 1, or the minimum is above the maximum.
        """
        job = self._here()
        bounds = [index(bound) for bound in (minimum, maximum) if bound is not None]
        if any(bound < 1 for bound in bounds) or bounds != sorted(bounds):
            raise ReshapeError(
                f"app.request(minimum={minimum}, maximum={maximum}): expected bounds >= 1, the "
                "minimum not above the maximum"
            )
        job.request = SizeRequest(minimum, maximum)
        if self._link is None:
            job.request.answer("the program runs without a service, on a fixed number of processes")
        return job.request
