"""What an experiment gave: metrics, tables, files and pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec.structs import astuple

from reshape.errors import ReshapeError, nearest
from scheduler.text.formats import counted, json_text
from simulator.experiment.settings import Settings
from simulator.experiment.tables import Columns, Named, html_of, means_of, of_rows
from simulator.results import jobs_csv
from simulator.results.jobs_csv import job_names
from simulator.results.schedule import OF_RESIZABLE, Schedule, Window
from simulator.traces import swf
from simulator.traces.files import check_place, replace_all
from simulator.traces.swf import Trace

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from scheduler.client.web.document import ReportPage
    from simulator.experiment.watches import QuotedStart
    from simulator.many_centres.schedule import CentresSchedule
    from simulator.pools import PoolRun
    from simulator.results.pictures import Scene

METRICS, ALLOCATIONS, SCHEDULE = "metrics.json", "allocations.csv", "schedule.swf"
QUOTES = "quotes.csv"
NAMED = 5  #: Jobs that could not start and are named.


class Simulation(msgspec.Struct, frozen=True, dict=True, eq=False):
    """A finished simulation.

    Parameters
    ----------
    experiment : that was simulated.
    schedule : of all jobs.
    processors : of the machine, as the results give it.
    is_rigid : whether no job is resizable.
    is_trace : whether the jobs were simulated as the columns of a trace.
    trace : that was simulated, if the jobs were those of a trace.
    centres, pool : what several centres or a pool gave besides.
    quoted : forecasts at submission on one machine.
    remarks : sentences about a size of the machine that nothing named, and what had no effect.
    """

    experiment: Settings
    schedule: Schedule
    processors: int
    is_rigid: bool
    is_trace: bool
    trace: Trace | None = None
    centres: CentresSchedule | None = None
    pool: PoolRun | None = None
    quoted: Sequence[QuotedStart] = ()
    remarks: Sequence[str] = ()

    @property
    def name(self) -> str:
        """Name of the workload."""
        return self.experiment.name

    @property
    def head(self) -> dict[str, str]:
        """Source and policies, as the files name them."""
        own = self.experiment
        head = {"trace": own.jobs.source}
        if self.centres is not None:
            return head | {"assign": own.assign_name}
        head["policy"] = own.title
        return head if self.pool is None else head | {"pool_wait": str(own.pool_wait)}

    @property
    def window(self) -> Window | None:
        """Submissions that count in the metrics; None: all."""
        window = Window(self.experiment.warm_up_s, self.experiment.cool_down_s)
        return None if window == Window() else window

    @cached_property
    def metrics(self) -> Named[Any]:
        """Numbers of the run by name; see `simulator.results.schedule.Metrics`.

        With a warm-up or a cool-down they count the jobs of the window, `left_out` is the number of
        the others, and there is nothing of fragmentation, dispersal and penalties; what a pool cost
        is that of the whole run.
        Of several centres: see `simulator.many_centres.schedule.CentresSchedule.numbers`.
        """
        schedule = self.schedule
        values: dict[str, Any] = {"processors": self.processors}
        if self.window is not None:
            inside = self.window.inside(schedule.jobs.submitted)
            values["left_out"] = int((~inside).sum())
        if self.centres is not None:
            numbers = self.centres.numbers(window=self.window, tau_s=self.experiment.tau_s)
            return Named(values | numbers | {"moved": self.centres.moved})
        values |= msgspec.structs.asdict(schedule.metrics(self.experiment.tau_s, self.window))
        if self.is_trace and self.pool is None:
            values = {name: value for name, value in values.items() if name not in OF_RESIZABLE}
        pool = {} if self.pool is None else self.pool.metrics
        if self.window is not None:
            return Named({**values, **pool})
        values |= schedule.fragmentation or {}
        values |= schedule.penalties | schedule.mean_dispersal
        return Named({**values, **pool})

    @cached_property
    def jobs(self) -> Columns:
        """One row for each job in the order of submission; times are nan if it could not run.

        On shared nodes, `penalised_s` and `penalised_pct` tell what neighbours added to a run time.
        At several centres, `origin`, `centre` and `cost` tell where a job belongs, where it ran and
        what that cost.
        """
        schedule = self.schedule
        jobs, estimates = schedule.jobs, schedule.first_estimates
        final = np.where(schedule.killed, "killed", "completed")
        other = np.where(schedule.unstarted, "unstarted", "array")
        columns = Columns(
            job=np.array(job_names(schedule)),
            user=jobs.users,
            submit_s=jobs.submitted,
            processors=jobs.processors,
            walltime_s=jobs.estimate,
            expected_s=jobs.estimate if estimates is None else estimates,
            start_s=schedule.started,
            end_s=schedule.ended,
            wait_s=schedule.wait,
            run_s=schedule.run_s,
            turnaround_s=schedule.ended - jobs.submitted,
            bounded_slowdown=schedule.bounded_slowdown(self.experiment.tau_s),
            state=np.where(schedule.ran, final, other),
            nominal_run_s=jobs.run,
        )
        if jobs.partitions:
            columns["partition"] = np.array(jobs.partitions)[jobs.partition]
        if self.centres is not None:
            columns |= self.centres.columns
        if schedule.shares_nodes:
            columns["penalised_s"] = schedule.penalised_s
            columns["penalised_pct"] = schedule.penalised_pct
        return columns

    @property
    def allocations(self) -> Columns:
        """One row for each span of time in which a job held certain processors.

        A group that joins counts from the order to expand on, as in the utilization. The processors
        are intervals of numbers such as ``0-3 8-11``, or empty if they were counted.
        """
        names = job_names(self.schedule)
        if self.schedule.allocated is not None:
            rows = [
                (names[job], begin, end, len(held), str(held))
                for job, begin, end, held in self.schedule.place_spans(joining=True)
            ]
            return of_rows(("job", "begin_s", "end_s", "processors", "numbers"), rows)
        held = self.schedule.size_spans()
        return Columns(
            job=np.array(names)[held.job],
            begin_s=held.begin,
            end_s=held.end,
            processors=held.processors,
            numbers=np.full(len(held.job), ""),
        )

    @property
    def resizes(self) -> Columns:
        """One row for each change of the size of a job."""
        names = job_names(self.schedule)
        rows = [
            (names[number - 1], at, before, after)
            for number, sizes in (self.schedule.sizes or {}).items()
            for (_, before), (at, after) in pairwise(sizes)
            if before and after
        ]
        return of_rows(("job", "at_s", "before", "after"), sorted(rows, key=lambda row: row[1]))

    @property
    def reservations(self) -> Columns:
        """One row for each advance reservation that was granted."""
        rows = [
            (reservation.name, reservation.begin, reservation.end, str(reservation.processors))
            for reservation in self.schedule.advance
        ]
        return of_rows(("name", "begin_s", "end_s", "numbers"), rows)

    @cached_property
    def quotes(self) -> Columns:
        """One row for each job whose start was forecast at its submission, in that order.

        `row` is the row of the job among the jobs, and `expected_start_s` its start without further
        arrivals. With futures there are the quantiles of the start with arrivals, `p10_start_s` to
        `p90_start_s`; `raw_p10_start_s` to `raw_p90_start_s` are these before calibration. A time
        beyond the horizon of the futures is nan.

        At several centres: `wait_s` is the wait that the chosen centre quoted, nan if it was not
        asked, and `run_s` the run time on CPU factor 1.
        """
        numbers = [quote.job for quote in self.quoted]
        if self.centres is not None:
            numbers = sorted(self.centres.quotes or {})
        names = job_names(self.schedule)
        columns = Columns(
            job=np.array([names[number - 1] for number in numbers], np.str_),
            row=np.array([number - 1 for number in numbers], np.int64),
        )
        if self.centres is not None:
            kept = [(self.centres.quotes or {})[number] for number in numbers]
            columns["wait_s"], columns["run_s"] = np.array(kept, np.float64).reshape(-1, 2).T
            return columns
        columns["expected_start_s"] = np.array([q.start_s for q in self.quoted], np.float64)
        for prefix, spreads in (
            ("", [quote.spread for quote in self.quoted]),
            ("raw_", [quote.raw for quote in self.quoted]),
        ):
            for name in ("p10", "p50", "p90"):
                times = [getattr(spread, name) for spread in spreads if spread is not None]
                if times:
                    columns[f"{prefix}{name}_start_s"] = np.array(times, np.float64)
        return columns

    @property
    def tables(self) -> dict[str, Columns]:
        """All tables that have rows, by name: these five, and those of centres and of a pool.

        `centres` has a row for each centre, with its processors and the number of jobs that ran
        there; `pool` one for each allocation, in the order of their ends.
        """
        all_tables = {
            "jobs": self.jobs,
            "allocations": self.allocations,
            "resizes": self.resizes,
            "reservations": self.reservations,
            "quotes": self.quotes,
        }
        if self.centres is not None:
            ran_at = self.centres.ran_at[self.centres.ran]
            rows: list[tuple[Any, ...]] = [
                (centre.name, centre.processors, centre.price, int((ran_at == i).sum()))
                for i, centre in enumerate(self.centres.centres)
            ]
            all_tables["centres"] = of_rows(("centre", "processors", "price", "jobs"), rows)
        if self.pool is not None:
            all_tables["pool"] = _of_pool(self.pool)
        return {name: table for name, table in all_tables.items() if table.rows}

    @property
    def summary(self) -> dict[str, Any]:
        """Source, metrics, reservations and report on the cleaning, as in metrics.json."""
        summary = {**self.head, **self.metrics}
        if self.schedule.advance:
            names = ("name", "begin_s", "end_s", "processors")
            rows = (line.values() for line in self.reservations.lines())
            summary["advance_reservations"] = [dict(zip(names, row, strict=True)) for row in rows]
        if self.schedule.report is not None:
            summary["report"] = msgspec.structs.asdict(self.schedule.report)
        return summary | ({} if self.pool is None else {"pool": str(self.experiment.pool)})

    @property
    def notes(self) -> list[str]:
        """Sentences about what the numbers do not show.

        A guessed size of the machine, jobs that cleaning changed or left out, settings without
        effect, jobs that could not start.
        """
        return [*self.remarks, *self._notes()]

    def _notes(self) -> Iterator[str]:
        report = self.schedule.report
        scenario = None if self.centres is not None else self.experiment.chosen
        if report is not None and not report.is_regular:
            yield report.sentence
        if scenario is not None and scenario.resizing is not None and self.is_rigid:
            yield (
                f"{scenario.name} resizes no job, because none is resizable: give --resizable SHARE"
                " for a trace, max_processors or min_processors for jobs of a workload file"
            )
        by_pass = scenario is not None and scenario.scheduling is not None
        yield from _unstarted(self.schedule, by_pass=by_pass)

    def files(self) -> dict[str, bytes]:
        """Contents of the files of the results, by name."""
        more = {} if self.centres is None else self.centres.columns
        contents = {jobs_csv.NAME: jobs_csv.encode(self.schedule, self.name, more)}
        if self.pool is not None:
            contents[ALLOCATIONS] = _of_pool(self.pool).csv()
        if self.quotes.rows:
            contents[QUOTES] = self.quotes.csv()
        contents[METRICS] = (json_text(self.summary, indent=2) + "\n").encode()
        return contents

    def swf(self) -> bytes:
        """The trace with the waits, run times and processors of this run.

        Raises
        ------
        ReshapeError : the jobs are not those of a trace, or they ran at several centres.
        """
        if self.trace is None or "policy" not in self.head:
            raise ReshapeError("only the jobs of a trace on one machine can be written as a trace")
        policy = self.head["policy"]
        note = f"waits simulated by reshape, policy {policy}, {self.schedule.processors} processors"
        return swf.encode(self.schedule.trace(self.trace), note)

    def write(self, folder: str | Path) -> None:
        """Write the files of the results into a folder, which is made; all of them or none.

        Raises
        ------
        ReshapeError : they cannot be written.
        """
        folder = Path(folder)
        check_place(folder / jobs_csv.NAME, make_parent=True)
        replace_all({folder / name: data for name, data in self.files().items()})

    def plot(self, path: str | Path, picture: str = "gantt") -> None:
        """Write a picture as PNG or SVG, by the ending of the path.

        Parameters
        ----------
        picture : "gantt", "load" or "queue".

        Raises
        ------
        ReshapeError : it cannot be written; there is no such picture or format.
        """
        from scheduler.pictures import FORMATS, encode
        from simulator.results.pictures import PICTURES

        path = Path(path)
        form = path.suffix.removeprefix(".")
        if picture not in PICTURES:
            raise ReshapeError(f"unknown picture {picture!r}{nearest(picture, PICTURES)}")
        if form not in FORMATS:
            raise ReshapeError(f"{path}: a picture is a .{' or .'.join(FORMATS)} file")
        check_place(path)
        replace_all({path: encode(PICTURES[picture](self._scene()), form)})

    def report(
        self, path: str | Path | None = None, *, others: Sequence[Simulation] = ()
    ) -> ReportPage:
        """Make a page of the run that opens without a server; a notebook shows it.

        Parameters
        ----------
        path : file to write it to, such as run.html; None: none.
        others : runs to show below it, on the same axis of time.

        Raises
        ------
        ReshapeError : the file cannot be written.
        """
        from scheduler.client.web.document import ReportPage, encode, page
        from simulator.results.report import run_of_schedule

        runs = []
        for each in (self, *others):
            run = run_of_schedule(each.schedule, each._scene().about, each.processors)
            run.utilization = each.metrics.get("utilization")
            runs.append(run)
        html = page(self.name, encode(runs, title=self.name))
        if path is not None:
            check_place(Path(path))
            replace_all({Path(path): html.encode()})
        return ReportPage(html)

    def gantt(self, axes: Axes) -> None:
        """Draw a Gantt chart into axes of Matplotlib."""
        from simulator.results.pictures import draw_gantt

        draw_gantt(self._scene(), axes)

    def _scene(self) -> Scene:
        from simulator.results.pictures import Scene

        size = max(self.processors, self.schedule.least_processors)
        policy = self.head.get("policy", self.head.get("assign", ""))
        return Scene(self.schedule, size, f"{self.name}, {policy}, {size} processors")

    def _repr_html_(self) -> str:
        """The name and all metrics that are single numbers, for a notebook."""
        numbers = means_of(self.metrics).items()
        rows = ((name, f"{value:.6g}") for name, value in numbers)
        return f"<b>{escape(self.name)}</b>{html_of(('metric', 'value'), rows)}"

    def __repr__(self) -> str:
        """The most important metrics."""
        shown = ("jobs", "mean_wait_s", "mean_bounded_slowdown", "utilization")
        numbers = {name: self.metrics[name] for name in shown if name in self.metrics}
        texts = (f"{name}={value:.6g}" for name, value in numbers.items())
        return f"Simulation({self.name!r}, {', '.join(texts)})"


def _of_pool(pool: PoolRun) -> Columns:
    """One row for each allocation, in the order of their ends; see `EndedAllocation`."""
    from simulator.pools import EndedAllocation  # late, as all that few runs need

    return of_rows(EndedAllocation.__struct_fields__, map(astuple, pool.allocations))


def _unstarted(schedule: Schedule, *, by_pass: bool) -> Iterator[str]:
    (indices,) = np.nonzero(schedule.unstarted)
    if not len(indices):
        return
    reasons, jobs = [], schedule.jobs
    for index in indices[:NAMED]:
        number, requested = jobs.numbers[index], int(jobs.processors[index])
        text = f"job {number} requests {counted(requested, 'processor')}"
        for name, amounts in jobs.resources.items():
            if amounts[index]:
                text += f" and {name}={amounts[index]}"
        if requested > schedule.processors:
            text += f", the machine has {schedule.processors}"
        elif by_pass:
            text += ", and the scheduling pass never started it"
        else:
            text += ", which never became available to it"
        reasons.append(text)
    if len(indices) > NAMED:
        reasons.append(f"and {len(indices) - NAMED} more")
    count = counted(len(indices), "job")
    yield f"{count} could not start and count in no mean: {'; '.join(reasons)}"
