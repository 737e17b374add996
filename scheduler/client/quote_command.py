"""``reshape quote``: when a job would start and end if it were submitted now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from reshape.cli.options import WholeRange, example
from scheduler.client.forecasting import bare_submission, quote_of, quote_text
from scheduler.client.options import (
    Walltime,
    json_option,
    request_options,
    service_option,
)


@click.command()
@service_option
@click.option(
    "-n", "processors", type=WholeRange(min=1), required=True, help="Processors to start with."
)
@request_options
@click.option(
    "--futures",
    type=WholeRange(0, 1000),
    default=0,
    metavar="N",
    help="Also show P10, P50 and P90 over N forecasts with drawn run times.",
)
@click.option(
    "--arrivals",
    is_flag=True,
    help="With --futures: submit further jobs in these forecasts, at the rate of the latest ones.",
)
@click.option(
    "--seed",
    type=WholeRange(min=0),
    default=0,
    show_default=True,
    help="Seed of the drawn run times.",
)
@click.option("--horizon", type=Walltime(), help="Time from now at which forecasts end.")
@json_option
@example("reshape quote -n 16 --walltime 2:00:00 --json")
def quote(
    directory: Path,
    futures: int,
    arrivals: bool,
    seed: int,
    horizon: float | None,
    as_json: bool,
    **request: Any,
) -> None:
    """Show when a job would start and end if it were submitted now.

    Running jobs are expected to run for their estimates; jobs to come are left out. The slowdown
    is the time from now to the end divided by the run time. Nothing is submitted.
    """
    submission = bare_submission(**request)
    if arrivals and not futures:
        raise click.UsageError("--arrivals needs --futures N: only futures have arrivals")
    answer = quote_of(
        directory,
        submission,
        horizon_s=horizon,
        futures=futures,
        seed=seed,
        arrivals=arrivals,
    )
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(answer), indent=2).decode())
    else:
        click.echo(quote_text(answer))
