"""``reshape predict``: the accuracy of predictors, over a trace played in the order of time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import click
import msgspec
import numpy as np
from numpy.typing import NDArray

from reshape.cli.options import example
from reshape.errors import ConfigError, nearest
from scheduler.model.job import Job
from scheduler.pictures import INK, WAITING, encode, new_figure, reduce_frame
from scheduler.policies.registry import known
from scheduler.policies.scenarios import changed, scenario
from scheduler.predictions.estimates import UserEstimates
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
from simulator.traces import swf
from simulator.traces.files import as_csv, check_place, replace_all
from simulator.traces.normalise import LABELS, NEEDED, machine_size, normalise
from simulator.traces.trace_jobs import TraceJobs
from simulator.workload_models.fake_predictions import GivenEstimates

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Floats: TypeAlias = NDArray[np.float64]
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
    result = {"trace": read.path, "jobs": len(jobs), "predictors": rows}
    result |= {"left_out": left_out, "report": msgspec.structs.asdict(report)}
    if out is not None:
        _write(out, trace.name, jobs, played, result)
    for name, reason in left_out.items():
        click.echo(f"{name} is left out: {reason}", err=True)
    click.echo(json_text(result) if as_json else _table(rows))


def _names(names: Iterable[str]) -> list[str]:
    """Names of the predictors, each once; refuses unknown ones."""
    given = [part.strip() for name in names for part in name.split(",")]
    offered = (EXACT, *known("estimates"))
    for name in given:
        if name not in offered and ":" not in name:
            raise click.UsageError(f"unknown predictor {name!r}{nearest(name, offered)}")
    return list(dict.fromkeys(given or DEFAULT))


def _parameters(fields: Iterable[str], names: Iterable[str]) -> dict[str, dict[str, str]]:
    """Fields that are set, by predictor; refuses those of other predictors."""
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
    """Create a predictor; raises ConfigError for a wrong field, or if a package is missing."""
    if name == EXACT:
        return GivenEstimates(jobs.run_times()).predictor()
    estimates = changed(scenario("easy"), {"estimates": name, **parameters}).estimates
    return estimates.predictor() or UserEstimates()


def _write(
    out: Path,
    about: str,
    jobs: TraceJobs,
    played: Mapping[str, PlayedTrace],
    result: Mapping[str, Any],
) -> None:
    """Write accuracy.json, errors.csv and errors.png."""
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


def _table(rows: Mapping[str, Mapping[str, float | None]]) -> str:
    headings = ["PREDICTOR", "JOBS", "MEDIAN_S", "IQR_S", "P95_S", "UNDER_%", "OVER_%", "COVERED_%"]
    lines = []
    for name, row in rows.items():
        jobs, *numbers = row.values()
        shown = ["-" if number is None else f"{number:.1f}" for number in numbers]
        lines.append([name, str(jobs), *shown])
    return render(Table(headings, lines, left=frozenset({"PREDICTOR"})))


class PlayedTrace(NamedTuple):
    """Predictions for the jobs of a trace, in the order of submission.

    Parameters
    ----------
    run_s, predicted_s : (n,) float64.
    quantiles_s : (n, 2) float64, of 5 % and 95 %; nan where the predictor has none.
    """

    run_s: Floats
    predicted_s: Floats
    quantiles_s: Floats

    @property
    def errors_s(self) -> Floats:
        """Prediction minus run time, (n,) float64, s."""
        return self.predicted_s - self.run_s

    def accuracy(self) -> dict[str, float | None]:
        """Summary of the errors. Precondition: there are jobs.

        Returns
        -------
        jobs : number of jobs that were predicted.
        median_error_s, iqr_error_s, p95_error_s : median, interquartile range and 95th percentile
            of the absolute errors, s.
        under_pct, over_pct : percentage of jobs predicted shorter, and longer, than they ran.
        coverage_pct : percentage of jobs whose run time is between the quantiles of 5 % and 95 %,
            of those with quantiles; None if there are none.
        """
        errors = self.errors_s
        sizes = np.abs(errors)
        low, middle, high, p95 = np.percentile(sizes, (25, 50, 75, 95)).tolist()
        known = ~np.isnan(self.quantiles_s).any(axis=1)
        below, above = self.quantiles_s[known].T
        inside = (below <= self.run_s[known]) & (self.run_s[known] <= above)
        return {
            "jobs": len(errors),
            "median_error_s": middle,
            "iqr_error_s": high - low,
            "p95_error_s": p95,
            "under_pct": 100 * float((errors < 0).mean()),
            "over_pct": 100 * float((errors > 0).mean()),
            "coverage_pct": 100 * float(inside.mean()) if known.any() else None,
        }


def play(predictor: Predictor, jobs: TraceJobs, waits_s: Floats) -> PlayedTrace:
    """Predict the run time of each job at its submission.

    The predictor learns a run time when the job ends, which is its submission plus its wait plus
    its run time. An end at the time of a submission comes first.

    Parameters
    ----------
    predictor : a new one.
    waits_s : (n,) float64, waiting time of each job, s.
    """
    run_times, specs = jobs.run_times(), jobs.specs()
    predicted = np.zeros(len(jobs))
    quantiles = np.full((len(jobs), 2), np.nan)
    changes: list[tuple[float, int, bool, Job]] = []  # (time, job number, whether it ends, job)
    for i, (at, wait_s) in enumerate(zip(jobs.submit_times(), waits_s.tolist(), strict=True)):
        while changes and changes[0][0] <= at:
            _change(predictor, changes, run_times)
        job = Job(i + 1, specs[i], at)
        predictor.submitted(job)
        predicted[i] = predictor.predict(job)
        interval = predictor.quantiles(job, predictor.INTERVAL)
        if interval is not None:
            quantiles[i] = interval
        heappush(changes, (at + wait_s, job.id, False, job))
    return PlayedTrace(np.array(run_times), predicted, quantiles)


def _change(
    predictor: Predictor, changes: list[tuple[float, int, bool, Job]], run_times: list[float]
) -> None:
    """Let the predictor note the next start or end."""
    at, number, ends, job = heappop(changes)
    if ends:
        job.ended_at = at
        predictor.ended(job)
        return
    job.started_at = at
    predictor.started(job)
    heappush(changes, (at + run_times[number - 1], number, True, job))


#: Number of spans of jobs over which medians are drawn.
SPANS = 50


def draw_errors(played: Mapping[str, PlayedTrace], about: str) -> Figure:
    """Draw the absolute error of each job on a logarithmic axis, and medians over spans of jobs.

    Parameters
    ----------
    played : name of the predictor -> predictions. Errors below 1 s are drawn at 1 s.
    """
    figure = new_figure(1 + 1.8 * len(played), f"Error of the predicted run time: {about}")
    rows = figure.subplots(len(played), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
    for axes, (name, each) in zip(rows, played.items(), strict=True):
        sizes = np.maximum(np.abs(each.errors_s), 1.0)
        numbers = np.arange(1, len(sizes) + 1)
        axes.scatter(numbers, sizes, s=3, color=WAITING, alpha=0.6, linewidths=0, rasterized=True)
        spans = [span for span in np.array_split(np.arange(len(sizes)), SPANS) if len(span)]
        middles = [float(numbers[span].mean()) for span in spans]
        axes.plot(middles, [float(np.median(sizes[span])) for span in spans], color=INK)
        axes.set_yscale("log")
        axes.set_ylabel(f"{name}\n|error|, s")
        reduce_frame(axes)
    rows[-1].set_xlabel("job, in the order of submission; the line is the median")
    return figure
