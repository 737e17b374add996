"""Statistics of ``reshape simulate``, and the files that they add."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from simulator.experiment.experiment import Experiment
from simulator.experiment.run import Simulation


def asks_for_statistics(experiment: Experiment, statistics: tuple[str, ...]) -> bool:
    """Whether statistics are wanted, so that both tables of variables are written to --out."""
    return bool(statistics) or experiment.sample_s is not None or experiment.price is not None


def check_statistics(experiment: Experiment, statistics: tuple[str, ...]) -> None:
    """Check the texts of ``--statistic`` before a simulation.

    Raises
    ------
    ConfigError : see `simulator.statistics.collectors.requests`.
    click.UsageError : a statistic of costs of jobs that have no price.
    """
    if not statistics:
        return
    from simulator.statistics.collectors import requests
    from simulator.statistics.job_variables import PRICED

    priced = experiment.price is not None or experiment.centres is not None
    for request in requests(statistics):
        if request.variable in PRICED and not priced:
            raise click.UsageError(
                f"--statistic {request} needs the price of a processor-hour; give --set price=PRICE"
            )


def add_statistics(
    run: Simulation,
    statistics: tuple[str, ...],
    result: dict[str, Any],
    files: dict[Path, bytes],
    out: Path | None,
) -> None:
    """Add statistics to the result, and the tables of their variables to the files of --out.

    Each of several centres gets a table of samples.
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

    jobs = run.values
    samples = Samples(jobs, run.sample_s)
    if statistics:
        result["statistics"] = estimate(requests(statistics), jobs, samples)
    if out is None:
        return
    files[out / JOBS_FILE] = jobs_csv(jobs)
    files[out / SAMPLES_FILE] = samples_csv(samples)
    for name, schedule in {} if run.centres is None else run.centres.by_centre().items():
        own = Samples(JobValues(schedule), times=samples.times)
        files[out / SAMPLES_FILE.replace(".csv", f"-{name}.csv")] = samples_csv(own)


def statistics_lines(result: Mapping[str, Any]) -> dict[str, Any]:
    """Statistics of a result as single numbers, for display."""
    if "statistics" not in result:
        return {}
    from simulator.statistics.collectors import flat

    return flat(result["statistics"])
