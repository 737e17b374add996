"""The study of several centres, GUIM chapter 8: which centre a job should go to.

A run is one scenario under one task assignment policy. For intervals it keeps sums over batches of
jobs. A batch has the jobs that were submitted in one week, or in one day if the jobs of a run cover
less than eight weeks. The interval of a ratio of means follows from the jackknife over batches,
which gives the standard error of the logarithm (Miller 1974); that of a ratio of percentiles from
the bootstrap over batches (Kuensch 1989), in which both runs keep the same batches. Ratios of whole
runs, such as their costs, are exact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from math import exp, log, nan, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

import simulator as sim
from scheduler.pictures import encode_all
from simulator.experiment.tables import Columns
from simulator.many_centres.rules import CentreDescription
from simulator.many_centres.schedule import TAU_S, CentresSchedule
from simulator.results.statistics import Interval, mean
from simulator.studies.charts import chart
from simulator.studies.claims import (
    NOT_RUN,
    Claim,
    crossed,
    declared,
    exactly,
    keyed,
    paper,
    reported,
    titled,
)
from simulator.study.study import SEED, Report, Row, choice, trace_path
from simulator.traces import swf
from simulator.traces.derived import DAY_S, WEEK_S, merge

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats: TypeAlias = NDArray[np.float64]
#: (scenario, policy) -> numbers, means over the seeds.
Numbers: TypeAlias = Mapping[tuple[str, str], Mapping[str, Any]]
PAPER: Final = paper("sites")
#: Rules of a centre -> its scenario, and changes of that.
RULES: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "sjbf": ("easy", {"backfill_order": "sjf"}),
    "easy": ("easy", {}),
    "fcfs": ("fcfs", {}),
}
#: Seconds between two values of a queue over time.
QUEUE_EVERY_S = 21600.0
#: Number of parts of the jobs, in the order of their submission, for errors over time.
PARTS = 10


def run(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Simulate the centres.

    Parameters
    ----------
    parameters : `scenario`, `policy`, `merged` (name of a centre -> trace), `days` (of each merged
        trace), `jobs` (number of jobs; 0: all), `jobs_of` (name of a scenario -> its number of jobs
        if `jobs` is 0), `scale_estimates`.

    Raises
    ------
    ConfigError : there is no such scenario or policy.
    """
    name = parameters["scenario"]
    choice(parameters, "scenario", PAPER.scenarios)
    files = parameters["merged"].items()
    merged = tuple((centre, trace_path(parameters, file)) for centre, file in files)
    trace = _trace(merged, parameters["days"])
    experiment = sim.Experiment(
        sim.Jobs(trace).first(parameters["jobs"] or parameters.get("jobs_of", {}).get(name)),
        machine=centres(name),
        assign=parameters["policy"],
        dispatch={"scale_estimates": parameters["scale_estimates"]},
        quotes={},
    )
    if experiment.draws:
        experiment = experiment.replace(seed=parameters[SEED])
    ran = experiment.run(progress=False)
    simulated = ran.centres
    assert simulated is not None
    return simulated.numbers() | {
        "moved": simulated.moved,
        "submitted": len(trace),
        "by_origin": {
            centre.name: simulated.numbers(simulated.of_origin(centre.name))
            for centre in simulated.centres
            if simulated.of_origin(centre.name).any()
        },
        "prediction_errors": prediction_errors(simulated, ran.quotes),
        "batches": batches(simulated),
        "queues": simulated.queues(QUEUE_EVERY_S),
    }


def centres(name: str) -> list[CentreDescription]:
    """Centres of a scenario.

    Raises
    ------
    KeyError : there is no such scenario.
    """
    made = []
    for centre, (factor, rules) in PAPER.scenarios[name].items():
        size, units, cost = PAPER.centres[centre]
        name, changes = RULES[rules]
        made.append(CentreDescription(centre, size, name, factor, units, cost, changes))
    return made


@lru_cache(maxsize=2)
def _trace(merged: tuple[tuple[str, Path], ...], days: float) -> swf.Trace:
    """Merged trace of a run; the runs of one process share it."""
    return merge([swf.read(file) for _, file in merged], [centre for centre, _ in merged], days)


