"""The report of GUIM, chapters 8 and 9: tables with the paper's numbers, claims, queues over time.

Most claims compare two policies by a ratio of means or of 95th percentiles, whose intervals are
those of the batches of `simulator.studies.sites`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import inf, nextafter
from pathlib import Path
from typing import Any, Final, TypeAlias

from simulator.experiment.tables import of_rows
from simulator.results.statistics import Interval, mean
from simulator.studies.claims import (
    NOT_RUN,
    Claim,
    by_range,
    exactly,
    keyed,
    of_part,
    reported,
    titled,
)
from simulator.studies.sites import (
    PAPER,
    QUEUE_EVERY_S,
    ratio_of_means,
    ratio_of_percentiles,
    share,
)
from simulator.study.study import Report, Row

#: (scenario, policy) -> numbers, means over the seeds.
Numbers: TypeAlias = Mapping[tuple[str, str], Mapping[str, Any]]
PREDICTED = ("Scenario-1", "Scenario-2")  #: scenarios of the final proposal


def judge(results: Numbers) -> list[Claim]:
    """Judge all claims; those without their runs are open."""
    return [
        *_comparisons(results, "GUIM 8.5.2"),
        *of_part("GUIM table 8.2", _by_origin(results)),
        *_comparisons(results, "GUIM 8.6.7"),
        *of_part("GUIM 8.6.7", _limits(results)),
        *of_part("GUIM table 8.5", _predictions(results)),
    ]


def _comparisons(results: Numbers, part: str) -> list[Claim]:
    """Claims of a section that a number of one run is smaller than that of another one."""
    claims = []
    for group in PAPER.comparisons[part]:
        for name, row in product(group["in"], group["claims"]):
            keys = ((name, run) if isinstance(run, str) else tuple(run) for run in row["runs"])
            first, second = map(results.get, keys)
            ours = ratio(first, second, row["metric"]) if first and second else NOT_RUN
            text, id_ = row["text"].format(name), row["id"].format(name)
            claims.append(_judged(id_, text, row.get("paper", {}).get(name), ours, below=1.0))
    return of_part(part, claims)


def _by_origin(results: Numbers) -> Iterator[Claim]:
    """Table 8.2: the jobs of every centre gain, by the ratios of separate centres to ours."""
    separate, together = (
        results.get(("ALL-SJBF", "origin")),
        results.get(("ALL-SJBF", "less-waittime")),
    )
    for centre, values in PAPER.table_8_2.items():
        for metric, value in zip(("bounded_slowdown", "slowdown", "wait_s"), values, strict=True):
            ours = NOT_RUN
            if separate and together and centre in separate["by_origin"]:
                pair = [run["by_origin"][centre][f"mean_{metric}"] for run in (separate, together)]
                ours = exactly(pair[0] / pair[1] if pair[1] else None)
            text = f"jobs of {centre}: mean {metric} of separate centres above Less-WaitTime's"
            yield _judged(f"table-8.2/{centre}/{metric}", text, f"{value:g}", ours, above=1.0)


def _limits(results: Numbers) -> Iterator[Claim]:
    """Claim that over 90 % of the jobs respect their cost limits under less-cost-sld."""
    for name in PREDICTED:
        run = results.get((name, "less-cost-sld"))
        within = NOT_RUN if run is None else share(run["batches"], "within_limit", "limited")
        text = f"{name}: percentage of jobs within their cost limits under less-cost-sld above 90"
        yield _judged(f"{name}/within_cost_limit_pct", text, "over 90", within, above=90.0)


def _predictions(results: Numbers) -> Iterator[Claim]:
    """Section 8.6.2: errors of predictions, by their medians (table 8.5, figure 8.14)."""

    def medians(scenario: str, policy: str, variable: str) -> list[float] | None:
        """Median over all jobs, then those over time."""
        errors = results.get((scenario, policy), {}).get("prediction_errors") or {}
        if variable not in errors:
            return None
        return [errors[variable]["median"], *errors[variable]["medians"]]

    def judged(id: str, text: str, paper: str, first: Any, second: Any) -> Claim:
        quotient = None if first is None or not second else first / second
        return _judged(id, text, paper, exactly(quotient), below=1.0)

    for name in PREDICTED:
        run_medians = medians(name, "less-waittime-pred", "run_s")
        yield judged(
            f"{name}/prediction/run_s/over-time",
            f"{name}: median error of predicted run times of the last tenth of the jobs below that"
            " of the first",
            "about 1 / 6",
            run_medians and run_medians[-1],
            run_medians and run_medians[1],
        )
    pairs = [medians("Scenario-2", p, "wait_s") for p in ("less-waittime-pred", "less-waittime")]
    yield judged(
        "Scenario-2/prediction/wait_s",
        "Scenario-2: median error of quoted waits by predicted run times below that by estimates",
        "51.56 / 97.20",
        *(each and each[0] for each in pairs),
    )
    pairs = [medians(name, "less-waittime-pred", "run_s") for name in PREDICTED]
    yield judged(
        "prediction/run_s/scenarios",
        "median error of predicted run times in Scenario-1 below that in Scenario-2",
        "11.81 / 88.33",
        *(each and each[0] for each in pairs),
    )


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


def _judged(
    id: str,
    text: str,
    paper: str | None,
    ours: Interval,
    *,
    below: float = inf,
    above: float = -inf,
) -> Claim:
    """Claim that a number is below or above a limit."""
    verdict = by_range(ours, nextafter(above, inf), nextafter(below, -inf))
    return Claim(text, ours, paper, verdict, id=id)


#: Numbers of a policy in the data of the report.
KEYS: Final = (
    "mean_bounded_slowdown", "sd_bounded_slowdown", "p95_bounded_slowdown", "mean_slowdown",
    "mean_wait_s", "sd_wait_s", "p95_wait_s", "jobs_by_centre", "cost", "p95_job_cost",
    "within_cost_limit_pct", "p95_processors", "utilization_pct",
)  # fmt: skip
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

DAY_S = 86400.0
ROW = 2.4  # inches of a centre in the picture


def report(rows: Sequence[Row], out: Path | None) -> Report:
    """Tables, claims, and queues over time as CSV and picture."""
    numbers = _numbers(rows)
    parts = [_table(scenario, numbers) for scenario in PAPER.scenarios]
    parts += [_errors_table(numbers), _separate_table(numbers), _jobs_table(numbers)]
    files = {
        "queues.csv": _queues_csv(numbers),
        "prediction-errors.csv": _errors_csv(numbers),
        **_picture(numbers),
    }
    data = {
        "trace": _trace_data(rows[0]),
        "scenarios": _data(numbers),
        "prediction_errors": _errors(numbers),
    }
    title = "Claims (ratios of the first to the second)"
    return reported(parts, data, judge(numbers), files, title)


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


def _data(groups: Numbers) -> dict[str, dict[str, Any]]:
    data: dict[str, dict[str, Any]] = {}
    for (scenario, policy), numbers in groups.items():
        data.setdefault(scenario, {})[policy] = {key: numbers[key] for key in KEYS}
    return data


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
    lines = []
    for (name, policy), numbers in groups.items():
        if name == scenario:
            values = [numbers[key] for key in COLUMNS.values()]
            values[6] = None if values[6] is None else values[6] / 1e6
            lines.append([policy, *map(_shown, values)])
    return titled(scenario, ["POLICY", *COLUMNS], lines)


def _separate_table(groups: Numbers) -> str:
    """Table 8.1: the separate centres, the paper's numbers in brackets."""
    lines = []
    for (centre, scenario), paper in keyed(PAPER.table_8_1).items():
        numbers = groups.get((scenario, "origin"), {}).get("by_origin", {}).get(centre)
        if numbers is not None:
            names = ("bounded_slowdown", "slowdown", "wait_s")
            ours = [numbers[f"{part}_{name}"] for name in names for part in ("mean", "sd", "p95")]
            pairs = zip(ours, paper, strict=True)
            lines.append([f"{centre} in {scenario}", *(f"{_shown(a)} ({b:g})" for a, b in pairs)])
    head = [f"{part}{name}" for name in ("BSLD", "SLD", "WAIT") for part in ("", "SD ", "P95 ")]
    return titled("Table 8.1, separate centres, ours (GUIM)", ["CENTRE", *head], lines)


