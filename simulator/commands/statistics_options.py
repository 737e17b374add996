"""Options of ``reshape simulate`` for statistics, and the files that they add."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from reshape.cli.options import FiniteRange
from simulator.results.schedule import Schedule

Command = TypeVar("Command", bound=Callable[..., Any])
#: Options with which both tables of variables are written to --out.
NAMES = ("statistic", "sample", "price")


def statistics_options(command: Command) -> Command:
    """Add the options to a command."""
    for option in (
        click.option(
            "--price", type=FiniteRange(min=0), help="Of a processor-hour, for the costs of jobs."
        ),
        click.option(
            "--sample",
            type=FiniteRange(min=0, min_open=True),
            metavar="SECONDS",
            help="Between two samples of the machine (3600).",
        ),
        click.option(
            "--statistic",
            multiple=True,
            metavar="VARIABLE=ESTIMATOR",
            help="As in wait_s=mean,p95; see docs/statistics.md.",
        ),
    ):
        command = option(command)
    return command


def check_statistics(options: Mapping[str, Any]) -> None:
    """Check the requested statistics before a simulation.

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
        if request.variable in PRICED and options["price"] is None:
            raise click.UsageError(f"--statistic {request} needs --price")


def add_statistics(
    schedule: Schedule,
    options: Mapping[str, Any],
    machine: Path,
    result: dict[str, Any],
    files: dict[Path, bytes],
) -> None:
    """Add statistics to the result, and the tables of their variables to the files of --out.

    Parameters
    ----------
    machine : file that names the centre: of the machine, or of the workload.
    """
    if not any(options[name] for name in NAMES):
        return
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

    names = {"selection": options["select"], "centre": machine.name.partition(".")[0]}
    jobs = JobValues(schedule, tau=options["tau"], names=names, price=options["price"])
    samples = Samples(jobs, options["sample"] or 3600.0)
    if options["statistic"]:
        result["statistics"] = estimate(requests(options["statistic"]), jobs, samples)
    if options["out"] is not None:
        files[options["out"] / JOBS_FILE] = jobs_csv(jobs)
        files[options["out"] / SAMPLES_FILE] = samples_csv(samples)


def statistics_lines(result: Mapping[str, Any]) -> dict[str, Any]:
    """Statistics of a result as single numbers, for display."""
    if "statistics" not in result:
        return {}
    from simulator.statistics.collectors import flat

    return flat(result["statistics"])
