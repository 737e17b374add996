"""``reshape simulate --machine FILE`` for a file that names several centres."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np

from reshape.errors import ConfigError
from scheduler.policies.registry import find
from scheduler.text import json_text
from simulator.commands.options import rules_of, set_fields
from simulator.commands.resizable_options import resizability
from simulator.commands.simulate_options import EXACT, estimates_name
from simulator.commands.statistics_options import (
    CentrePart,
    add_statistics,
    asks_for_statistics,
)
from simulator.commands.usage import Usage
from simulator.many_centres.centres_file import read_centres
from simulator.many_centres.run import rules_named, run_centres, with_estimates
from simulator.many_centres.schedule import CentresSchedule, jobs_csv
from simulator.statistics.job_variables import JobValues
from simulator.traces import swf
from simulator.traces.files import check_place, replace_all

JOBS = "jobs.csv"


def simulate_centres(trace: Path, options: Mapping[str, Any], usage: Usage) -> dict[str, Any]:
    """Simulate a trace at several centres, and write the files of ``--out``.

    Returns
    -------
    numbers of the run, see `simulator.many_centres.schedule.CentresSchedule.numbers`

    Raises
    ------
    click.UsageError : an option has a wrong value.
    """
    centres = read_centres(options["machine_file"])
    name = options["assign"]
    try:
        rules = rules_named(name, set_fields(options["dispatch"]))
    except ConfigError as error:
        raise click.UsageError(f"--assign {name}: {error}") from None
    exact = options["estimates"] == EXACT
    if options["estimates"] is not None:
        estimates = find("estimates", estimates_name(options["estimates"]))()
        centres, rules = with_estimates(centres, rules, estimates)
    out: Path | None = options["out"]
    if out is not None:
        check_place(out / JOBS, make_parent=True)
    read = swf.read(trace, lenient=options["lenient"])
    found = run_centres(
        read,
        centres,
        rules,
        rules_of(dict(options), exact=exact),
        first=options["first"],
        resizability=resizability(options) if options["resizable"] else None,
    )
    result: dict[str, Any] = {"trace": read.path, "assign": name}
    result |= {"processors": found.schedule.processors} | found.numbers() | {"moved": found.moved}
    if found.schedule.report is not None:
        result |= {"report": msgspec.structs.asdict(found.schedule.report)}
    files: dict[Path, bytes] = {}
    if asks_for_statistics(options):
        parts = [CentrePart(name, part) for name, part in found.by_centre().items()]
        add_statistics(_job_values(found, options["tau"]), options, result, files, parts)
    if out is not None:
        text = json_text.dumps(result, indent=2) + "\n"
        replace_all(files | {out / JOBS: jobs_csv(found), out / "metrics.json": text.encode()})
    return result | usage.so_far(len(found.schedule.jobs))


def _job_values(found: CentresSchedule, tau: float) -> JobValues:
    """Variables of the jobs, with the name and the price of the centre of each."""
    names = [*(centre.name for centre in found.centres), ""]
    prices = np.array([*(centre.price for centre in found.centres), np.nan])
    return JobValues(
        found.schedule,
        tau=tau,
        names={"centre": [names[place] for place in found.ran_at]},
        price=prices[found.ran_at],
        cost_limits=np.array(found.max_costs),
    )
