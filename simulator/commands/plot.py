"""``reshape plot``: pictures of the results of ``reshape simulate --out``, and of live runs.

Those of statistics are as GUIM 4.2.3 draws them. Of the jobs: slowdown, bounded slowdown, wait and
penalised run time over the submissions, and how many jobs were completed and killed, by centre. Of
the machine: every sampled variable over time.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click
import numpy as np
from numpy.typing import NDArray

from reshape.cli.options import WholeRange, example
from reshape.errors import ReshapeError
from scheduler import pictures as drawing
from scheduler.config import machine_file as platform
from scheduler.model.procset import ProcSet
from simulator.commands.options import (
    JOURNAL,
    METRICS,
    StoredRun,
    is_sweep,
    json_option,
    simulated_results,
)
from simulator.results import jobs_csv
from simulator.statistics import JOBS_FILE, SAMPLES_FILE
from simulator.traces.files import check_place, replace_all
from simulator.traces.swf import LARGEST

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")


@click.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "formats",
    default=",".join(FORMATS),
    show_default=True,
    help="Formats of the pictures, separated by commas.",
)
@click.option(
    "--processors",
    type=WholeRange(min=1),
    help="Processors of the machine.  [default: as metrics.json says]",
)
@click.option(
    "--machine",
    "machine_file",
    type=click.Path(path_type=Path),
    help="Machine file, by whose nodes the Gantt chart groups its rows.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Directory for the pictures.  [default: DIRECTORY; the current one for a live run]",
)
@json_option
@example(
    "reshape simulate trace.swf --select first-fit --out results",
    "reshape plot results --format png",
    "reshape plot ~/.reshape --out pictures",
)
def plot(
    directory: Path,
    formats: str,
    processors: int | None,
    machine_file: Path | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Draw gantt, load and queue from the jobs.csv in DIRECTORY, as PNG and SVG.

    If the results have statistics (reshape simulate --statistic, or --set sample_s=T), it draws
    their variables, too: jobs and samples. The Gantt chart shows individual processors if they were
    allocated (--select), else the number in use; --machine groups them by host. Any jobs.csv in the
    columns of Batsim can be drawn.

    From the directory of a service, or a journal, it draws the live run.
    """
    chosen = [form.strip().lower() for form in formats.split(",")]
    for form in chosen:
        if form not in FORMATS:
            raise click.UsageError(f"--format {form}: must be {' or '.join(FORMATS)}, or both")
    if directory.is_file():
        _refuse_sweep(directory)
    if directory.is_file() or (directory / JOURNAL).is_file():
        source, target = directory if directory.is_file() else directory / JOURNAL, out or Path()
        schedule, known, about, nodes, _ = _live_run(directory)
    else:
        source, target = directory / jobs_csv.NAME, out or directory
        schedule, known, about, nodes, _ = simulated_results(directory)
    least = schedule.least_processors
    size = processors or known or least
    if processors is None and known is None:
        click.echo(
            f"reshape: {source.parent / METRICS} names no processors: the machine has {size}, as"
            " many as the jobs need at least; --processors sets another number",
            err=True,
        )
    if size < least:
        raise ReshapeError(
            f"{source}: a job held processor {least - 1}, the machine"
            f" has {size}; give --processors {least} or more"
        )
    check_place(target / "gantt.png", make_parent=True)

    from simulator.results.pictures import PICTURES, Scene  # late: matplotlib is slow to load

    name = ", ".join(part for part in (*about, f"{size} processors") if part)
    hosts = nodes if machine_file is None else _hosts(machine_file, size)
    scene = Scene(schedule, size, name, hosts)
    # Each file gets a new figure: writing a figure changes its layout.
    files = {
        target / f"{name}.{form}": drawing.encode(draw(scene), form)
        for name, draw in PICTURES.items()
        for form in chosen
    }
    for table, figure in _statistics(source.parent, name):
        for form in chosen:
            files[target / f"{table}.{form}"] = drawing.encode(figure(), form)
    replace_all(files)
    result = {"jobs": len(schedule.jobs), "processors": size, "pictures": [*map(str, files)]}
    click.echo(json.dumps(result) if as_json else "\n".join(map(str, files)))


def _refuse_sweep(file: Path) -> None:
    """Refuse the file of a sweep, and say how it is shown."""
    if is_sweep(file):
        fix = f"reshape report {file} shows its table, and docs/python.md how to plot it"
        raise ReshapeError(f"{file} is the file of a sweep, which has no schedule: {fix}")


