"""The study of malleable jobs: what they gain on traces, by policy, factor and rule.

A run simulates the first jobs of a trace, a share of them malleable, under one policy. The jobs are
cut into iterations, and a model gives their speedup. A case of the study file states where it
differs from the base case, `BASE`. The report has gains over EASY, verdicts, and one picture.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import simulator as sim
from reshape.errors import ReshapeError
from scheduler.pictures import encode
from simulator.results.statistics import Interval, mean_interval
from simulator.studies.charts import bars, chart
from simulator.studies.claims import (
    Claim,
    Key,
    StudyResults,
    crossed,
    declared,
    exactly,
    plain,
    plus_minus,
    reported,
)
from simulator.studies.claims import paper as paper_of
from simulator.study.study import (
    ENDINGS,
    Parameters,
    Report,
    Row,
    choice,
    grid_points,
    trace_path,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The base case. `minimum` and `most` are multiples of the request, `data_mib` is for each
#: processor requested, and `without` names a rule of malleable that is switched off.
BASE: Final[dict[str, Any]] = {
    "share": 1.0,
    "minimum": 0.25,
    "most": 4.0,
    "speedup": "amdahl:serial=0.02",
    "iterations": 100,
    "pause_s": 10,
    "data_mib": 0,
    "estimates": "users",
    "without": "",
}
#: Policies of the study -> scenario, or changes of one.
POLICIES: Final[dict[str, dict[str, Any]]] = {
    "easy": {"name": "easy"},
    "molded starts": {"name": "easy"},
    "fcfs-pr": {"name": "fcfs-pr"},
    "pba-pr": {"name": "pba-pr"},
    "max-b-pr": {"name": "max-b-pr"},
    "steady": {"name": "steady"},
    "adaptive starts": {"name": "steady"},
    "equipartition": {"name": "malleable", "resizing.favour_short": 0},  # the same for every job
    "malleable": {"name": "malleable"},
}
#: Policies whose jobs state a smallest size; PRIO's jobs start on their request.
WITH_MINIMUM: Final = ("molded starts", "equipartition", "malleable")
#: Values by which each rule of malleable is switched off.
RULES: Final[dict[str, dict[str, Any]]] = {
    "": {},
    "slack": {"resizing.slack": 100},
    "earn_back": {"resizing.earn_back": 0},
    "favour_short": {"resizing.favour_short": 0},
    "most_paused": {"resizing.most_paused": 1},
    "settle": {"resizing.settle": 5},
}
#: Name of the model in place of a trace, and the size of its machine.
LUBLIN, LUBLIN_PROCESSORS = "lublin", 256
paper = paper_of("malleable")
EASY, OURS = "easy", "malleable"
#: The base case, as what differs from it.
SAME: Final = ""
TURNAROUND: Final = "mean_turnaround_s"
#: Metrics of the first table -> heading, and format.
METRICS: Final = {
    TURNAROUND: ("TURNAROUND s", ".0f"),
    "mean_wait_s": ("WAIT s", ".0f"),
    "mean_bounded_slowdown": ("SLOWDOWN", ".1f"),
    "utilization_pct": ("UTILISATION %", ".1f"),
    "resizes": ("RESIZES", ".1f"),
    "max_turnaround_s": ("WORST TURNAROUND s", ".0f"),
    "max_bounded_slowdown": ("WORST SLOWDOWN", ".0f"),
}
COLOURS: Final = {
    "molded starts": "#b9bdc2",
    "steady": "#5f9ea0",
    "adaptive starts": "#c98a4b",
    "equipartition": "#8d6a9f",
    OURS: "#4a6fa5",
}


def run(parameters: Mapping[str, Any]) -> dict[str, float]:
    """Simulate the first jobs of a trace.

    Parameters
    ----------
    parameters : `trace` (a file, or "lublin"), `jobs` (number of the first ones), `policy` (of
        `POLICIES`), `draw` (seed of the draw of the malleable jobs, and of the model), and what
        differs from `BASE`.

    Returns
    -------
    Means over the jobs, the longest wait and turnaround (seconds), the largest bounded slowdown,
    `utilization_pct`, and `resizes` of a job.

    Raises
    ------
    ConfigError : `policy` or `without` is unknown.
    """
    case = BASE | dict(parameters)
    scenario, least = choice(case, "policy", POLICIES) | choice(case, "without", RULES), 1.0
    if case["policy"] == "adaptive starts":
        scenario = scenario | {"backfill.adaptive_start": case["minimum"]}
    elif case["policy"] in WITH_MINIMUM:
        least = case["minimum"]
    jobs = _jobs(case)
    if case["policy"] != "easy":
        jobs = jobs.with_resizable(
            case["share"],
            case["speedup"],
            iterations=case["iterations"],
            expand_least=least,
            expand_most=case["most"],
            expand_step=0.0,  # steps of one processor
            data_mib=case["data_mib"],
            cost={"pause_s": case["pause_s"], "bytes_per_s": 1e9},
        )
    estimates = "exact" if case["estimates"] == "exact" else None
    seed = case["draw"] if jobs.draws else None
    ran = sim.simulate(jobs, scenario=scenario, estimates=estimates, seed=seed)
    metrics = ran.metrics
    means = ("mean_turnaround_s", "mean_wait_s", "mean_bounded_slowdown")
    changes = metrics.get("expansions", 0) + metrics.get("contractions", 0)
    return {
        **{name: metrics[name] for name in ("jobs", *means, "max_wait_s", "max_bounded_slowdown")},
        "max_turnaround_s": float(ran.jobs["turnaround_s"].max()),
        "utilization_pct": 100 * metrics["utilization"],
        "resizes": changes / metrics["jobs"],
    }


def _jobs(case: Mapping[str, Any]) -> sim.Jobs:
    """First jobs of the trace, or jobs of the model with estimates as of users."""
    trace, count = case["trace"], case["jobs"]
    if trace.endswith(ENDINGS):
        return sim.Jobs.read(trace_path(case, trace)).first(count)
    return sim.Jobs.drawn(trace, jobs=count, processors=LUBLIN_PROCESSORS, estimates="tsafrir")


class MalleableRuns(StudyResults):
    """Results by trace, policy and what differs from the base case.

    Parameters
    ----------
    rows : runs of one number of jobs.

    Raises
    ------
    ReshapeError : the runs have several numbers of jobs.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        counts = sorted({row.parameters["jobs"] for row in rows})
        if len(counts) != 1:
            several = ", ".join(map(str, counts))
            raise ReshapeError(f"the report compares runs of one number of jobs, got {several}")
        super().__init__(rows, _key, "draw")
        self.jobs: int = counts[0]
        self.traces: list[str] = self.parts()

    def policies(self, trace: str) -> list[str]:
        """Policies of which the base case was run, in the order of the study."""
        return [name for name in POLICIES if (trace, name, SAME) in self.rows]

    def differences(self, *, rules: bool) -> list[str]:
        """What differs from the base case in the runs of our policy: a rule, or another factor."""
        keys = (key[2] for key in self if key[1] == OURS)
        return [each for each in dict.fromkeys(keys) if each.startswith("without=") == rules]

    def gain(self, trace: str, policy: str, difference: str) -> Interval:
        """Reduction of the mean turnaround against EASY with the same estimates, per cent.

        Draws are compared one by one; a single run of EASY serves all of them, as it draws nothing.
        """
        estimates = difference if difference.startswith("estimates") else SAME
        base = self.values((trace, EASY, estimates), TURNAROUND)
        ours = self.values((trace, policy, difference), TURNAROUND)
        if len(base) == 1:
            base *= len(ours)
        gains = [100 * (1 - value / easy) for value, easy in zip(ours, base, strict=False)]
        return _mean(gains, difference)

    def resizes(self, trace: str, policy: str, difference: str) -> Interval:
        """Resizes of a job."""
        return _mean(self.values((trace, policy, difference), "resizes"), difference)