def _jobs_table(groups: Numbers) -> str:
    """Table 8.3: jobs by centre in ALL-SJBF, the paper's numbers in brackets."""
    lines, centres = [], list[str]()
    for (scenario, policy), numbers in groups.items():
        if scenario == "ALL-SJBF":
            paper = PAPER.table_8_3.get(policy, {})
            cells = [
                f"{jobs:g}" + (f" ({paper[centre]})" if centre in paper else "")
                for centre, jobs in numbers["jobs_by_centre"].items()
            ]
            centres = [*numbers["jobs_by_centre"]]
            lines.append([policy, *cells])
    title = "Table 8.3, jobs by centre in ALL-SJBF, ours (GUIM)"
    return titled(title, ["POLICY", *centres], lines)


def _errors(groups: Numbers) -> dict[str, dict[str, Any]]:
    """Errors of predictions by scenario, policy and variable; see `prediction_errors`."""
    data: dict[str, dict[str, Any]] = {}
    for (scenario, policy), numbers in groups.items():
        if numbers["prediction_errors"]:
            data.setdefault(scenario, {})[policy] = numbers["prediction_errors"]
    return data


def _errors_table(groups: Numbers) -> str:
    """Table 8.5: errors of predictions in percent, the paper's numbers in brackets."""
    lines, errors = [], _errors(groups)
    for (scenario, policy, variable), paper in keyed(PAPER.table_8_5).items():
        ours = errors.get(scenario, {}).get(policy, {}).get(variable)
        if ours is not None:
            values = [ours[key] for key in ("p95", "median", "iqr")]
            cells = [f"{_shown(a)} ({b:g})" for a, b in zip(values, paper, strict=True)]
            tenths = [_shown(ours["medians"][i]) for i in (0, -1)]
            lines.append([scenario, policy, variable, *cells, *tenths])
    head = ["SCENARIO", "POLICY", "VARIABLE", "P95", "MEDIAN", "IQR", "FIRST TENTH", "LAST TENTH"]
    title = (
        "Table 8.5, errors of predictions in percent, ours (GUIM); medians of the first and the"
        " last tenth of the jobs"
    )
    return titled(title, head, lines, 3)