def _live_run(directory: Path) -> StoredRun:
    from scheduler.journal.journal_reader import reading
    from simulator.live_runs import pictured_run

    name = f"live run of {directory}"
    with reading(directory) as journal:
        schedule, nodes = pictured_run(journal, name)
    return StoredRun(schedule, schedule.processors, (name,), nodes)


def _hosts(machine_file: Path, processors: int) -> Mapping[str, ProcSet]:
    """Processors of each node of a machine file."""
    machine = platform.read(machine_file)
    if machine.processors < processors:
        raise ReshapeError(
            f"{machine_file} has {machine.processors} processors, the schedule uses {processors}:"
            " give the machine file of the simulation"
        )
    return machine.places


def _statistics(directory: Path, about: str) -> Iterator[tuple[str, Callable[[], Figure]]]:
    """Names and drawing functions of the pictures of statistics for which there are tables."""
    for file, needed, name, draw in (
        (JOBS_FILE, OF_JOBS, "jobs", draw_jobs),
        (SAMPLES_FILE, OF_SAMPLES, "samples", draw_samples),
    ):
        columns = read_columns(directory / file, needed)
        if columns is not None and len(columns[needed[0]]):
            yield name, partial(draw, columns, about)


#: Column -> numbers, nan where there is none, or texts.
Columns: TypeAlias = dict[str, NDArray[Any]]
#: Columns of texts.
TEXTS = ("job_id", "selection", "centre")


def read_columns(path: Path, needed: Iterable[str]) -> Columns | None:
    """Read a table; None if there is no such file.

    Parameters
    ----------
    needed : columns that must be there.

    Raises
    ------
    ReshapeError : it cannot be read, lacks a column or has one twice, or a field is no number up to
        `LARGEST`; the message names file, line and column.
    """
    try:
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.reader(file)
            header = next(reader, [])
            rows = [(reader.line_num, row) for row in reader]
    except FileNotFoundError:
        return None
    except (OSError, csv.Error, UnicodeDecodeError) as error:
        raise ReshapeError(f"{path}: cannot be read: {error}") from None
    for line, row in rows:
        if len(row) != len(header):
            raise ReshapeError(f"{path}:{line}: {len(row)} fields, the header has {len(header)}")
    for name in needed:
        if header.count(name) != 1:
            what = "no column" if name not in header else "more than one column"
            raise ReshapeError(f"{path}: {what} {name:.80}; write it with reshape simulate --out")
    columns: Columns = {}
    for index, name in enumerate(header):
        fields = [(line, row[index]) for line, row in rows]
        if name in TEXTS:
            columns[name] = np.array([text for _, text in fields])
        else:
            columns[name] = np.array([_number(path, line, name, text) for line, text in fields])
    return columns


def _number(path: Path, line: int, column: str, text: str) -> float:
    try:
        number = float(text) if text else np.nan
    except ValueError:
        number = np.inf
    if abs(number) > LARGEST:
        raise ReshapeError(f"{path}:{line}: {column:.80}: {text[:80]!r} is not a number up to 1e15")
    return number


DAY_S: Final = 86400.0
#: Spans of jobs for medians and 95th percentiles; spans of samples for means.
SPANS: Final = 60
MOST_SAMPLES: Final = 1000
OVER_JOBS: Final = {
    "wait_s": "wait, s",
    "slowdown": "slowdown",
    "bounded_slowdown": "bounded\nslowdown",
    "penalised_s": "penalised\nrun time, s",
}
OF_MACHINE: Final = {
    "queued_jobs": "queued\njobs",
    "running_jobs": "running\njobs",
    "processors_used": "processors\nused",
    "pending_work": "pending work,\nprocessor-hours",
    "submitted_jobs": "submitted\njobs",
    "backfilled_jobs": "backfilled\njobs",
    "killed_jobs": "killed\njobs",
}


KINDS: Final = ("completed", "killed", "backfilled")
#: Columns that are drawn.
OF_JOBS: Final = ("submission_time", *OVER_JOBS, *KINDS)
OF_SAMPLES: Final = ("time", *OF_MACHINE)


