"""Study of KRES: balancing K resources, figures 2 and 3.

Leinberger, Karypis and Kumar, "Job scheduling in the presence of multiple resource requirements",
section 3. Sizes and run times are those of Feitelson's model of 1996; each job needs K resources,
of which the processors are the first. The arrival rate is the one at which EASY with First-Fit has
the required mean ready queue; all algorithms run with this rate. The claims of 3.3 and 4 are judged
by intervals of the gains over the seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np

import simulator as sim
from simulator.results.statistics import Interval, mean, mean_interval
from simulator.studies.claims import (
    NOT_RUN,
    Claim,
    StudyResults,
    by_range,
    by_sign,
    markdown,
    mean_difference,
    plus_minus,
    reported,
)
from simulator.study.study import SEED, Report, Row
from simulator.workload_models.drawn import (
    DrawnJobs,
    Floats,
    Law,
    arrival_for_queue,
    factors,
    mean_queue,
    poisson,
    requirements,
)
from simulator.workload_models.generate import Feitelson96

#: KRES 3: EASY with First-Fit, BL and BB, and conservative backfilling; BB0 is BB without the
#: fullness modifier of section 2.2.
ALGORITHMS: dict[str, Mapping[str, Any]] = {
    "FF": {"name": "easy"},
    "BL": {"name": "easy", "backfill.pick": "bl"},
    "BB": {"name": "easy", "backfill.pick": "bb"},
    "BB0": {"name": "easy", "backfill.pick": "bb", "backfill.fullness": False},
    "CONS": {"name": "conservative"},
}


def run(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    """Simulate one workload under all algorithms, of which FF determines the rate of arrival.

    Parameters
    ----------
    parameters : seed, jobs, processors (also the units of each other resource), k, law ("uniform"
        or "exponential"), queue (target of the mean ready queue).

    Returns
    -------
    mean_arrival_s, load (of the resource with the largest demand), search_runs, and, by algorithm,
    queue, response_s, weighted_response_s.
    """
    capacity, k = int(parameters["processors"]), int(parameters["k"])
    drawn, arrivals = workload(
        int(parameters["seed"]), int(parameters["jobs"]), capacity, k, parameters["law"]
    )
    resources = {f"r{i}": capacity for i in range(2, k + 1)}

    def simulated(mean_s: float, algorithm: str) -> sim.Simulation:
        trace = drawn.arriving(arrivals * mean_s).trace(capacity, resources=resources)
        return sim.simulate(sim.Jobs(trace), scenario=ALGORITHMS[algorithm])

    assert drawn.resources is not None
    needs = np.column_stack([drawn.processors, drawn.resources])
    work = needs * drawn.run[:, np.newaxis]
    full_s = float(work.sum(axis=0).max()) / capacity / len(drawn)
    searched: list[float] = []

    def queue_at(mean_s: float) -> float:
        searched.append(mean_s)
        return mean_queue(simulated(mean_s, "FF").schedule)

    arrival_s = arrival_for_queue(float(parameters["queue"]), queue_at, full_s)
    result: dict[str, Any] = {
        "mean_arrival_s": arrival_s,
        "load": full_s / arrival_s,
        "search_runs": len(searched),
    }
    for name in ALGORITHMS:
        ran = simulated(arrival_s, name)
        response = ran.jobs["turnaround_s"]
        weight = needs.mean(axis=1) * ran.jobs["nominal_run_s"]  # 3.2: requirement times execution
        result[name] = {
            "queue": mean_queue(ran.schedule),
            "response_s": float(response.mean()),
            "weighted_response_s": float((weight * response).sum() / weight.sum()),
        }
    return result


def workload(seed: int, jobs: int, capacity: int, k: int, law: Law) -> tuple[DrawnJobs, Floats]:
    """Draw jobs with K requirements, and submission times of a Poisson process of mean 1 s.

    Sizes, run times and arrivals depend on the seed alone, not on K or the law.
    """
    sizes_rng, needs_rng, arrivals_rng = np.random.default_rng(seed).spawn(3)
    # KRES 3.1 uses "the job size and runtime characteristics", not the repetitions.
    model = Feitelson96(processors=capacity, repeat_order=0.0)
    drawn = model.generate(jobs, sizes_rng)
    needs = requirements(drawn.processors, capacity, factors(jobs, k, law, needs_rng))
    with_needs = msgspec.structs.replace(drawn, processors=needs[:, 0], resources=needs[:, 1:])
    return with_needs, poisson(jobs, arrivals_rng)


AVERAGE, WEIGHTED = "response_s", "weighted_response_s"
FIGURE_2 = "KRES figure 2"
#: Claims that a gain lies in a range, per cent; "up to 50 %" is read as a maximum of 40 to 60 %.
RANGES = {
    "average": (10, 50),
    "weighted": (10, 30),
    "most": (40, 60),
    "most-weighted": (30, 50),
}

#: Selects points of the grid: axis -> value.
Points: TypeAlias = Mapping[str, Any]
EVERYWHERE: Points = {}


def gain_pct(row: Row, algorithm: str, metric: str) -> float:
    """How much shorter than under First-Fit a response is, per cent."""
    return 100.0 * (1.0 - float(row.result[algorithm][metric]) / float(row.result["FF"][metric]))


class KresGains:
    """Gains over First-Fit, 1 - other / First-Fit, in per cent, from runs of the same seeds.

    Parameters
    ----------
    names : algorithm of the paper -> name of its results.
    """

    def __init__(self, names: Mapping[str, str], rows: Sequence[Row]) -> None:
        self._names = names
        self._by_seed: dict[int, list[Row]] = {}
        for row in rows:
            self._by_seed.setdefault(row.parameters[SEED], []).append(row)
        self.ks = sorted({row.parameters["k"] for row in rows})
        self.queues = sorted({row.parameters["queue"] for row in rows})

    def of_seeds(
        self, name: str, metric: str, points: Points, over: Callable[[list[float]], float]
    ) -> list[float]:
        """For each seed the mean (or maximum) gain of an algorithm over points."""
        own = self._names[name]
        return [
            over(
                [
                    gain_pct(row, own, metric)
                    for row in rows
                    if all(row.parameters[axis] == value for axis, value in points.items())
                ]
            )
            for rows in self._by_seed.values()
        ]

    def gain(
        self,
        name: str,
        metric: str = AVERAGE,
        points: Points = EVERYWHERE,
        over: Callable[[list[float]], float] = mean,
    ) -> Interval:
        """Mean over the seeds."""
        return mean_interval(self.of_seeds(name, metric, points, over))

    def apart(self, name: str, more: Points, less: Points) -> Interval:
        """Gain at some points minus that at others, from the same seeds; nan if they are equal."""
        first, last = (self.of_seeds(name, AVERAGE, points, mean) for points in (more, less))
        return NOT_RUN if first == last else mean_difference(first, last)


def judge(gains: KresGains) -> list[Claim]:
    """Judge the claims of KRES 3.3 and 4."""
    return [*judge_balanced(gains), *_judge_lowest(gains)]


def judge_balanced(gains: KresGains, name: str = "BB") -> Iterator[Claim]:
    """Claims about BB.

    Parameters
    ----------
    name : what texts and ids call it.
    """
    key = name.lower()
    few, many = {"queue": gains.queues[0]}, {"queue": gains.queues[-1]}
    laws = {"law": "uniform"}, {"law": "exponential"}
    average, weighted = gains.gain("BB"), gains.gain("BB", WEIGHTED)
    yield _range(average, "3.3.4", f"{key}-average", f"{name} gains 10 to 50 %")
    yield _range(weighted, "3.3.4", f"{key}-weighted", f"{name} gains 10 to 30 % weighted")
    most, most_weighted = (gains.gain("BB", m, over=max) for m in (AVERAGE, WEIGHTED))
    yield _range(most, "3.3", f"{key}-most", f"{name} gains up to 50 %", "50")
    yield _range(
        most_weighted, "4", f"{key}-most-weighted", f"{name} gains up to 40 % weighted", "40"
    )
    least = gains.gain("BB", over=min)
    yield _sign(
        least, "3.3", f"{key}-everywhere", f"{name} is better than FF everywhere (least gain)"
    )
    hard = gains.gain("BB", points={"k": gains.ks[-1]})
    yield _sign(hard, "3.3.1", f"{key}-large-k", f"{name} gains at the largest K")
    text = f"{name} gains more for uniform requirements (points)"
    yield _sign(gains.apart("BB", *laws), "3.3.2", f"{key}-uniform", text, "10")
    text = f"{name} gains more as the load grows (points)"
    yield _sign(gains.apart("BB", many, few), "3.3.3", f"{key}-load", text)
    text = f"{name} gains more in average than weighted (points)"
    by_seed = (gains.of_seeds("BB", metric, EVERYWHERE, mean) for metric in (AVERAGE, WEIGHTED))
    yield _sign(mean_difference(*by_seed), "3.3.4", f"{key}-small-jobs", text)


def _judge_lowest(gains: KresGains) -> Iterator[Claim]:
    """Claims about BL and CONS."""
    few, many = {"queue": gains.queues[0]}, {"queue": gains.queues[-1]}
    low_k, high_k = {"k": gains.ks[0]}, {"k": gains.ks[-1]}
    yield _sign(_minus(gains.gain("BL")), "3.3", "bl-worse", "BL is worse than FF (loss)")
    text = "BL gains less as K grows (points)"
    yield _sign(gains.apart("BL", low_k, high_k), "3.3.1", "bl-k", text)
    text = "BL gains less as the load grows (points)"
    yield _sign(gains.apart("BL", few, many), "3.3.3", "bl-load", text)
    hard = _minus(gains.gain("BL", points=high_k | many))
    yield _sign(hard, "3.3.3", "bl-hard", "BL loses at the largest K and load")
    yield _sign(_minus(gains.gain("CONS")), "3.3", "cons", "CONS is much worse than FF (loss)")


def _range(ours: Interval, where: str, name: str, text: str, paper: str = "") -> Claim:
    what = name.partition("-")[2]
    low, high = RANGES[what]
    part = "KRES figure 3" if what.endswith("weighted") else FIGURE_2
    verdict = by_range(ours, low, high)
    return Claim(text, ours, paper or f"{low} to {high}", verdict, part, where, id=name)


def _sign(ours: Interval, where: str, name: str, text: str, paper: str | None = None) -> Claim:
    return Claim(text, ours, paper, by_sign(ours), FIGURE_2, where, id=name)


def _minus(gain: Interval) -> Interval:
    return Interval(-gain.mean, -gain.high, -gain.low, gain.n)


COMPARED = ("BL", "BB", "BB0", "CONS")
METRICS = {
    "response_s": "average response time",
    "weighted_response_s": "weighted average response",
}
TICKS = (-500, -200, -100, -50, -25, 0, 25, 50)
FIGURES = {"response_s": 2, "weighted_response_s": 3}


#: Metric, law, K, queue and algorithm of a point of a figure -> gain over First-Fit, per cent.
Gains: TypeAlias = Mapping[tuple[str, str, int, int, str], Interval]


def report(rows: Sequence[Row], out: Path | None) -> Report:
    """Tables of the gains, and the verdicts on the paper's claims."""
    points = gains(rows)
    tables = [_table(points, metric) for metric in METRICS]
    files = {} if out is None else _pictures(points)
    names = ("metric", "law", "k", "queue", "algorithm")
    data = [
        dict(zip(names, key, strict=True)) | {"gain": msgspec.to_builtins(gain)}
        for key, gain in points.items()
    ]
    return reported(tables, {"points": data}, judged(rows), files)


