"""Options of ``reshape simulate`` for statistics, and the files that they add."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from reshape.cli.options import FiniteRange, Seconds
from simulator.results.schedule import Schedule
from simulator.workloads.workload_file import ENDINGS

if TYPE_CHECKING:
    from simulator.statistics.job_variables import JobValues

Command = TypeVar("Command", bound=Callable[..., Any])
#: Options with which both tables of variables are written to --out.
NAMES = ("statistic", "sample", "price")


def statistics_options(command: Command) -> Command:
    """Add the options to a command."""
    for option in (
        click.option(
            "--price",
            type=FiniteRange(min=0),
            help="Price of a processor-hour, for the costs of jobs.",
        ),
        click.option(
            "--sample",
            type=Seconds(),
            metavar="SECONDS",
            help="Time between two samples, in seconds or such as 1h.  [default: 3600]",
        ),
        click.option(
            "--statistic",
            multiple=True,
            metavar="VARIABLE=ESTIMATOR",
            help="Statistic to compute, such as wait_s=mean,p95; see docs/statistics.md.",
        ),
    ):
        command = option(command)
    return command


def asks_for_statistics(options: Mapping[str, Any]) -> bool:
    """Whether one of the options is given."""
    return any(options[name] for name in NAMES)


def check_statistics(options: Mapping[str, Any], *, priced: bool = False) -> None:
    """Check the requested statistics before a simulation.

    Parameters
    ----------
    priced : whether the machine has prices.

    Raises
    ------
    ConfigError : see `simulator.statistics.collectors.requests`.
    click.UsageError : a statistic of costs without --price.
    """
    if not options["statistic"]:
        return
    from simulator.statistics.collectors import requests
    from simulator.statistics.job_variables import PRICED

    for request in requests(options["statistic"]):
        if request.variable in PRICED and options["price"] is None and not priced:
            raise click.UsageError(f"--statistic {request} needs --price")


class CentrePart(NamedTuple):
    """A centre of a schedule of several, for the tables of their own.

    Parameters
    ----------
    name : of the centre.
    schedule : in which only the jobs that ran there have ended.
    """

    name: str
    schedule: Schedule


def add_statistics(
    jobs: JobValues,
    options: Mapping[str, Any],
    result: dict[str, Any],
    files: dict[Path, bytes],
    centres: Sequence[CentrePart] = (),
) -> None:
    """Add statistics to the result, and the tables of their variables to the files of --out.

    Parameters
    ----------
    centres : of a schedule of several; each gets a table of samples.
    """
    from simulator.statistics.collectors import (
        JOBS_FILE,
        SAMPLES_FILE,
        estimate,
        jobs_csv,
        requests,
        samples_csv,
    )
    from simulator.statistics.job_variables import JobValues
    from simulator.statistics.samples import Samples

    samples = Samples(jobs, options["sample"] or 3600.0)
    if options["statistic"]:
        result["statistics"] = estimate(requests(options["statistic"]), jobs, samples)
    if options["out"] is None:
        return
    files[options["out"] / JOBS_FILE] = jobs_csv(jobs)
    files[options["out"] / SAMPLES_FILE] = samples_csv(samples)
    for centre in centres:
        own = Samples(JobValues(centre.schedule), times=samples.times)
        name = SAMPLES_FILE.replace(".csv", f"-{centre.name}.csv")
        files[options["out"] / name] = samples_csv(own)


def job_values(
    schedule: Schedule, options: Mapping[str, Any], machine: Path, selection: str
) -> JobValues:
    """Variables of the jobs of a schedule of one centre.

    Parameters
    ----------
    selection : name of the processor selection.
    machine : file that names the centre: of the machine, or of the workload.
    """
    from simulator.statistics.job_variables import JobValues

    name = machine.name
    for ending in (".gz", ".swf", *ENDINGS):
        name = name.removesuffix(ending)
    names = {"selection": selection, "centre": name}
    return JobValues(schedule, tau=options["tau"], names=names, price=options["price"])


def statistics_lines(result: Mapping[str, Any]) -> dict[str, Any]:
    """Statistics of a result as single numbers, for display."""
    if "statistics" not in result:
        return {}
    from simulator.statistics.collectors import flat

    return flat(result["statistics"])
