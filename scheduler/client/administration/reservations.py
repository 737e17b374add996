"""`reshape reserve`: advance reservations of processors for jobs of some users."""

from __future__ import annotations

from collections.abc import Callable

import click

from reshape.cli.options import WholeRange, example
from reshape.errors import ReshapeError, nearest
from scheduler.client.api.client import Client
from scheduler.client.api.service_option import service_option
from scheduler.client.options import (
    LATER_MOMENT,
    WALLTIME,
    echo_json,
    echo_list,
    json_option,
)
from scheduler.protocol import messages as m
from scheduler.text.formats import format_moment, format_time
from scheduler.text.tables import labelled

#: Columns of a list of reservations: heading -> value.
_COLUMNS: dict[str, Callable[[m.ReservationInfo], object]] = {
    "NAME": lambda its: its.name,
    "STATE": lambda its: its.state,
    "START": lambda its: format_moment(its.begin),
    "END": lambda its: format_moment(its.end),
    "DURATION": lambda its: format_time(its.end - its.begin),
    "PROCS": lambda its: its.processors,
    "NODES": lambda its: ",".join(its.nodes),
    "USERS": lambda its: ",".join(its.users) or "all",
    "JOBS": lambda its: ",".join(map(str, its.running)) or "-",
}


@click.group()
def reserve() -> None:
    """Create, list and cancel advance reservations.

    The processors of a reservation are used only by jobs submitted to it (reshape submit
    --reservation NAME), from its start to its end; see docs/reservations.md. Only administrators
    create and cancel reservations.
    """


@reserve.command()
@service_option
@click.option(
    "--name", default="", help="Name of the reservation.  [default: your user name and a number]"
)
@click.option("--processors", type=WholeRange(min=1), help="Number of processors.")
@click.option("--nodes", metavar="LIST", help="Nodes, with all their processors: n1,n2.")
@click.option(
    "--partition",
    "-p",
    default="",
    metavar="NAME",
    help="Partition of the processors.  [default: the one of the nodes, or the first]",
)
@click.option(
    "--start",
    type=LATER_MOMENT,
    help="Local date and time, or a time from now on such as now+1:00:00.  [default: now]",
)
@click.option(
    "--duration",
    type=WALLTIME,
    required=True,
    help="Duration, such as 90min, 2h or 1-12:00:00 (D-H:M:S).",
)
@click.option(
    "--users",
    "--user",
    "users",
    metavar="LIST",
    help="Users whose jobs may use it.  [default: all]",
)
@json_option
@example(
    "reshape reserve create --nodes n1,n2 --start 2026-05-01T12:00 --duration 2:00:00 --users ann",
    "reshape reserve create --name course --processors 8 --duration 1:30:00",
)
def create(
    service: Client,
    name: str,
    processors: int | None,
    nodes: str | None,
    partition: str,
    start: float | None,
    duration: float,
    users: str | None,
    as_json: bool,
) -> None:
    """Create a reservation of processors or of nodes.

    It is refused, with the earliest time at which it could be granted, if other reservations or
    running jobs have the processors at that time, by the estimates of the jobs.
    """
    if (processors is None) == (nodes is None):
        raise click.UsageError("give either --processors or --nodes")
    request = m.CreateReservation(
        duration_s=duration,
        name=name,
        start=start,
        processors=processors or 0,
        nodes=_names(nodes),
        users=_names(users),
        partition=partition,
    )
    answer = service.ask(m.ChangeMachine(change=request), m.Reservations)
    _echo(answer.reservations, as_json=as_json)


@reserve.command("list")
@service_option
@json_option
@example("reshape reserve list")
def list_reservations(service: Client, as_json: bool) -> None:
    """List the reservations that have not ended."""
    echo_list(_all(service), _COLUMNS, "NAME STATE NODES USERS JOBS", as_json)


@reserve.command()
@service_option
@json_option
@click.argument("name")
@example("reshape reserve info course")
def info(service: Client, name: str, as_json: bool) -> None:
    """Show a reservation with its processors and jobs."""
    reservations = _all(service)
    matching = [reservation for reservation in reservations if reservation.name == name]
    if not matching:
        names = [reservation.name for reservation in reservations]
        raise ReshapeError(f"there is no reservation {name!r}{nearest(name, names)}")
    _echo(matching, as_json=as_json)


@reserve.command()
@service_option
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@example("reshape reserve cancel course")
def cancel(service: Client, names: tuple[str, ...]) -> None:
    """Cancel reservations.

    Their running jobs continue. Jobs that wait for them stay in the queue until they are cancelled.
    """
    for name in names:
        service.ask(m.ChangeMachine(change=m.CancelReservation(name)), m.Done)
        click.echo(f"reservation {name} is cancelled")


def _all(service: Client) -> list[m.ReservationInfo]:
    return service.ask(m.ListMachine(part="reservations"), m.Reservations).reservations


def _names(text: str | None) -> list[str]:
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _echo(reservations: list[m.ReservationInfo], *, as_json: bool) -> None:
    """Print reservations, one value on a line."""
    if as_json:
        echo_json(reservations)
        return
    for reservation in reservations:
        lines = {heading.capitalize(): value(reservation) for heading, value in _COLUMNS.items()}
        lines |= {
            "Numbers": reservation.numbers,
            "Queued": ",".join(map(str, reservation.queued)) or "-",
        }
        click.echo(labelled(lines))
