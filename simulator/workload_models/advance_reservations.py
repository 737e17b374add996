"""Advance reservations of a simulation from a YAML file, and the jobs submitted to them.

::

    reservations:
      - name: course
        start: 3600          # seconds, on the clock of the submissions
        duration: "2:00:00"  # seconds, or in the notation of Slurm
        processors: 8        # or nodes: [n1, n2], names of the machine file
        requested: 0         # seconds; default: before the first job
        jobs: 5-9 12         # submitted to it: numbers in the trace, or places in a workload file
        users: [3, 17]       # as well as the jobs of these users that can run in it

docs/reservations.md describes what a reservation does.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import isfinite
from typing import Annotated

import msgspec
import numpy as np

from reshape.errors import ConfigError
from reshape.times import seconds_of
from scheduler.model.events import JobSpec, ReservationRequested
from scheduler.model.orders import Refuse, Reserve
from scheduler.model.procset import ProcSet
from scheduler.text.located import Located
from simulator.engine.jobs import SimJob
from simulator.traces.trace_jobs import TraceJobs

#: Jobs of a reservation, at most.
MOST_JOBS = 1_000_000


class PlannedReservation(msgspec.Struct, frozen=True, dict=True, forbid_unknown_fields=True):
    """A reservation of the file: either of a number of processors or of nodes.

    Parameters
    ----------
    name : of the reservation.
    start : s, on the clock of the submissions.
    duration : s, or as a text such as "2:00:00".
    processors : number of processors.
    nodes : names of nodes of the machine file.
    requested : time of the request, s; None: before the first job.
    jobs : jobs that are submitted to it, such as "5-9 12": numbers in the trace, or places in a
        workload file.
    users : users whose jobs are submitted to it, too, from its request on, if they can run in it.
    """

    name: Annotated[str, msgspec.Meta(min_length=1)]
    start: float
    duration: float | str
    processors: int = 0
    nodes: tuple[str, ...] = ()
    requested: float | None = None
    jobs: str | int = ""
    users: tuple[str | int, ...] = ()

    @cached_property
    def duration_s(self) -> float:
        """Duration, s."""
        return seconds_of(self.duration)

    @cached_property
    def user_names(self) -> frozenset[str]:
        """Names of the users; those of a trace have numbers."""
        return frozenset(map(str, self.users))

    @cached_property
    def numbers(self) -> ProcSet:
        """Numbers of the jobs that it lists."""
        return ProcSet.parse(str(self.jobs))

    def request(self, first: float) -> ReservationRequested:
        """Event of the request.

        Parameters
        ----------
        first : time of the first submission, s.
        """
        at = min(first, self.start) if self.requested is None else self.requested
        return ReservationRequested(
            at, self.name, self.start, self.duration_s, self.processors, self.nodes
        )

    def takes(self, at: float, spec: JobSpec, per_node: int) -> bool:
        """Whether a job of its users is submitted to it.

        Parameters
        ----------
        at : time of the submission, s.
        per_node : processors of a node.
        """
        if spec.user not in self.user_names or (self.requested is not None and at < self.requested):
            return False
        ends = max(at, self.start) + spec.walltime_s
        most = self.processors or len(self.nodes) * per_node
        return spec.processors <= most and ends <= self.start + self.duration_s


class ReservationsFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of advance reservations.

    Parameters
    ----------
    reservations : the reservations.
    """

    reservations: Annotated[list[PlannedReservation], msgspec.Meta(min_length=1)]


def described(tree: Located) -> list[PlannedReservation]:
    """Reservations that the contents of a file describe.

    Raises
    ------
    ConfigError : names file, line, field and value, and the fix.
    """
    reservations = tree.convert(ReservationsFields).reservations
    owner: dict[int, str] = {}
    for i, planned in enumerate(reservations):
        above = ("reservations", i)
        if any(planned.name == other.name for other in reservations[:i]):
            tree.fail((*above, "name"), f"two reservations are named {planned.name!r}; rename one")
        for name in ("start", "requested"):
            value = getattr(planned, name)
            if value is not None and not isfinite(value):
                tree.fail((*above, name), f"must be a finite number, got {value}")
        for name, parsed in (("duration", "duration_s"), ("jobs", "numbers")):
            try:
                getattr(planned, parsed)
            except ValueError as error:
                tree.fail((*above, name), str(error))
        if (count := planned.numbers.count()) > MOST_JOBS:
            tree.fail((*above, "jobs"), f"{count} jobs are named, at most {MOST_JOBS} may be")
        for job in planned.numbers:
            other = owner.setdefault(job, planned.name)
            if other != planned.name:
                tree.fail((*above, "jobs"), f"job {job} is in reservation {other}, too")
        try:
            planned.request(planned.start)
        except ValueError as error:
            tree.fail(above, str(error))
    return reservations


def in_trace(
    jobs: TraceJobs, planned: Sequence[PlannedReservation], per_node: int = 1
) -> TraceJobs:
    """Submit jobs of a trace to the reservations that list their numbers or users.

    Parameters
    ----------
    per_node : processors of a node.
    """
    numbers, times = jobs.numbers.tolist(), jobs.submitted.tolist()
    names = _names(numbers, times, jobs.specs(), planned, per_node)
    return msgspec.structs.replace(jobs, reservation=np.array(names))


def in_list(
    jobs: Sequence[SimJob], planned: Sequence[PlannedReservation], per_node: int = 1
) -> list[SimJob]:
    """Submit single jobs to the reservations that list their places, from 1, or users.

    Parameters
    ----------
    per_node : processors of a node.
    """
    times, specs = [job.at for job in jobs], [job.spec for job in jobs]
    names = _names(range(1, len(jobs) + 1), times, specs, planned, per_node)
    return [
        msgspec.structs.replace(job, spec=msgspec.structs.replace(job.spec, reservation=name))
        for job, name in zip(jobs, names, strict=True)
    ]


def _names(
    numbers: Sequence[int],
    times: Sequence[float],
    specs: Sequence[JobSpec],
    planned: Sequence[PlannedReservation],
    per_node: int,
) -> list[str]:
    """Reservation that lists each job, or the first that takes it by its user; "" for none."""
    owner = {job: reservation.name for reservation in planned for job in reservation.numbers}
    missing = owner.keys() - set(numbers)
    if missing:
        job = min(missing)
        raise ConfigError(
            f"reservation {owner[job]} lists job {job}, which is not simulated: leave it out",
            field="jobs",
        )
    return [
        owner.get(number)
        or next((own.name for own in planned if own.takes(at, spec, per_node)), "")
        for number, at, spec in zip(numbers, times, specs, strict=True)
    ]


def granted(answers: Sequence[Reserve | Refuse]) -> tuple[Reserve, ...]:
    """Return the reservations, all of which must have been granted.

    Raises
    ------
    ConfigError : one was refused.
    """
    for answer in answers:
        if isinstance(answer, Refuse):
            raise ConfigError(
                f"advance reservation {answer.name} is refused: {answer.reason.sentence}",
                field="reservations",
            )
    return tuple(answer for answer in answers if isinstance(answer, Reserve))
