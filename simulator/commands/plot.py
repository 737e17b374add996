"""``reshape plot``: pictures of the results of ``reshape simulate --out``, and of live runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reshape.cli.options import WholeRange, example
from reshape.errors import ReshapeError
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
from simulator.traces.files import check_place, replace_all

if TYPE_CHECKING:
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

    from scheduler.pictures import encode  # late: matplotlib is slow to load
    from simulator.results.pictures import PICTURES, Scene

    name = ", ".join(part for part in (*about, f"{size} processors") if part)
    hosts = nodes if machine_file is None else _hosts(machine_file, size)
    scene = Scene(schedule, size, name, hosts)
    # Each file gets a new figure: writing a figure changes its layout.
    files = {
        target / f"{name}.{form}": encode(draw(scene), form)
        for name, draw in PICTURES.items()
        for form in chosen
    }
    for table, figure in _statistics(source.parent, name):
        for form in chosen:
            files[target / f"{table}.{form}"] = encode(figure(), form)
    replace_all(files)
    result = {"jobs": len(schedule.jobs), "processors": size, "pictures": [*map(str, files)]}
    click.echo(json.dumps(result) if as_json else "\n".join(map(str, files)))


def _refuse_sweep(file: Path) -> None:
    """Say how the file of a sweep is shown.

    Raises
    ------
    ReshapeError : it is one.
    """
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
    from simulator.statistics.collectors import JOBS_FILE, SAMPLES_FILE
    from simulator.statistics.pictures import (
        OF_JOBS,
        OF_SAMPLES,
        draw_jobs,
        draw_samples,
        read_columns,
    )

    for file, needed, name, draw in (
        (JOBS_FILE, OF_JOBS, "jobs", draw_jobs),
        (SAMPLES_FILE, OF_SAMPLES, "samples", draw_samples),
    ):
        columns = read_columns(directory / file, needed)
        if columns is not None and len(columns[needed[0]]):
            yield name, partial(draw, columns, about)
