"""What an experiment gave: metrics, tables, files and pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from reshape.errors import ReshapeError, nearest
from scheduler.policies.scenario import Scenario
from scheduler.text.formats import counted, json_text
from simulator.experiment import tables
from simulator.experiment.columns import PARQUET, as_parquet
from simulator.experiment.tables import Columns, Named
from simulator.results import jobs_csv
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
    name : of the workload.
    head : source and policies, as the files name them.
    scenario : of the machine; None: each centre has its own.
    schedule : of all jobs.
    processors : of the machine, as the results give it.
    tau_s : bound of the bounded slowdown, s.
    is_rigid : whether no job is resizable.
    is_trace : whether the jobs were simulated as the columns of a trace.
    trace : that was simulated, if the jobs were those of a trace.
    centres, pool : what several centres or a pool gave besides.
    site : options of the pool.
    window : submissions that count in the metrics; None: all.
    quoted : forecasts at submission on one machine.
    remarks : sentences about a size of the machine that nothing named, and what had no effect.
    """

    name: str
    head: Mapping[str, str]
    scenario: Scenario | None
    schedule: Schedule
    processors: int
    tau_s: float
    is_rigid: bool
    is_trace: bool
    trace: Trace | None = None
    centres: CentresSchedule | None = None
    pool: PoolRun | None = None
    site: str = ""
    window: Window | None = None
    quoted: Sequence[QuotedStart] = ()
    remarks: Sequence[str] = ()

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
            numbers = self.centres.numbers(window=self.window)
            return Named(values | numbers | {"moved": self.centres.moved})
        values |= msgspec.structs.asdict(schedule.metrics(self.tau_s, self.window))
        if self.is_trace and self.pool is None:
            values = {name: value for name, value in values.items() if name not in OF_RESIZABLE}
        pool = {} if self.pool is None else self.pool.metrics
        if self.window is not None:
            return Named({**values, **pool})
        values |= schedule.fragmentation or {}
        values |= schedule.penalties
        if schedule.dispersal is not None:
            values |= schedule.dispersal.means()
        return Named({**values, **pool})

    @cached_property
    def jobs(self) -> Columns:
        """Jobs, one row each; see `simulator.experiment.tables.job_columns`."""
        return tables.job_columns(self.schedule, self.tau_s)

    @property
    def allocations(self) -> Columns:
        """Processors of each job over time."""
        return tables.allocation_columns(self.schedule)

    @property
    def resizes(self) -> Columns:
        """Changes of the sizes of jobs."""
        return tables.resize_columns(self.schedule)

    @property
    def reservations(self) -> Columns:
        """Advance reservations that were granted."""
        return tables.reservation_columns(self.schedule)

    @cached_property
    def quotes(self) -> Columns:
        """What was forecast of jobs at their submission, if the experiment asked for it."""
        if self.centres is not None:
            return tables.centre_quote_columns(self.centres)
        return tables.quote_columns(self.schedule, self.quoted)

    @property
    def tables(self) -> dict[str, Columns]:
        """All tables that have rows, by name: these five, and the tables of centres and a pool."""
        all_tables = {
            "jobs": self.jobs,
            "allocations": self.allocations,
            "resizes": self.resizes,
            "reservations": self.reservations,
            "quotes": self.quotes,
        }
        if self.centres is not None:
            all_tables["centres"] = tables.centre_columns(self.centres)
        if self.pool is not None:
            all_tables["pool"] = tables.pool_columns(self.pool)
        return {name: table for name, table in all_tables.items() if table.rows}

    @property
    def summary(self) -> dict[str, Any]:
        """Source, metrics, reservations and report on the cleaning, as in metrics.json."""
        summary = {**self.head, **self.metrics}
        if self.schedule.advance:
            summary["advance_reservations"] = [
                {
                    "name": reservation.name,
                    "begin_s": reservation.begin,
                    "end_s": reservation.end,
                    "processors": str(reservation.processors),
                }
                for reservation in self.schedule.advance
            ]
        if self.schedule.report is not None:
            summary["report"] = msgspec.structs.asdict(self.schedule.report)
        return summary | ({} if self.pool is None else {"pool": self.site})

    @property
    def notes(self) -> list[str]:
        """Sentences about what the numbers do not show.

        A guessed size of the machine, jobs that cleaning changed or left out, settings without
        effect, jobs that could not start.
        """
        return [*self.remarks, *_notes(self.schedule, self.scenario, is_rigid=self.is_rigid)]

    def files(self, summary: Mapping[str, Any] | None = None) -> dict[str, bytes]:
        """Contents of the files of the results, by name.

        Parameters
        ----------
        summary : contents of metrics.json; None: `Simulation.summary`.
        """
        if self.centres is not None:
            contents = {jobs_csv.NAME: self.centres.jobs_csv()}
        else:
            contents = {jobs_csv.NAME: jobs_csv.encode(self.schedule, self.name)}
        if self.pool is not None:
            contents[ALLOCATIONS] = self.pool.allocations_csv()
        if self.quotes.rows:
            contents[QUOTES] = self.quotes.csv()
        contents[METRICS] = (json_text(summary or self.summary, indent=2) + "\n").encode()
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

    def write(self, folder: str | Path, *, with_parquet: bool = False) -> None:
        """Write the files of the results into a folder, which is made; all of them or none.

        Parameters
        ----------
        with_parquet : write `Simulation.jobs` as jobs.parquet, too; it needs pyarrow.

        Raises
        ------
        ReshapeError : they cannot be written.
        """
        folder = Path(folder)
        files = self.files()
        if with_parquet:
            files[f"jobs{PARQUET}"] = as_parquet(self.jobs)
        check_place(folder / jobs_csv.NAME, make_parent=True)
        replace_all({folder / name: data for name, data in files.items()})

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
        numbers = tables.means_of(self.metrics).items()
        rows = ((name, f"{value:.6g}") for name, value in numbers)
        return f"<b>{escape(self.name)}</b>{tables.html_of(('metric', 'value'), rows)}"

    def __repr__(self) -> str:
        """The most important metrics."""
        shown = ("jobs", "mean_wait_s", "mean_bounded_slowdown", "utilization")
        numbers = {name: self.metrics[name] for name in shown if name in self.metrics}
        texts = (f"{name}={value:.6g}" for name, value in numbers.items())
        return f"Simulation({self.name!r}, {', '.join(texts)})"


def _notes(schedule: Schedule, chosen: Scenario | None, *, is_rigid: bool) -> Iterator[str]:
    """Say what cleaning changed, which settings had no effect, and which jobs the means leave out.

    Parameters
    ----------
    chosen : scenario of the machine; None: there are several centres.
    is_rigid : whether the workload has no resizable job.
    """
    if schedule.report is not None and not schedule.report.is_regular:
        yield schedule.report.sentence
    if chosen is not None and chosen.resizing is not None and is_rigid:
        yield (
            f"{chosen.name} resizes no job, because none is resizable: give --resizable SHARE for a"
            " trace, max_processors or min_processors for jobs of a workload file"
        )
    by_pass = chosen is not None and chosen.scheduling is not None
    yield from _unstarted(schedule, by_pass=by_pass)


def _unstarted(schedule: Schedule, *, by_pass: bool) -> Iterator[str]:
    (indices,) = np.nonzero(~schedule.ran)
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
