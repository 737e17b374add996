"""Tables of results: columns of equal length by name, which data frame libraries take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from reshape.errors import nearest
from scheduler.text.tables import Table as TextTable
from scheduler.text.tables import render
from simulator.results.jobs_csv import job_names
from simulator.results.schedule import (
    Schedule,
)
from simulator.traces.files import as_csv

if TYPE_CHECKING:
    from simulator.experiment.watches import QuotedStart
    from simulator.many_centres.schedule import CentresSchedule
    from simulator.pools import PoolRun

Value = TypeVar("Value")
#: Rows that are shown at each end of a long table.
SHOWN = 5


class Named(dict[str, Value]):
    """Values by name; an unknown name is an error with the most similar ones."""

    def __missing__(self, name: object) -> Value:
        """Refuse a name that is not there.

        Raises
        ------
        KeyError : always.
        """
        raise KeyError(f"there is no {name!r}{nearest(str(name), self)}")


class Columns(Named[NDArray[Any]]):
    """Columns by name, (n,) arrays; ``pandas.DataFrame(columns)`` makes a data frame of them."""

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.values()))) if self else 0

    def lines(self) -> Iterator[dict[str, Any]]:
        """Rows as mappings of plain values."""
        lists = [column.tolist() for column in self.values()]
        return (dict(zip(self, row, strict=True)) for row in zip(*lists, strict=True))

    @property
    def _size(self) -> str:
        return f"{self.rows} rows x {len(self)} columns"

    def csv(self) -> bytes:
        """The rows as CSV, below a line of the names."""
        return as_csv(self, zip(*(column.tolist() for column in self.values()), strict=True))

    def __repr__(self) -> str:
        """The first and the last rows."""
        return f"{render(TextTable([*self], self._shown()))}\n[{self._size}]"

    def _repr_html_(self) -> str:
        """The same for a notebook."""
        return f"{html_of(self, self._shown())}<p>{self._size}</p>"

    def _shown(self) -> list[list[str]]:
        """Rows as texts, of a long table the first and the last ones."""
        rows = [*range(self.rows)]
        if len(rows) > 2 * SHOWN:
            rows = [*rows[:SHOWN], *rows[-SHOWN:]]
        texts = [[_text(column[i]) for column in self.values()] for i in rows]
        if len(rows) < self.rows:
            texts.insert(SHOWN, ["..."] * len(self))
        return texts


def html_of(names: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Table in HTML of the names of its columns and the texts of its rows."""

    def line(kind: str, texts: Iterable[str]) -> str:
        return "".join(f"<{kind}>{escape(text)}</{kind}>" for text in texts)

    body = "".join(f"<tr>{line('td', row)}</tr>" for row in rows)
    return f"<table><thead><tr>{line('th', names)}</tr></thead><tbody>{body}</tbody></table>"