def _mean(values: Sequence[float], difference: str) -> Interval:
    """Mean over draws; a single run is exact unless its malleable jobs are drawn."""
    if len(values) == 1 and "share" not in difference:
        return exactly(values[0])
    return mean_interval(values)


def _key(parameters: Parameters) -> Key:
    """Trace without its year and version, policy, and what differs from the base case."""
    trace = re.split(r"-\d{4}|\.swf", parameters["trace"])[0]
    differs = {name: parameters.get(name, value) for name, value in BASE.items()}
    texts = [f"{name}={value}" for name, value in differs.items() if value != BASE[name]]
    return trace, parameters["policy"], ", ".join(texts)


def report(rows: Sequence[Row], out: Path | None) -> Report:
    """Tables of the base case, of one factor at a time and of the rules, claims, and a picture."""
    runs = MalleableRuns(rows)
    title = f"{OURS}: gain over EASY in mean turnaround, per cent, and resizes of a job"
    parts = [
        f"The first {runs.jobs} jobs; all times in seconds; ± half of the 95 % interval of draws",
        _base(runs),
        _compared(runs, title, [SAME, *filter(None, runs.differences(rules=False))]),
        _compared(runs, "The same without one of its rules", runs.differences(rules=True)),
    ]
    files = {} if out is None else {"malleable.png": _picture(runs)}
    return reported(parts, {"jobs": runs.jobs, "runs": _data(runs)}, judge(runs), files, "Claims")