def prediction_errors(
    simulated: CentresSchedule, quotes: Columns
) -> dict[str, dict[str, Any]] | None:
    """Compute errors in percent of the true value; None if no quote was kept.

    GUIM does not say of what the errors are percentages. Waits and run times below 60 s count as
    60 s in the denominator, as in the bounded slowdown.

    Returns
    -------
    variable -> `median`, `iqr` (interquartile range), `p95` and `medians`, those of `PARTS` equal
    parts of the jobs in the order of their submission
    """
    ran = simulated.ran[quotes["row"]]
    if not ran.any():
        return None
    jobs = quotes["row"][ran]
    factors = np.array([centre.cpu_factor for centre in simulated.centres])[simulated.ran_at[jobs]]
    wait_s, run_s = simulated.schedule.wait[jobs], simulated.schedule.run_s[jobs]
    quoted_s, expected_s = quotes["wait_s"][ran], np.maximum(1.0, quotes["run_s"][ran] * factors)
    errors = {
        "wait_s": _percent(quoted_s, wait_s, TAU_S),
        "run_s": _percent(expected_s, run_s, TAU_S),
        "slowdown": _percent(1.0 + quoted_s / expected_s, simulated.slowdown[jobs], 1.0),
    }
    return {name: _summary(values) for name, values in errors.items() if len(values)}


def _percent(predicted: Floats, true: Floats, least: float) -> Floats:
    """Errors in percent of the true values, where there is a prediction."""
    values = 100.0 * np.abs(predicted - true) / np.maximum(true, least)
    return values[np.isfinite(values)]


def _summary(errors: Floats) -> dict[str, Any]:
    low, middle, high, p95 = np.percentile(errors, (25, 50, 75, 95))
    return {
        "median": float(middle),
        "iqr": float(high - low),
        "p95": float(p95),
        "medians": [float(np.median(part)) for part in np.array_split(errors, PARTS) if len(part)],
    }


#: Least number of weeks for batches of weeks.
LEAST_WEEKS = 8
#: Bins of a histogram for each factor of ten, from 1 on.
BINS_A_DECADE = 100
#: Quantile of the normal distribution for intervals of 95 %, and number of bootstrap samples.
NORMAL, SAMPLES = 1.96, 1000


