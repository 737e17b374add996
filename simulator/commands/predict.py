"""``reshape predict``: the accuracy of predictors of run times over a trace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np

from reshape.cli.options import example
from reshape.errors import ConfigError, nearest
from scheduler.policies.registry import known
from scheduler.policies.scenarios import changed, scenario
from scheduler.predictions.estimates import UserPredictor
from scheduler.predictions.predictor import Predictor
from scheduler.text.formats import json_text
from scheduler.text.tables import Table, render
from simulator.commands.options import (
    first_option,
    json_option,
    lenient_option,
    processors_option,
    rule_options,
    rules_of,
    set_fields,
)
from simulator.predictions.accuracy import Accuracy, PlayedTrace, play
from simulator.predictions.fake import GivenEstimates
from simulator.traces import swf
from simulator.traces.files import as_csv, check_place, replace_all
from simulator.traces.normalise import LABELS, NEEDED, machine_size, normalise
from simulator.traces.trace_jobs import TraceJobs

EXACT = "exact"
DEFAULT = ("user", "tsafrir", "statistical", "regression", "classification", "hybrid")


@click.command()
@click.argument("trace", type=click.Path(path_type=Path))
@click.option(
    "--predictor",
    "names",
    multiple=True,
    metavar="NAME",
    help=f"Predictors, separated by commas; may be repeated.  [default: {', '.join(DEFAULT)}]",
)
@click.option(
    "--set", "fields", multiple=True, metavar="NAME.FIELD=VALUE", help="Set a field of a predictor."
)
@processors_option
@first_option
@rule_options
@lenient_option
@click.option("--out", type=click.Path(path_type=Path), help="Directory for picture and data.")
@json_option
@example(
    "reshape predict KTH-SP2.swf.gz",
    "reshape predict trace.swf --predictor tsafrir,statistical --set statistical.estimator=median",
)
def predict(
    trace: Path,
    names: tuple[str, ...],
    fields: tuple[str, ...],
    processors: int | None,
    first: int | None,
    lenient: bool,
    out: Path | None,
    as_json: bool,
    **rules: Any,
) -> None:
    """Measure how accurately predictors foresee the run times of TRACE.

    Each job is predicted at its submission, from the jobs that have ended by then, with the waiting
    times of the trace. Predictors that need a package that is missing are left out and named. See
    docs/predictions.md.
    """
    chosen = _names(names)
    parameters = _parameters(fields, chosen)
    if out is not None:
        check_place(out / "errors.png", make_parent=True)
    read = swf.read(trace, fields=(*NEEDED, *LABELS.values(), "wait"), lenient=lenient)
    jobs, report = normalise(read, processors or machine_size(read), rules_of(rules), labels=True)
    jobs = jobs if first is None else jobs.first(first)
    waits_s = np.maximum(read.columns["wait"][jobs.lines].astype(np.float64), 0.0)
    played: dict[str, PlayedTrace] = {}
    left_out: dict[str, str] = {}
    for name in chosen:
        try:
            predictor = _predictor(name, parameters[name], jobs)
        except ConfigError as error:
            if name not in ("classification", "hybrid") or parameters[name]:
                raise
            left_out[name] = error.message
            continue
        played[name] = play(predictor, jobs, waits_s)
    if not played:
        raise ConfigError(next(iter(left_out.values())))
    rows = {name: each.accuracy() for name, each in played.items()}
    result = {"trace": read.path, "jobs": len(jobs), "predictors": msgspec.to_builtins(rows)}
    result |= {"left_out": left_out, "report": msgspec.structs.asdict(report)}
    if out is not None:
        _write(out, trace.name, jobs, played, result)
    for name, reason in left_out.items():
        click.echo(f"{name} is left out: {reason}", err=True)
    click.echo(json_text(result) if as_json else _table(rows))


def _names(names: Iterable[str]) -> list[str]:
    """Return the names of the predictors, each once.

    Raises
    ------
    click.UsageError : a name is unknown.
    """
    given = [part.strip() for name in names for part in name.split(",")]
    offered = (EXACT, *known("estimates"))
    for name in given:
        if name not in offered and ":" not in name:
            raise click.UsageError(f"unknown predictor {name!r}{nearest(name, offered)}")
    return list(dict.fromkeys(given or DEFAULT))


def _parameters(fields: Iterable[str], names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return the fields that are set, by predictor.

    Raises
    ------
    click.UsageError : a field belongs to none of the predictors.
    """
    parameters: dict[str, dict[str, str]] = {name: {} for name in names}
    for path, value in set_fields(fields).items():
        name, dot, field = path.partition(".")
        if not dot or name not in parameters:
            raise click.UsageError(
                f"--set {path}: write NAME.FIELD with one of the predictors {', '.join(parameters)}"
            )
        parameters[name][f"estimates.{field}"] = value
    return parameters


def _predictor(name: str, parameters: Mapping[str, str], jobs: TraceJobs) -> Predictor:
    """Create a predictor.

    Raises
    ------
    ConfigError : a field does not exist, a value does not fit, or a package is missing.
    """
    if name == EXACT:
        return GivenEstimates(jobs.run_times()).predictor()
    estimates = changed(scenario("easy"), {"estimates": name, **parameters}).estimates
    return estimates.predictor() or UserPredictor()


def _write(
    out: Path,
    about: str,
    jobs: TraceJobs,
    played: Mapping[str, PlayedTrace],
    result: Mapping[str, Any],
) -> None:
    """Write accuracy.json, errors.csv and errors.png."""
    from scheduler.pictures import encode  # late: matplotlib is slow to load
    from simulator.predictions.accuracy import draw_errors

    names = ["job", "submission_time", "run_s", *(f"{name}_s" for name in played)]
    columns = [jobs.numbers, jobs.submitted, jobs.run, *(e.predicted_s for e in played.values())]
    rows = zip(*(column.tolist() for column in columns), strict=True)
    replace_all(
        {
            out / "accuracy.json": (json_text(result, indent=2) + "\n").encode(),
            out / "errors.csv": as_csv(names, rows),
            out / "errors.png": encode(draw_errors(played, about), "png"),
        }
    )


def _table(rows: Mapping[str, Accuracy]) -> str:
    headings = ["PREDICTOR", "JOBS", "MEDIAN_S", "IQR_S", "P95_S", "UNDER_%", "OVER_%", "COVERED_%"]
    lines = []
    for name, row in rows.items():
        jobs, *numbers = msgspec.structs.astuple(row)
        shown = ["-" if number is None else f"{number:.1f}" for number in numbers]
        lines.append([name, str(jobs), *shown])
    return render(Table(headings, lines, left=frozenset({"PREDICTOR"})))