def _base(runs: MalleableRuns) -> str:
    """Every metric of the base case by trace and policy."""

    def cell(key: Key, metric: str) -> str:
        if not metric:
            trace, policy = key
            return f"{runs.gain(trace, policy, SAME).mean:.1f}"
        return f"{runs.values((*key, SAME), metric)[0]:{METRICS[metric][1]}}"

    cases = [(trace, policy) for trace in runs.traces for policy in runs.policies(trace)]
    columns = {"GAIN %": "", **{heading: metric for metric, (heading, _) in METRICS.items()}}
    return crossed("The base case", ["TRACE", "POLICY"], cases, columns, cell)


def _compared(runs: MalleableRuns, title: str, differences: Sequence[str]) -> str:
    """Gain and resizes of our policy: a line for each difference, a column for each trace."""

    def cell(key: Key, trace: str) -> str:
        case = (trace, OURS, "" if key[0] == "base case" else key[0])
        gain = runs.gain(*case)
        number = f"{gain.mean:.1f}" if gain.n == 1 else plus_minus(gain)
        return f"{number} ({runs.resizes(*case).mean:.1f})" if gain.n else ""

    rows = [(difference or "base case",) for difference in differences]
    return crossed(title, ["DIFFERENCE"], rows, {trace: trace for trace in runs.traces}, cell)


def _data(runs: MalleableRuns) -> list[dict[str, Any]]:
    """Mean and interval of every metric and of the gain, of each case."""
    names = ("trace", "policy", "difference")
    return runs.data(names, METRICS, lambda key: {"gain_pct": plain(runs.gain(*key))})


def judge(runs: MalleableRuns) -> list[Claim]:
    """Judge the published gains on any number of jobs, and the sketch's on those that it ran."""

    def case(trace: str, share: float) -> tuple[str, str, str]:
        return trace, OURS, SAME if share == BASE["share"] else f"share={share}"

    measures = {
        "gain": lambda trace, share: runs.gain(*case(trace, share)),
        "resizes": lambda trace, share: runs.resizes(*case(trace, share)),
    }
    published, sketch = paper.published, paper.sketch
    groups = [published | {"each": {"trace": runs.traces, **published["each"]}}]
    if runs.jobs == paper.sketch_jobs:
        points = grid_points(sketch["each"])
        each = [point | {"percent": 100 * point["share"]} for point in points]
        groups.append(sketch | {"each": each})
    return declared(groups, measures)


def _picture(runs: MalleableRuns) -> bytes:
    """Gains of the policies in the base case, and of ours by the share of malleable jobs."""
    by_share = {
        float(each.removeprefix("share=")): each
        for each in runs.differences(rules=False)
        if each.startswith("share=") and "," not in each
    }
    shares = {BASE["share"]: SAME} | dict(sorted(by_share.items(), reverse=True))
    shades = (COLOURS[OURS], "#9db3cf", "#c5d1e0", "#dfe3e8")

    def panel(axes: Axes, title: str, colours: Mapping[tuple[str, str, str], str]) -> None:
        series = {
            label: [exactly(runs.gain(trace, *case).mean) for trace in runs.traces]
            for label, *case in colours
        }
        own = dict(zip(series, colours.values(), strict=True))
        bars(axes, runs.traces, series, None, own, title=title, unit="per cent", label_size=7)
        axes.legend(frameon=False, fontsize=7, ncols=2)

    policies = {(policy, policy, SAME): colour for policy, colour in COLOURS.items()}
    ours = [(f"{100 * share:g} %", OURS, each) for share, each in shares.items()]
    panels = [
        partial(panel, title="all jobs are malleable", colours=policies),
        partial(
            panel,
            title=f"{OURS}, by the share of malleable jobs",
            colours=dict(zip(ours, shades, strict=False)),
        ),
    ]
    return encode(chart("Gain over EASY in mean turnaround", 4.2, [panels], sharey=True), "png")