def batches(simulated: CentresSchedule) -> dict[str, Any]:
    """Sums and histograms over the jobs of each batch.

    Returns
    -------
    name -> sum for each batch; "histograms" -> name -> counts of the bins for each batch
    """
    ran, submitted = simulated.ran, simulated.schedule.jobs.submitted
    length_s = WEEK_S if submitted[-1] - submitted[0] >= LEAST_WEEKS * WEEK_S else DAY_S
    batch = ((submitted - submitted[0]) // length_s).astype(np.int64)[ran]
    limits = simulated.max_costs[ran]
    columns: dict[str, NDArray[Any]] = {
        "jobs": np.ones(len(batch)),
        "bounded_slowdown": simulated.schedule.bounded_slowdown(TAU_S)[ran],
        "slowdown": simulated.slowdown[ran],
        "wait_s": simulated.schedule.wait[ran],
        "cost": simulated.cost[ran],
        "limited": np.isfinite(limits).astype(np.float64),
        "within_limit": (simulated.cost[ran] <= limits * (1 + 1e-12)) & np.isfinite(limits),
    }
    sums = {name: np.bincount(batch, column).tolist() for name, column in columns.items()}
    of = {"bounded_slowdown": "bounded_slowdown", "wait_s": "wait_s", "job_cost": "cost"}
    histograms = {name: _histogram(batch, columns[column]) for name, column in of.items()}
    return {**sums, "histograms": histograms}


def ratio_of_means(first: Mapping[str, Any], second: Mapping[str, Any], metric: str) -> Interval:
    """Ratio of the means of a metric over the jobs of two runs, by their batches."""
    sums = [np.array([run[metric], run["jobs"]]) for run in (first, second)]
    if any(not (run_sums.sum(axis=1) > 0).all() for run_sums in sums):
        return NOT_RUN
    full = log(_mean(sums[0]) / _mean(sums[1]))
    left_out = []
    for batch in range(min(run_sums.shape[1] for run_sums in sums)):
        parts = [np.delete(run_sums, batch, axis=1) for run_sums in sums]
        if parts[0].shape[1] > 1 and all((part.sum(axis=1) > 0).all() for part in parts):
            left_out.append(log(_mean(parts[0]) / _mean(parts[1])))
    half = _half_width(left_out) if len(left_out) > 1 else nan
    return Interval(exp(full), exp(full - half), exp(full + half), len(left_out))


def share(sums: Mapping[str, Any], part: str, whole: str) -> Interval:
    """Percentage of two sums over the jobs of a run, by its batches; nan if the whole is 0."""
    values = np.array([sums[part], sums[whole]])
    if not values[1].sum() > 0:
        return NOT_RUN
    full = 100.0 * _mean(values)
    rest = [np.delete(values, batch, axis=1) for batch in range(values.shape[1])]
    left_out = [100.0 * _mean(part_sums) for part_sums in rest if part_sums[1].sum() > 0]
    if len(left_out) < 3:
        return Interval(full, nan, nan, len(left_out))
    half = _half_width(left_out)
    return Interval(full, max(0.0, full - half), min(100.0, full + half), len(left_out))


def ratio_of_percentiles(
    first: Mapping[str, Any], second: Mapping[str, Any], name: str, value: float
) -> Interval:
    """Ratio of the 95th percentiles of two runs, by the histograms of their batches.

    Parameters
    ----------
    value : the ratio itself, which the histograms have to 2.3 % only.
    """
    counts = [_matrix(run["histograms"][name]) for run in (first, second)]
    rows = min(len(bins) for bins in counts)
    if rows < 3:
        return Interval(value, nan, nan, rows)
    drawn = np.random.default_rng(0).multinomial(rows, np.full(rows, 1.0 / rows), SAMPLES)
    logs = [_log_percentile(drawn.astype(np.float64) @ bins[:rows]) for bins in counts]
    both = np.isfinite(logs[0]) & np.isfinite(logs[1])
    if not both.any():
        return Interval(value, nan, nan, rows)
    low, high = np.percentile(logs[0][both] - logs[1][both], (2.5, 97.5))
    low, high = min(value, 10.0 ** float(low)), max(value, 10.0 ** float(high))
    return Interval(value, low, high, rows)


def _half_width(left_out: list[float]) -> float:
    """Half of the interval of 95 % from values that each leave one batch out."""
    n, spread = len(left_out), np.array(left_out) - np.mean(left_out)
    return NORMAL * sqrt((n - 1) / n * float((spread**2).sum()))


def _mean(sums: Floats) -> float:
    total = sums.sum(axis=1)
    return float(total[0] / total[1])


def _histogram(batch: NDArray[np.int64], values: Floats) -> list[list[int]]:
    """Count the values of each batch in bins of equal width on a logarithmic scale."""
    bins = (BINS_A_DECADE * np.log10(np.maximum(values, 1.0))).astype(np.int64)
    return [
        np.bincount(bins[batch == number]).tolist()
        for number in range(int(batch.max(initial=-1)) + 1)
    ]


def _matrix(histograms: list[list[int]]) -> Floats:
    """Histograms as rows of equal length, (batches, bins) float64."""
    matrix = np.zeros(
        (len(histograms), max((len(row_counts) for row_counts in histograms), default=0))
    )
    for row, counts in zip(matrix, histograms, strict=True):
        row[: len(counts)] = counts
    return matrix


def _log_percentile(counts: Floats) -> Floats:
    """Logarithm to base 10 of the 95th percentile of each row of bins, (rows,) float64.

    A row without values has nan.
    """
    passed = np.cumsum(counts, axis=1)
    target = 0.95 * passed[:, -1]
    index = np.argmax(passed >= target[:, None], axis=1)
    rows = np.arange(len(counts))
    inside = counts[rows, index]
    share_passed = (target - (passed[rows, index] - inside)) / np.maximum(inside, 1.0)
    return np.where(passed[:, -1] > 0, (index + share_passed) / BINS_A_DECADE, np.nan)


def judge(results: Numbers) -> list[Claim]:
    """Judge all claims; those without their runs are open."""

    def run(name: str) -> Mapping[str, Any]:
        """Numbers by scenario and policy; empty if it was not run."""
        scenario, policy = name.split()
        return results.get((scenario, policy), {})

    def of_runs(first: str, second: str, metric: str) -> Interval:
        one, other = run(first), run(second)
        return ratio(one, other, metric) if one and other else NOT_RUN

    def by_origin(centre: str, metric: str) -> Interval:
        """Number of the separate centres over that of Less-WaitTime."""
        pair = [run("ALL-SJBF origin"), run("ALL-SJBF less-waittime")]
        if not all(pair) or centre not in pair[0]["by_origin"]:
            return NOT_RUN
        separate, together = (each["by_origin"][centre][f"mean_{metric}"] for each in pair)
        return exactly(separate / together if together else None)

    def within_limit(name: str) -> Interval:
        result = run(name)
        return share(result["batches"], "within_limit", "limited") if result else NOT_RUN

    def median(name: str, variable: str, part: str) -> float | None:
        """Median error of all jobs (part 0), or of a part of them."""
        errors = _errors(run(name)).get(variable)
        return errors and [errors["median"], *errors["medians"]][int(part)]

    def errors(first: str, second: str) -> Interval:
        above, below = (median(*each.rsplit(maxsplit=2)) for each in (first, second))
        return exactly(None if above is None or not below else above / below)

    measures: dict[str, Callable[..., Interval]] = {
        "ratio": of_runs,
        "by_origin": by_origin,
        "within_limit": within_limit,
        "errors": errors,
    }
    return declared(PAPER.claims, measures)


def ratio(first: Mapping[str, Any], second: Mapping[str, Any], metric: str) -> Interval:
    """Ratio of a metric of two runs, exact for metrics without batches; nan if there is none."""
    if metric in first["batches"]:
        return ratio_of_means(first["batches"], second["batches"], metric)
    name, _, key = metric.partition(".")
    values = [run[name][key] if key else run[name] for run in (first, second)]
    if values[0] is None or not values[1]:
        return NOT_RUN
    histogram = name.removeprefix("p95_")
    if histogram in first["batches"]["histograms"]:
        value = values[0] / values[1]
        return ratio_of_percentiles(first["batches"], second["batches"], histogram, value)
    return exactly(values[0] / values[1])


COLUMNS: Final = {
    "BSLD": "mean_bounded_slowdown",
    "SD": "sd_bounded_slowdown",
    "P95": "p95_bounded_slowdown",
    "WAIT S": "mean_wait_s",
    "SD ": "sd_wait_s",
    "P95 ": "p95_wait_s",
    "COST M": "cost",
    "P95 COST": "p95_job_cost",
    "WITHIN %": "within_cost_limit_pct",
    "P95 CPUS": "p95_processors",
    "UTIL %": "utilization_pct",
}

#: Numbers of a policy in the data of the report.
KEYS: Final = (*COLUMNS.values(), "mean_slowdown", "jobs_by_centre")
ROW = 2.4  # inches of a centre in the picture


def report(rows: Sequence[Row], out: Path | None) -> Report:
    """Tables, claims, and a picture of the queues over time."""
    numbers = _numbers(rows)
    parts = [_table(scenario, numbers) for scenario in PAPER.scenarios]
    parts += [_errors_table(numbers), _separate_table(numbers), _jobs_table(numbers)]
    scenarios: dict[str, dict[str, Any]] = {}
    for (scenario, policy), own in numbers.items():
        kept = {key: own[key] for key in (*KEYS, "prediction_errors")}
        scenarios.setdefault(scenario, {})[policy] = kept
    data = {"trace": _trace_data(rows[0]), "scenarios": scenarios}
    title = "Claims (ratios of the first to the second)"
    return reported(parts, data, judge(numbers), _picture(numbers), title)


def _numbers(rows: Sequence[Row]) -> Numbers:
    """Numbers by scenario and policy; those of several seeds are averaged."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        key = row.parameters["scenario"], row.parameters["policy"]
        groups.setdefault(key, []).append(dict(row.result))
    return {key: _averaged(results) for key, results in groups.items()}


def _averaged(results: list[dict[str, Any]]) -> dict[str, Any]:
    """The first result with means of the plain numbers over all."""
    averaged = dict(results[0])
    for name in KEYS:
        values = [result[name] for result in results]
        if isinstance(values[0], dict):
            averaged[name] = {key: mean([v[key] for v in values]) for key in values[0]}
        elif values[0] is not None:
            averaged[name] = mean(values)
    return averaged


def _errors(run: Mapping[str, Any]) -> Mapping[str, Any]:
    """Errors of predictions of a run by variable; see `prediction_errors`."""
    return run.get("prediction_errors") or {}


def _trace_data(row: Row) -> dict[str, Any]:
    """What the merged trace is: files, jobs submitted and jobs simulated."""
    return {
        "files": row.parameters["merged"],
        "days": row.parameters["days"],
        "submitted": row.result["submitted"],
        "simulated": row.result["jobs"] + row.result["unstarted"],
    }


def _table(scenario: str, groups: Numbers) -> str:
    """Numbers of all policies of one scenario."""

    def cell(key: tuple[str], column: str) -> str:
        return _shown(groups[scenario, key[0]][column], 1e6 if column == "cost" else 1)

    policies = [(policy,) for name, policy in groups if name == scenario]
    return crossed(scenario, ["POLICY"], policies, COLUMNS, cell)


def _separate_table(groups: Numbers) -> str:
    """Table 8.1: the separate centres, the paper's numbers in brackets."""
    lines = []
    for (centre, scenario), theirs in keyed(PAPER.table_8_1).items():
        numbers = groups.get((scenario, "origin"), {}).get("by_origin", {}).get(centre)
        if numbers is not None:
            names = ("bounded_slowdown", "slowdown", "wait_s")
            ours = [numbers[f"{part}_{name}"] for name in names for part in ("mean", "sd", "p95")]
            lines.append([f"{centre} in {scenario}", *_beside(ours, theirs)])
    head = [f"{part}{name}" for name in ("BSLD", "SLD", "WAIT") for part in ("", "SD ", "P95 ")]
    return titled("Table 8.1, separate centres, ours (GUIM)", ["CENTRE", *head], lines)


def _jobs_table(groups: Numbers) -> str:
    """Table 8.3: jobs by centre in ALL-SJBF, the paper's numbers in brackets."""
    lines, centres = [], list[str]()
    for (scenario, policy), numbers in groups.items():
        if scenario == "ALL-SJBF":
            theirs = PAPER.table_8_3.get(policy, {})
            cells = [
                f"{jobs:g}" + (f" ({theirs[centre]})" if centre in theirs else "")
                for centre, jobs in numbers["jobs_by_centre"].items()
            ]
            centres = [*numbers["jobs_by_centre"]]
            lines.append([policy, *cells])
    title = "Table 8.3, jobs by centre in ALL-SJBF, ours (GUIM)"
    return titled(title, ["POLICY", *centres], lines)


def _errors_table(groups: Numbers) -> str:
    """Table 8.5: errors of predictions in percent, the paper's numbers in brackets."""
    lines = []
    for (scenario, policy, variable), theirs in keyed(PAPER.table_8_5).items():
        ours = _errors(groups.get((scenario, policy), {})).get(variable)
        if ours is not None:
            values = [ours[key] for key in ("p95", "median", "iqr")]
            tenths = [_shown(ours["medians"][i]) for i in (0, -1)]
            lines.append([scenario, policy, variable, *_beside(values, theirs), *tenths])
    head = ["SCENARIO", "POLICY", "VARIABLE", "P95", "MEDIAN", "IQR", "FIRST TENTH", "LAST TENTH"]
    title = (
        "Table 8.5, errors of predictions in percent, ours (GUIM); medians of the first and the"
        " last tenth of the jobs"
    )
    return titled(title, head, lines, 3)


def _picture(numbers: Numbers, scenario: str = "ALL-SJBF") -> dict[str, bytes]:
    """Draw queued jobs by centre of a scenario, or of the first one run (figures 8.8, 8.9)."""
    names = [name for name, _ in numbers]
    shown = scenario if scenario in names else names[0]
    policies = {policy: run["queues"] for (name, policy), run in numbers.items() if name == shown}
    centres = [*next(iter(policies.values()))]

    def queues(axes: Axes, centre: str) -> None:
        for policy, queued in policies.items():
            days = [i * QUEUE_EVERY_S / DAY_S for i in range(len(queued[centre]))]
            axes.plot(days, queued[centre], linewidth=0.9, label=policy)
        axes.set_ylabel(centre)
        axes.set_yscale("symlog", linthresh=10)
        axes.set_ylim(bottom=0)
        if centre == centres[-1]:
            axes.set_xlabel("days")

    panels = [[partial(queues, centre=centre)] for centre in centres]
    height = 0.8 + ROW * len(centres)
    figure = chart(f"Queued jobs, {shown}", height, panels, sharex=True, legend=True)
    return encode_all({"queues": figure})


def _shown(value: float | None, unit: float = 1) -> str:
    if value is None:
        return "-"
    return f"{value / unit:.3g}" if abs(value / unit) < 1000 else f"{value / unit:.0f}"


def _beside(values: Sequence[float | None], paper: Sequence[float]) -> list[str]:
    """Cells with our numbers, and the paper's in brackets."""
    return [f"{_shown(ours)} ({theirs:g})" for ours, theirs in zip(values, paper, strict=True)]