def gains(rows: Sequence[Row]) -> Gains:
    """Gains over First-Fit with their 95 % intervals over the seeds, from paired runs.

    The gain is 1 - other / First-Fit, in percent: how much shorter the response is.
    """
    groups = StudyResults(rows, lambda p: (p["law"], p["k"], p["queue"])).rows
    return {
        (metric, *key, name): mean_interval([gain_pct(row, name, metric) for row in group])
        for metric in METRICS
        for key, group in groups.items()
        for name in COMPARED
    }


def judged(rows: Sequence[Row]) -> list[Claim]:
    """Judge the claims, those about BB also for BB0, which leaves the fullness modifier out."""
    names = {name: name for name in COMPARED}
    bb0 = KresGains(names | {"BB": "BB0"}, rows)
    return [*judge(KresGains(names, rows)), *judge_balanced(bb0, "BB0")]


def _table(points: Gains, metric: str) -> str:
    rows = []
    for law, k, queue in dict.fromkeys(key[1:4] for key in points):
        own = (points[metric, law, k, queue, name] for name in COMPARED)
        rows.append([law, k, queue, *(plus_minus(gain, "+.0f") for gain in own)])
    title = f"Gain over FF-EASY in {METRICS[metric]}, % (KRES figure {FIGURES[metric]})"
    return f"{title}\n\n{markdown(['requirements', 'K', 'queue', *COMPARED], rows)}"