def draw_jobs(columns: Columns, about: str) -> Figure:
    """Draw the variables of jobs over their submissions, and how the jobs ended."""
    names = [name for name in OVER_JOBS if _varies(columns[name])]
    figure = drawing.new_figure(2.4 + 1.7 * len(names), f"Jobs: {about}")
    days = (columns["submission_time"] - columns["submission_time"].min()) / DAY_S
    order = np.argsort(days, kind="stable")
    spec = figure.add_gridspec(len(names) + 1, 1, height_ratios=[1.7] * len(names) + [1.4])
    above: Axes | None = None
    for index, name in enumerate(names):
        axes = figure.add_subplot(spec[index], sharex=above)
        above = above or axes
        _over_jobs(axes, days[order], columns[name][order], positive=name.endswith("_s"))
        axes.set_ylabel(OVER_JOBS[name])
        if index == 0:
            axes.legend(frameon=False, fontsize=9, loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
            axes.set_title("waits below 1 s are drawn at 1 s", loc="right", fontsize=9)
        if index == len(names) - 1:
            axes.set_xlabel("submission, days since the first one")
        else:
            axes.tick_params(labelbottom=False)
    _ends(figure.add_subplot(spec[len(names)]), columns)
    figure.align_ylabels()
    return figure


def draw_samples(columns: Columns, about: str) -> Figure:
    """Draw the sampled variables over time; constant ones are left out."""
    names = [name for name in OF_MACHINE if _varies(columns[name])] or ["processors_used"]
    figure = drawing.new_figure(1 + 1.25 * len(names), f"Machine: {about}")
    rows = figure.subplots(len(names), 1, sharex=True, squeeze=False)[:, 0]
    times = (columns["time"] - columns["time"].min()) / DAY_S
    for axes, name in zip(rows, names, strict=True):
        values = columns[name] / (3600 if name == "pending_work" else 1)
        _over_time(axes, times, values)
        axes.set_ylabel(OF_MACHINE[name])
        drawing.reduce_frame(axes)
    rows[-1].set_xlabel("days since the first sample")
    rows[0].margins(x=0.01)
    figure.align_ylabels()
    return figure


def _varies(values: NDArray[np.float64]) -> bool:
    there = values[~np.isnan(values)]
    return len(there) > 0 and bool(there.max() > there.min())


def _over_jobs(
    axes: Axes, days: NDArray[np.float64], values: NDArray[np.float64], *, positive: bool
) -> None:
    """Draw a dot for each job, and median and 95th percentile over spans of jobs."""
    shown = np.maximum(values, 1.0) if positive else values
    area = float(np.clip(6000 / max(1, len(shown)), 2, 12))  # few dots are drawn larger
    axes.scatter(days, shown, s=area, color=drawing.WAITING, alpha=0.5, linewidths=0,
                 rasterized=True, label="a job")  # fmt: skip
    there = np.flatnonzero(~np.isnan(shown))
    spans = [span for span in np.array_split(there, SPANS) if len(span)]
    middles = [float(days[span].mean()) for span in spans]
    axes.plot(middles, [float(np.median(shown[span])) for span in spans], color=drawing.INK,
              label="median")  # fmt: skip
    axes.plot(
        middles,
        [float(np.percentile(shown[span], 95)) for span in spans],
        color="#d98c2b",
        label="95th percentile",
    )
    axes.set_yscale("log")
    axes.margins(x=0.01)
    drawing.reduce_frame(axes)


def _over_time(axes: Axes, times: NDArray[np.float64], values: NDArray[np.float64]) -> None:
    """Draw the samples, or means over spans of them and the largest of each span."""
    if len(times) > MOST_SAMPLES:
        spans = [span for span in np.array_split(np.arange(len(times)), MOST_SAMPLES) if len(span)]
        times = np.array([times[span[0]] for span in spans])
        axes.plot(times, [float(values[span].max()) for span in spans], color=drawing.INK,
                  linewidth=0.5)  # fmt: skip
        values = np.array([float(values[span].mean()) for span in spans])
    axes.fill_between(times, values, step="post", color="#1f6fb2", alpha=0.6, linewidth=0)
    axes.set_ylim(bottom=0)


def _ends(axes: Axes, columns: Columns) -> None:
    """Draw how many jobs were completed, killed and backfilled, by centre."""
    centres = np.unique(columns["centre"]) if "centre" in columns else np.array(["jobs"])
    for index, centre in enumerate(centres):
        of = columns["centre"] == centre if "centre" in columns else slice(None)
        counts = [int(columns[kind][of].sum()) for kind in KINDS]
        y = np.arange(len(KINDS)) + 0.8 * index / len(centres)
        bars = axes.barh(y, counts, 0.7 / len(centres), label=str(centre))
        axes.bar_label(bars, [str(number) for number in counts], padding=3, fontsize=9)
    axes.set_yticks(np.arange(len(KINDS)), KINDS)
    axes.invert_yaxis()
    axes.set_xlabel("jobs")
    axes.margins(x=0.1)
    if len(centres) > 1:
        axes.legend(loc="best", frameon=False, fontsize=9)
    drawing.reduce_frame(axes)
