"""The report of GUIM, chapters 8 and 9: tables with the paper's numbers, claims, queues over time.

Most claims compare two policies by a ratio of means or of 95th percentiles, whose intervals are
those of the batches of `simulator.studies.sites`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import inf, nan, nextafter
from pathlib import Path
from typing import Any, Final, TypeAlias

from simulator.experiment.tables import of_rows
from simulator.results.statistics import Interval, mean
from simulator.studies.claims import Claim, by_range, keyed, of_part, reported, titled
from simulator.studies.sites import (
    PAPER,
    QUEUE_EVERY_S,
    Estimate,
    ratio_of_means,
    ratio_of_percentiles,
    share,
)
from simulator.study.study import Report, Row

#: (scenario, policy) -> numbers, means over the seeds.
Numbers: TypeAlias = Mapping[tuple[str, str], Mapping[str, Any]]
CTC_SCENARIOS = ("ALL-SJBF", "CTC/4", "CTC-FCFS")
PREDICTED = ("Scenario-1", "Scenario-2")  #: scenarios of the final proposal
WAIT, PREDICTING, SLOWDOWN = "less-waittime", "less-waittime-pred", "less-slowdown"
COST_SLD = "less-cost-sld"


def judge(results: Numbers) -> list[Claim]:
    """Judge all claims; those without their runs are open."""
    return [
        *of_part("GUIM 8.5.2", _of_first_proposal(results)),
        *of_part("GUIM table 8.2", _by_origin(results)),
        *of_part("GUIM 8.6.7", [*_of_final_proposal(results), *_limits(results)]),
        *of_part("GUIM table 8.5", _predictions(results)),
    ]


def _compared(
    results: Numbers,
    subject: str,
    text: str,
    paper: str,
    smaller: tuple[str, str],
    larger: tuple[str, str],
    metric: str,
) -> Claim:
    """Judge the claim that a number of one run is smaller than that of another run.

    Parameters
    ----------
    subject : of the claim's id.
    text, paper : see `Claim`.
    smaller, larger : (scenario, policy) of the runs.
    metric : a mean of the batches, or a number of the results (`name.key` of a mapping).
    """
    first, second = results.get(smaller), results.get(larger)
    ours = None if first is None or second is None else ratio(first, second, metric)
    return _judged(subject, text, paper, ours, below=1.0)


def _in(
    results: Numbers,
    scenario: str,
    metric: str,
    rest: str,
    text: str,
    runs: tuple[str, str],
    paper: str = "",
) -> Claim:
    """Judge the comparison of two policies in one scenario.

    Parameters
    ----------
    rest : what the subject names besides scenario and metric.
    text : of the claim, without the scenario.
    runs : policy with the smaller number, and with the larger one.
    """
    subject = "/".join(filter(None, (scenario, metric, rest)))
    smaller, larger = ((scenario, policy) for policy in runs)
    return _compared(results, subject, f"{scenario}: {text}", paper, smaller, larger, metric)


def _of_first_proposal(results: Numbers) -> Iterator[Claim]:
    """Section 8.5.2: Less-WaitTime and the policies before it."""
    paper = {"less-jobsinqueue": "1.7 / 3.9", "less-workleft": "about 2 / 10"}
    queue, work, bsld = "less-jobsinqueue", "less-workleft", "bounded_slowdown"
    for scenario in CTC_SCENARIOS:
        compared = partial(_in, results, scenario)
        is_all = scenario == "ALL-SJBF"
        for other in (queue, work, "less-submittedjobs"):
            for metric, words in ((bsld, "mean BSLD"), ("wait_s", "mean wait")):
                value = paper.get(other, "") if is_all and metric == bsld else ""
                text = f"{words} of Less-WaitTime below that of {other}"
                yield compared(metric, f"{WAIT}/{other}", text, (WAIT, other), value)
        value = "about 3.9 / 10" if is_all else ""
        text = "mean BSLD of less-jobsinqueue below that of less-workleft"
        yield compared(bsld, f"{queue}/{work}", text, (queue, work), value)
    text = "mean BSLD of Less-WaitTime: a slower CTC costs less than FCFS at CTC"
    runs = ("CTC/4", WAIT), ("CTC-FCFS", WAIT)
    yield _compared(results, f"CTC/4-CTC-FCFS/{bsld}", text, "", *runs, bsld)
    text = "less-jobsinqueue sends fewer jobs to SDSC than less-workleft (table 8.3)"
    yield _in(results, "ALL-SJBF", "jobs_by_centre.SDSC", "", text, (queue, work), "1953 / 2560")
    yield _compared(
        results,
        "ALL-SJBF/wait_s/grid-backfilling",
        "chapter 9: mean wait of Grid-Backfilling below that of the separate centres",
        "1/40 to 1/2",
        ("ALL-SJBF", "grid-backfilling"),
        ("ALL-SJBF", "origin"),
        "wait_s",
    )


def _of_final_proposal(results: Numbers) -> Iterator[Claim]:
    """Section 8.6.7: predictions, slowdown and cost."""
    costs = {
        "Scenario-1": ((WAIT, "1 / 1.14"), (PREDICTING, "1 / 1.05")),
        "Scenario-2": ((WAIT, "1 / 1.18"), (PREDICTING, "1 / 1.07")),
    }
    slowdowns = {WAIT: "0.92", PREDICTING: "0.90"}
    for name, pairs in costs.items():
        compared = partial(_in, results, name)
        text = "mean BSLD of less-waittime-pred below that of less-waittime"
        yield compared("bounded_slowdown", PREDICTING, text, (PREDICTING, WAIT))
        for other, value in pairs:
            text = f"95th percentile of the BSLD of less-slowdown below that of {other}"
            paper = slowdowns[other] if name == "Scenario-2" else ""
            rest = f"{SLOWDOWN}/{other}"
            yield compared("p95_bounded_slowdown", rest, text, (SLOWDOWN, other), paper)
            text = f"all jobs cost less under {other} than under less-slowdown"
            yield compared("cost", f"{other}/{SLOWDOWN}", text, (other, SLOWDOWN), value)
        for other in (WAIT, PREDICTING, SLOWDOWN):
            text = f"all jobs cost less under less-cost-sld than under {other}"
            paper = "about 0.5" if name == "Scenario-1" else ""
            yield compared("cost", f"{COST_SLD}/{other}", text, (COST_SLD, other), paper)
        text = "95th percentile of the BSLD of less-cost-sld above that of less-waittime"
        yield _in(
            results, name, "p95_bounded_slowdown", COST_SLD, text, (WAIT, COST_SLD), "1 / 1.2"
        )
        yield from _of_waits(results, name)
        text = "95th percentile of a job's cost under less-cost-sld below less-waittime's"
        yield _in(
            results, name, "p95_job_cost", COST_SLD, text, (COST_SLD, WAIT), "5000 euros less"
        )
        text = "less-cost-sld uses fewer processors than less-waittime (P95)"
        yield compared("p95_processors", COST_SLD, text, (COST_SLD, WAIT))


def _of_waits(results: Numbers, name: str) -> Iterator[Claim]:
    """Section 8.6.7: 95th percentiles of the wait, and processors in use."""
    compared = partial(_in, results, name)
    gains = {"Scenario-1": "200 s less", "Scenario-2": "1000 s less"}
    for smaller, larger, value in (
        (WAIT, PREDICTING, "slightly less"),
        (SLOWDOWN, PREDICTING, gains[name]),
        (WAIT, COST_SLD, "1 / 1.2"),
    ):
        text = f"95th percentile of the wait of {smaller} below that of {larger}"
        yield _in(
            results, name, "p95_wait_s", f"{smaller}/{larger}", text, (smaller, larger), value
        )
    text = "less-slowdown uses more processors than less-waittime-pred (P95)"
    yield compared("p95_processors", SLOWDOWN, text, (PREDICTING, SLOWDOWN))


def _by_origin(results: Numbers) -> Iterator[Claim]:
    """Table 8.2: the jobs of every centre gain, by the ratios of separate centres to ours."""
    separate, together = results.get(("ALL-SJBF", "origin")), results.get(("ALL-SJBF", WAIT))
    for centre, values in PAPER.table_8_2.items():
        for metric, value in zip(("bounded_slowdown", "slowdown", "wait_s"), values, strict=True):
            ours = None
            if separate and together and centre in separate["by_origin"]:
                pair = [run["by_origin"][centre][f"mean_{metric}"] for run in (separate, together)]
                ours = _exact(pair[0] / pair[1]) if pair[1] else None
            yield _judged(
                f"table-8.2/{centre}/{metric}",
                f"jobs of {centre}: mean {metric} of separate centres above Less-WaitTime's",
                f"{value:g}",
                ours,
                above=1.0,
            )


def _limits(results: Numbers) -> Iterator[Claim]:
    """Claim that over 90 % of the jobs respect their cost limits under less-cost-sld."""
    for name in PREDICTED:
        run = results.get((name, "less-cost-sld"))
        within = None if run is None else share(run["batches"], "within_limit", "limited")
        yield _judged(
            f"{name}/within_cost_limit_pct",
            f"{name}: percentage of jobs within their cost limits under less-cost-sld above 90",
            "over 90",
            within,
            above=90.0,
        )


def _predictions(results: Numbers) -> Iterator[Claim]:
    """Section 8.6.2: errors of predictions, by their medians (table 8.5, figure 8.14)."""

    def medians(scenario: str, policy: str, variable: str) -> list[float] | None:
        """Median over all jobs, then those over time."""
        errors = results.get((scenario, policy), {}).get("prediction_errors") or {}
        if variable not in errors:
            return None
        return [errors[variable]["median"], *errors[variable]["medians"]]

    def judged(id: str, text: str, paper: str, first: Any, second: Any) -> Claim:
        quotient = None if first is None or not second else _exact(first / second)
        return _judged(id, text, paper, quotient, below=1.0)

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


def ratio(first: Mapping[str, Any], second: Mapping[str, Any], metric: str) -> Estimate | None:
    """Ratio of a metric of two runs with its interval; None if it does not exist.

    Returns
    -------
    ratio, low, high; the three are equal for metrics that have no batches
    """
    if metric in first["batches"]:
        return ratio_of_means(first["batches"], second["batches"], metric)
    name, _, key = metric.partition(".")
    values = [run[name][key] if key else run[name] for run in (first, second)]
    if values[0] is None or not values[1]:
        return None
    histogram = name.removeprefix("p95_")
    if histogram in first["batches"]["histograms"]:
        value = values[0] / values[1]
        return ratio_of_percentiles(first["batches"], second["batches"], histogram, value)
    return _exact(values[0] / values[1])


def _exact(value: float) -> Estimate:
    return value, value, value


def _judged(
    id: str,
    text: str,
    paper: str,
    ours: Estimate | None,
    *,
    below: float = inf,
    above: float = -inf,
) -> Claim:
    """Claim that a number is below or above a limit."""
    value, low, high = ours or (nan, nan, nan)
    interval = Interval(value, nan if low is None else low, nan if high is None else high, 0)
    verdict = by_range(interval, nextafter(above, inf), nextafter(below, -inf))
    return Claim(text, interval, paper or None, verdict, id=id)


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
    """Draw queued jobs by centre, a line for each policy (figures 8.8 and 8.9), by file name.

    If the scenario was not run, the first one that was is drawn.
    """
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