def _pictures(points: Gains) -> dict[str, bytes]:
    """Figures 2 and 3, as PNG and SVG."""
    from scheduler.pictures import encode_all  # imported here: matplotlib is slow to load

    return encode_all({f"figure{FIGURES[metric]}": _picture(points, metric) for metric in METRICS})


def _picture(points: Gains, metric: str) -> Any:
    from scheduler.pictures import INK, new_figure, reduce_frame

    laws = list(dict.fromkeys(key[1] for key in points))
    ks = list(dict.fromkeys(key[2] for key in points))
    queues = sorted({key[3] for key in points})
    title = f"Gain over FF-EASY: {METRICS[metric]} (KRES figure {FIGURES[metric]})"
    figure = new_figure(1.0 + 2.7 * len(laws), title)
    grid = figure.subplots(len(laws), len(ks), sharex=True, sharey=True, squeeze=False)
    colours = dict(zip(COMPARED, ("#c98a1b", "#2a6fb0", "#7fb2dd", "#a23b3b"), strict=True))
    lowest = min(gain.mean for (of, *_), gain in points.items() if of == metric)
    ticks = [tick for tick in TICKS if tick >= 1.5 * lowest or tick >= -50]
    for axes_row, law in zip(grid, laws, strict=True):
        for axes, k in zip(axes_row, ks, strict=True):
            for i, name in enumerate(COMPARED):
                keys = {queue: (metric, law, k, queue, name) for queue in queues}
                line = {queue: points[key] for queue, key in keys.items() if key in points}
                positions = [queues.index(q) + 0.2 * (i - 1.5) for q in line]
                axes.bar(
                    positions,
                    [gain.mean for gain in line.values()],
                    0.18,
                    yerr=[gain.half for gain in line.values()],
                    color=colours[name],
                    error_kw={"ecolor": INK, "elinewidth": 0.8, "capsize": 2},
                    label=name,
                )
            axes.axhline(0, color=INK, linewidth=0.8)
            axes.set_title(f"K = {k}, {law}", fontsize=10)
            axes.set_xticks(range(len(queues)), [str(queue) for queue in queues])
            axes.set_yscale("symlog", linthresh=50)
            axes.set_yticks(ticks, [str(tick) for tick in ticks])
            axes.minorticks_off()
            reduce_frame(axes)
    for axes in grid[-1]:
        axes.set_xlabel("mean ready queue of FF-EASY")
    for axes_row in grid:
        axes_row[0].set_ylabel("gain, %")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(COMPARED), frameon=False)
    return figure
