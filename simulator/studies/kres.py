"""Study of KRES: balancing K resources, figures 2 and 3.

Leinberger, Karypis and Kumar, "Job scheduling in the presence of multiple resource requirements",
section 3. Sizes and run times are those of Feitelson's model of 1996; each job needs K resources,
of which the processors are the first. The arrival rate is the one at which EASY with First-Fit has
the required mean ready queue; all algorithms run with this rate. The claims of 3.3 and 4 are judged
by intervals of the gains over the seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import simulator as sim
from scheduler.pictures import encode_all
from simulator.results.statistics import Interval, mean, mean_interval
from simulator.studies.charts import bars, chart
from simulator.studies.claims import (
    NOT_RUN,
    Claim,
    StudyResults,
    declared,
    markdown,
    mean_difference,
    paper,
    plus_minus,
    reported,
)
from simulator.study.study import Report, Row
from simulator.workload_models.drawn import (
    DrawnJobs,
    Floats,
    Law,
    arrival_for_queue,
    mean_queue,
    poisson,
)
from simulator.workload_models.generate import Feitelson96

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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

    def simulated(mean_s: float, algorithm: str) -> sim.Simulation:
        trace = drawn.trace(arrivals * mean_s, capacity)
        return sim.simulate(sim.Jobs(trace), scenario=ALGORITHMS[algorithm])

    needs = np.column_stack([drawn.processors, *drawn.resources.values()])
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
    return drawn.requiring(k, law, capacity, needs_rng), poisson(jobs, arrivals_rng)


COMPARED = ("BL", "BB", "BB0", "CONS")
METRICS = {
    "response_s": "average response time",
    "weighted_response_s": "weighted average response",
}
TICKS = (-500, -200, -100, -50, -25, 0, 25, 50)
FIGURES = {"response_s": 2, "weighted_response_s": 3}
COLOURS = dict(zip(COMPARED, ("#c98a1b", "#2a6fb0", "#7fb2dd", "#a23b3b"), strict=True))

#: Parts of a key of the results: a point of a figure.
POINT = ("law", "k", "queue", "algorithm")


def report(rows: Sequence[Row], out: Path | None) -> Report:
    """Tables of the gains, and the verdicts on the paper's claims."""
    results = gains(rows)
    tables = [_table(results, metric) for metric in METRICS]
    figures = () if out is None else METRICS
    files = encode_all({f"figure{FIGURES[each]}": _picture(results, each) for each in figures})
    return reported(tables, {"points": results.data(POINT, METRICS)}, judged(results), files)


def gains(rows: Sequence[Row]) -> StudyResults:
    """Gains over First-Fit, per cent, of each algorithm at each point.

    The gain is 1 - other / First-Fit, in percent: how much shorter the response is.
    """
    made = [
        Row(
            {**row.parameters, "algorithm": name},
            {
                metric: 100.0 * (1.0 - row.result[name][metric] / row.result["FF"][metric])
                for metric in METRICS
            },
        )
        for row in rows
        for name in COMPARED
    ]
    return StudyResults(made, itemgetter(*POINT))


def judged(results: StudyResults) -> list[Claim]:
    """Judge the claims, those about BB also for BB0, which leaves the fullness modifier out."""
    values = {axis: sorted({key[POINT.index(axis)] for key in results}) for axis in ("k", "queue")}

    def of_seeds(
        name: str, metric: str, at: str = "", over: Callable[[list[float]], float] = mean
    ) -> list[float]:
        """For each seed the mean (or another function) of the gains at some points."""
        limits, words = {"most": -1, "least": 0}, at.split()
        point = {"algorithm": name} | {
            axis: values[axis][limits[value]] if value in limits else value
            for axis, value in zip(words[::2], words[1::2], strict=True)
        }
        metric = {"average": "response_s", "weighted": "weighted_response_s"}[metric]
        keys = [
            key for key in results if dict(zip(POINT, key, strict=True)).items() >= point.items()
        ]
        by_seed = zip(*(results.values(key, metric) for key in keys), strict=False)
        return [over(list(gains)) for gains in by_seed]

    def loss(name: str, metric: str, at: str = "") -> Interval:
        gain = mean_interval(of_seeds(name, metric, at))
        return Interval(-gain.mean, -gain.high, -gain.low, gain.n)

    def apart(name: str, more: str, less: str) -> Interval:
        first, last = (of_seeds(name, "average", at) for at in (more, less))
        return NOT_RUN if first == last else mean_difference(first, last)

    measures: dict[str, Callable[..., Interval]] = {
        "gain": lambda *where: mean_interval(of_seeds(*where)),
        "most": lambda name, metric: mean_interval(of_seeds(name, metric, over=max)),
        "least": lambda name, metric: mean_interval(of_seeds(name, metric, over=min)),
        "loss": loss,
        "apart": apart,
        "average_over_weighted": lambda name: mean_difference(
            of_seeds(name, "average"), of_seeds(name, "weighted")
        ),
    }
    return declared(paper("kres").claims, measures)


def _table(results: StudyResults, metric: str) -> str:
    rows = [
        [
            *point,
            *(plus_minus(results.interval((*point, name), metric), "+.0f") for name in COMPARED),
        ]
        for point in dict.fromkeys(key[:3] for key in results)
    ]
    title = f"Gain over FF-EASY in {METRICS[metric]}, % (KRES figure {FIGURES[metric]})"
    return f"{title}\n\n{markdown(['requirements', 'K', 'queue', *COMPARED], rows)}"


def _picture(results: StudyResults, metric: str) -> Figure:
    """Draw a figure: a row for each law, a column for each K, a group of bars for each queue."""
    laws, ks, queues, _ = (list(dict.fromkeys(parts)) for parts in zip(*results, strict=True))
    queues.sort()
    lowest = min(results.interval(key, metric).mean for key in results)
    ticks = [tick for tick in TICKS if tick >= 1.5 * lowest or tick >= -50]

    def panel(axes: Axes, law: str, k: int) -> None:
        series = {
            name: [results.interval((law, k, queue, name), metric) for queue in queues]
            for name in COMPARED
        }
        unit = "gain, %" if k == ks[0] else ""
        bars(axes, [*map(str, queues)], series, None, COLOURS, title=f"K = {k}, {law}", unit=unit)
        axes.set_yscale("symlog", linthresh=50)
        axes.set_yticks(ticks, [*map(str, ticks)])
        axes.minorticks_off()
        if law == laws[-1]:
            axes.set_xlabel("mean ready queue of FF-EASY")

    title = f"Gain over FF-EASY: {METRICS[metric]} (KRES figure {FIGURES[metric]})"
    panels = [[partial(panel, law=law, k=k) for k in ks] for law in laws]
    return chart(title, 1.0 + 2.7 * len(laws), panels, sharex=True, sharey=True, legend=True)