def _errors_csv(groups: Numbers) -> bytes:
    """Medians of the errors over time (figure 8.14), a line for each part of the jobs."""
    lines = (
        (scenario, policy, variable, part, f"{median:.6g}")
        for scenario, policies in _errors(groups).items()
        for policy, variables in policies.items()
        for variable, errors in variables.items()
        for part, median in enumerate(errors["medians"], 1)
    )
    return of_rows(("scenario", "policy", "variable", "part", "median_pct"), lines).csv()


def _queues_csv(groups: Numbers) -> bytes:
    """Queued jobs over time: one line for each scenario, policy, centre and time."""
    lines = (
        (scenario, policy, centre, f"{i * QUEUE_EVERY_S:g}", count)
        for (scenario, policy), numbers in groups.items()
        for centre, queued in numbers["queues"].items()
        for i, count in enumerate(queued)
    )
    return of_rows(("scenario", "policy", "centre", "time_s", "queued"), lines).csv()


def _picture(numbers: Numbers, scenario: str = "ALL-SJBF") -> dict[str, bytes]:
    """Draw queued jobs by centre of a scenario, or of the first one run (figures 8.8, 8.9)."""
    from scheduler.pictures import encode_all, new_figure, reduce_frame  # late: loads matplotlib

    names = [name for name, _ in numbers]
    chosen = scenario if scenario in names else names[0]
    policies = {policy: run["queues"] for (name, policy), run in numbers.items() if name == chosen}
    centres = [*next(iter(policies.values()))]
    figure = new_figure(0.8 + ROW * len(centres), f"Queued jobs, {chosen}")
    grid = figure.subplots(len(centres), 1, squeeze=False, sharex=True)
    for axes, centre in zip(grid[:, 0], centres, strict=True):
        for policy, queues in policies.items():
            days = [i * QUEUE_EVERY_S / DAY_S for i in range(len(queues[centre]))]
            axes.plot(days, queues[centre], linewidth=0.9, label=policy)
        axes.set_ylabel(centre)
        axes.set_yscale("symlog", linthresh=10)
        axes.set_ylim(bottom=0)
        reduce_frame(axes)
    grid[-1, 0].set_xlabel("days")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False, fontsize=8)
    return encode_all({"queues": figure})


def _shown(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
