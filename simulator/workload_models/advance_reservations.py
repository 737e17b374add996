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

from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
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


class ReservationFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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
    users : users whose jobs are submitted to it, too, if they can run in it.
    """

    name: Annotated[str, msgspec.Meta(min_length=1)]
    start: float
    duration: float | str
    processors: int = 0
    nodes: tuple[str, ...] = ()
    requested: float | None = None
    jobs: str | int = ""
    users: tuple[str | int, ...] = ()


class ReservationsFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of advance reservations.

    Parameters
    ----------
    reservations : the reservations.
    """

    reservations: Annotated[list[ReservationFields], msgspec.Meta(min_length=1)]


class PlannedReservation(msgspec.Struct, frozen=True):
    """A reservation that is requested in a simulation.

    Parameters
    ----------
    requested : time of the request, s; None: before the first job.
    start, duration_s : s.
    jobs : numbers of the jobs that are submitted to it.
    users : users whose jobs are submitted to it, from its request on, if they can run in it.
    """

    name: str
    start: float
    duration_s: float
    processors: int = 0
    nodes: tuple[str, ...] = ()
    requested: float | None = None
    jobs: ProcSet = ProcSet()
    users: tuple[str, ...] = ()

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
        if spec.user not in self.users or (self.requested is not None and at < self.requested):
            return False
        ends = max(at, self.start) + spec.walltime_s
        most = self.processors or len(self.nodes) * per_node
        return spec.processors <= most and ends <= self.start + self.duration_s


def read(file: Path) -> list[PlannedReservation]:
    """Read the reservations of a file.

    Raises
    ------
    ConfigError : names file, line, field and value, and the fix.
    """
    return described(Located.read(file))


def described(tree: Located) -> list[PlannedReservation]:
    """Reservations that the contents of a file describe.

    Raises
    ------
    ConfigError : see `read`.
    """
    reservations: list[PlannedReservation] = []
    owner: dict[int, str] = {}
    for i, fields in enumerate(tree.convert(ReservationsFields).reservations):
        above = ("reservations", i)
        if any(fields.name == other.name for other in reservations):
            tree.fail((*above, "name"), f"two reservations are named {fields.name!r}; rename one")
        for name in ("start", "requested"):
            value = getattr(fields, name)
            if value is not None and not isfinite(value):
                tree.fail((*above, name), f"must be a finite number, got {value}")
        try:
            duration_s = seconds_of(fields.duration)
        except ValueError as error:
            tree.fail((*above, "duration"), str(error))
        try:
            jobs = ProcSet.parse(str(fields.jobs))
        except ValueError as error:
            tree.fail((*above, "jobs"), str(error))
        if jobs.count() > MOST_JOBS:
            tree.fail(
                (*above, "jobs"), f"{jobs.count()} jobs are named, at most {MOST_JOBS} may be"
            )
        for job in jobs:
            other = owner.setdefault(job, fields.name)
            if other != fields.name:
                tree.fail((*above, "jobs"), f"job {job} is in reservation {other}, too")
        planned = PlannedReservation(
            fields.name,
            fields.start,
            duration_s,
            fields.processors,
            fields.nodes,
            fields.requested,
            jobs,
            tuple(map(str, fields.users)),
        )
        try:
            planned.request(fields.start)
        except ValueError as error:
            tree.fail(above, str(error))
        reservations.append(planned)
    return reservations


def in_trace(
    jobs: TraceJobs, planned: Sequence[PlannedReservation], per_node: int = 1
) -> TraceJobs:
    """Submit jobs of a trace to the reservations that list their numbers or users.

    Parameters
    ----------
    per_node : processors of a node.
    """
    names = _names(jobs.numbers.tolist(), planned)
    if any(reservation.users for reservation in planned):
        names |= _by_user(jobs.submit_times(), jobs.specs(), planned, per_node, names)
    of_each = np.array([names.get(index, "") for index in range(len(jobs))])
    return msgspec.structs.replace(jobs, reservation=of_each)


def in_list(
    jobs: Sequence[SimJob], planned: Sequence[PlannedReservation], per_node: int = 1
) -> list[SimJob]:
    """Submit single jobs to the reservations that list their places, from 1, or users.

    Parameters
    ----------
    per_node : processors of a node.
    """
    names = _names(range(1, len(jobs) + 1), planned)
    specs = [job.spec for job in jobs]
    names |= _by_user([job.at for job in jobs], specs, planned, per_node, names)
    return [
        msgspec.structs.replace(
            job, spec=msgspec.structs.replace(job.spec, reservation=names.get(index, ""))
        )
        for index, job in enumerate(jobs)
    ]


def _names(numbers: Sequence[int], planned: Sequence[PlannedReservation]) -> dict[int, str]:
    """Name of the reservation of each job that has one, by its index from 0."""
    owner = {job: reservation.name for reservation in planned for job in reservation.jobs}
    names = {index: owner[number] for index, number in enumerate(numbers) if number in owner}
    missing = owner.keys() - set(numbers)
    if missing:
        job = min(missing)
        raise ConfigError(
            f"reservation {owner[job]} lists job {job}, which is not simulated: leave it out",
            field="jobs",
        )
    return names


def _by_user(
    times: Sequence[float],
    specs: Sequence[JobSpec],
    planned: Sequence[PlannedReservation],
    per_node: int,
    listed: Mapping[int, str],
) -> dict[int, str]:
    """First reservation that takes each job by its user, unless one lists it; by index from 0."""
    names: dict[int, str] = {}
    for index, (at, spec) in enumerate(zip(times, specs, strict=True)):
        if index in listed:
            continue
        for reservation in planned:
            if reservation.takes(at, spec, per_node):
                names[index] = reservation.name
                break
    return names


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