def of_rows(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> Columns:
    """Columns of rows; without rows they are empty."""
    listed = list(rows)
    return Columns((name, _column([row[i] for row in listed])) for i, name in enumerate(names))


def _column(values: Sequence[Any]) -> NDArray[Any]:
    """Values as an array; texts beside numbers stay what they are."""
    mixed = len({isinstance(value, str) for value in values}) > 1
    return np.array(values, object if mixed else None)


def job_columns(schedule: Schedule, tau_s: float) -> Columns:
    """One row for each job in the order of submission; times are nan where a job could not run.

    On shared nodes, `penalised_s` and `penalised_pct` tell what neighbours added to a run time.
    """
    jobs, started, ended = schedule.jobs, schedule.started, schedule.ended
    estimates = schedule.first_estimates
    columns = Columns(
        job=np.array(job_names(schedule)),
        user=jobs.users,
        submit_s=jobs.submitted,
        processors=jobs.processors,
        walltime_s=jobs.estimate,
        expected_s=jobs.estimate if estimates is None else estimates,
        start_s=started,
        end_s=ended,
        wait_s=schedule.wait,
        run_s=schedule.run_s,
        turnaround_s=ended - jobs.submitted,
        bounded_slowdown=schedule.bounded_slowdown(tau_s),
        state=np.where(schedule.ran, np.where(schedule.killed, "killed", "completed"), "unstarted"),
        nominal_run_s=jobs.run,
    )
    if jobs.partitions:
        columns["partition"] = np.array(jobs.partitions)[jobs.partition]
    if schedule.shares_nodes:
        columns["penalised_s"] = schedule.penalised_s
        columns["penalised_pct"] = schedule.penalised_pct
    return columns


def allocation_columns(schedule: Schedule) -> Columns:
    """One row for each span of time in which a job held certain processors.

    A group that joins counts from the order to expand on, as in the utilization. The processors are
    intervals of numbers such as ``0-3 8-11``, or empty if they were counted.
    """
    names = job_names(schedule)
    if schedule.allocated is not None:
        rows = [
            (names[job], begin, end, len(held), str(held))
            for job, begin, end, held in schedule.place_spans(joining=True)
        ]
        return of_rows(("job", "begin_s", "end_s", "processors", "numbers"), rows)
    held = schedule.size_spans()
    return Columns(
        job=np.array(names)[held.job],
        begin_s=held.begin,
        end_s=held.end,
        processors=held.processors,
        numbers=np.full(len(held.job), ""),
    )


def resize_columns(schedule: Schedule) -> Columns:
    """One row for each change of the size of a job."""
    names = job_names(schedule)
    rows = [
        (names[number - 1], at, before, after)
        for number, sizes in (schedule.sizes or {}).items()
        for (_, before), (at, after) in pairwise(sizes)
        if before and after
    ]
    return of_rows(("job", "at_s", "before", "after"), sorted(rows, key=lambda row: row[1]))


def centre_columns(ran: CentresSchedule) -> Columns:
    """One row for each centre: its processors, and the jobs that ran there."""
    indices = ran.ran_at[ran.ran]
    rows = [
        (centre.name, centre.processors, centre.price, int((indices == i).sum()))
        for i, centre in enumerate(ran.centres)
    ]
    return of_rows(("centre", "processors", "price", "jobs"), rows)


def pool_columns(run: PoolRun) -> Columns:
    """One row for each allocation of a pool, in the order of their ends."""
    rows = [
        (each.submitted_at, each.granted_at, each.ended_at, each.nodes, each.ending)
        for each in run.allocations
    ]
    names = ("submitted_s", "granted_s", "ended_s", "nodes", "ending")
    return of_rows(names, [[np.nan if v is None else v for v in row] for row in rows])


def decision_columns(
    rows: Sequence[tuple[float, str, str, str, int]], centres: Sequence[str]
) -> Columns:
    """One row for each decision about a job, in their order.

    Parameters
    ----------
    rows : see `simulator.experiment.watches.JobDecisions`.
    centres : names of the centres that decide, by their indices; empty: there is one core.
    """
    at, decisions, rules, sentences, cores = zip(*rows, strict=True) if rows else ((),) * 5
    columns = Columns(at_s=np.array(at, np.float64))
    if centres:
        columns["centre"] = np.array([centres[index] for index in cores], np.str_)
    columns["decision"] = np.array(decisions, np.str_)
    columns["rule"] = np.array(rules, np.str_)
    columns["reason"] = np.array(sentences, np.str_)
    return columns


def quote_columns(schedule: Schedule, quoted: Sequence[QuotedStart]) -> Columns:
    """One row for each job whose start was forecast when it was submitted, in that order.

    `row` is the row of the job among the jobs, and `expected_start_s` its start without further
    arrivals. With futures there are the quantiles of the start with arrivals, `p10_start_s` to
    `p90_start_s`; `raw_p10_start_s` to `raw_p90_start_s` are these before calibration. A time
    beyond the horizon of the futures is nan.
    """
    names = job_names(schedule)
    columns = Columns(
        job=np.array([names[quote.job - 1] for quote in quoted], np.str_),
        row=np.array([quote.job - 1 for quote in quoted], np.int64),
        expected_start_s=np.array([quote.start_s for quote in quoted], np.float64),
    )
    for prefix, spreads in (
        ("", [quote.spread for quote in quoted]),
        ("raw_", [quote.raw for quote in quoted]),
    ):
        for name in ("p10", "p50", "p90"):
            times = [getattr(spread, name) for spread in spreads if spread is not None]
            if times:
                columns[f"{prefix}{name}_start_s"] = np.array(times, np.float64)
    return columns


def centre_quote_columns(ran: CentresSchedule) -> Columns:
    """One row for each job: what was expected of it at its submission, if that was kept.

    `wait_s` is the wait that the chosen centre quoted, nan if it was not asked, and `run_s` the run
    time on CPU factor 1.
    """
    names = job_names(ran.schedule)
    quoted = sorted((ran.quotes or {}).items())
    return Columns(
        job=np.array([names[number - 1] for number, _ in quoted], np.str_),
        row=np.array([number - 1 for number, _ in quoted], np.int64),
        wait_s=np.array([quote.wait_s for _, quote in quoted], np.float64),
        run_s=np.array([quote.run_s for _, quote in quoted], np.float64),
    )


def reservation_columns(schedule: Schedule) -> Columns:
    """One row for each advance reservation that was granted."""
    rows = [
        (reservation.name, reservation.begin, reservation.end, str(reservation.processors))
        for reservation in schedule.advance
    ]
    return of_rows(("name", "begin_s", "end_s", "numbers"), rows)


def means_of(values: Mapping[str, Any]) -> dict[str, float]:
    """The entries that are single numbers."""
    return {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def _text(value: Any) -> str:
    """Value in a table; times that are long stay readable."""
    if not isinstance(value, float | np.floating):
        return str(value)
    return f"{value:.1f}" if 1e5 <= abs(float(value)) < 1e15 else f"{value:.6g}"
