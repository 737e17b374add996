"""Advance reservations of a live service: requests, tables, and which jobs may name one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reshape.errors import ReshapeError, nearest
from reshape.times import utc_moment
from scheduler.core.core import Core
from scheduler.journal.clock import Clock
from scheduler.model.events import JobSpec, ReservationCancelled, ReservationRequested
from scheduler.model.job import JobState
from scheduler.model.orders import Order, Refuse
from scheduler.protocol import messages as m
from scheduler.state.exclusions import Exclusion
from scheduler.text.formats import format_time
from scheduler.text.plain import LONGEST_NAME, check_text


class AdvanceReservations:
    """Makes events from requests, and tables from the state of the core.

    Parameters
    ----------
    core : that of the service.
    clock : that of the service. Requests and tables have times of the wall clock.
    """

    def __init__(self, core: Core, clock: Clock) -> None:
        self._core, self._clock = core, clock

    def requested(self, request: m.CreateReservation, user: str) -> ReservationRequested:
        """Return the event of a request.

        Parameters
        ----------
        user : who sends it; the name of a reservation without one is made of it, as in Slurm.

        Raises
        ------
        ReshapeError : the request is malformed.
        """
        name = request.name or self._new_name(user)
        check_text(name, "the name of the reservation", LONGEST_NAME)
        now, ahead_s = self._clock(), self._clock.ahead_s
        start = now if request.start is None else request.start - ahead_s
        if start + request.duration_s <= now:
            begin = utc_moment(start + ahead_s)
            raise ReshapeError(
                f"the reservation would end before now: its start is {begin}, its"
                f" duration {format_time(request.duration_s)}"
            )
        for node in request.nodes:
            if node not in self._core.machine.nodes:
                raise ReshapeError(
                    f"there is no node {node!r}{nearest(node, self._core.machine.nodes)}"
                )
        self._check_partition(request)
        try:
            return ReservationRequested(
                now,
                name,
                start,
                request.duration_s,
                request.processors,
                tuple(request.nodes),
                tuple(request.users),
                request.partition,
            )
        except ValueError as error:
            raise ReshapeError(str(error)) from None

    def _check_partition(self, request: m.CreateReservation) -> None:
        """Refuse a partition that there is not, and nodes of several partitions."""
        named = {part.name: part for part in self._core.partitions}
        if request.partition and request.partition not in named:
            raise ReshapeError(
                f"there is no partition {request.partition!r}{nearest(request.partition, named)}"
            )
        partitions = [named[request.partition]] if request.partition else self._core.partitions
        nodes = request.nodes
        if not any(all(node in part.machine.nodes for node in nodes) for part in partitions):
            where = f"partition {request.partition}" if request.partition else "one partition"
            raise ReshapeError(
                f"the nodes {', '.join(nodes)} are not all in {where}: reserve those of each"
                " partition by themselves"
            )

    def _new_name(self, user: str) -> str:
        number = 1
        while f"{user}_{number}" in self._core.exclusions:
            number += 1
        return f"{user}_{number}"

    def answer(self, name: str, orders: Iterable[Order]) -> m.Reservations:
        """Return the reservation that was granted.

        Raises
        ------
        ReshapeError : it was refused.
        """
        for order in orders:
            if isinstance(order, Refuse) and order.name == name:
                why = order.reason.dated(self._clock.ahead_s)
                raise ReshapeError(f"reservation {name} is refused: {why}")
        return self._described([self._of(name)])

    def cancelled(self, name: str) -> ReservationCancelled:
        """Return the event by which a reservation is cancelled.

        Raises
        ------
        ReshapeError : there is no such reservation.
        """
        return ReservationCancelled(self._clock(), self._of(name).name)

    def table(self) -> m.Reservations:
        """Return all reservations that have not ended, in order of their begins."""
        now = self._clock()
        present = [
            exclusion
            for exclusion in self._core.exclusions.values()
            if exclusion.admits and exclusion.end > now
        ]
        present.sort(key=lambda exclusion: (exclusion.begin, exclusion.name))
        return self._described(present)

    def _described(self, reservations: list[Exclusion]) -> m.Reservations:
        """Describe reservations with the jobs that name them."""
        naming: dict[str, list[int]] = {}
        for job in self._core.jobs.values() if reservations else ():
            naming.setdefault(job.spec.reservation, []).append(job.id)
        infos = [
            self._info(reservation, naming.get(reservation.name, []))
            for reservation in reservations
        ]
        return m.Reservations(now=self._clock.wall(), reservations=infos)

    def _of(self, name: str) -> Exclusion:
        reservation = self._core.exclusions.get(name)
        if reservation is None or not reservation.admits:
            raise no_reservation(name, self._core.exclusions)
        return reservation

    def _info(self, reservation: Exclusion, jobs: list[int]) -> m.ReservationInfo:
        """Describe a reservation and the jobs that name it."""
        core = self._core
        return m.ReservationInfo(
            name=reservation.name,
            state="ACTIVE" if reservation.begin <= self._clock() < reservation.end else "INACTIVE",
            begin=reservation.begin + self._clock.ahead_s,
            end=reservation.end + self._clock.ahead_s,
            processors=reservation.processors.count(),
            nodes=list(core.machine.by_node(reservation.processors)),
            numbers=str(reservation.processors),
            users=list(reservation.users),
            partition="" if (own := core.with_reservation(reservation.name)) is None else own.name,
            running=[job for job in jobs if job in core.live],
            queued=[job for job in jobs if core.jobs[job].state is JobState.PENDING],
        )


def no_reservation(name: str, exclusions: Mapping[str, Exclusion]) -> ReshapeError:
    """Error for a reservation that does not exist."""
    names = [exclusion.name for exclusion in exclusions.values() if exclusion.admits]
    return ReshapeError(f"there is no reservation {name!r}{nearest(name, names)}")


def check_reservation(spec: JobSpec, core: Core, now: float) -> None:
    """Check that a job may name its reservation, and could run in it.

    Raises
    ------
    ReshapeError : there is no such reservation, it is in another partition, the job's user may not
        use it, or it is too small or too short for the job.
    """
    name = spec.reservation
    own, partition = core.exclusions.get(name), core.with_reservation(name)
    if own is None or partition is None or not own.admits:
        raise no_reservation(name, core.exclusions)
    if partition is not core.named(spec.partition):
        raise ReshapeError(
            f"reservation {name} is in partition {partition.name}, the job in {spec.partition}:"
            f" submit it to {partition.name}"
        )
    if not own.is_open_to(spec.user):
        raise ReshapeError(
            f"user {spec.user} may not use reservation {name}, only {', '.join(own.users)}"
        )
    count = own.processors.count()
    if spec.processors > count:
        raise ReshapeError(
            f"the job requests {spec.processors} processors, reservation {name} has {count}:"
            " request fewer"
        )
    left_s = own.end - max(own.begin, now)
    if spec.walltime_s > left_s:
        raise ReshapeError(
            f"the walltime is {format_time(spec.walltime_s)}, and reservation {name} has only"
            f" {format_time(left_s)}: request less"
        )
