"""Traces from models: jobs, demands, estimates, and times of submission for a load.

PRIO's model makes resizable jobs, which a trace cannot express; its workload is a workload file.
The models of rigid jobs are those of Lublin and Feitelson, and of Feitelson 1996.

U. Lublin and D. G. Feitelson, "The workload on parallel supercomputers: modeling the
characteristics of rigid jobs", J. Parallel Distrib. Comput. 63 (11), 2003; parameters and rules are
those of the authors' program at the Parallel Workloads Archive (``m_lublin99.c``) for all jobs
together (batch and interactive), compared with it line by line.

- Size: serial with some probability, else 2 ** u for a two-stage uniform u, rounded to a whole u
  (a power of two) with another probability.
- Run time: its natural logarithm is hyper-gamma; the larger the job, the likelier the second gamma,
  that of the long run times. Above exp(12) s it is drawn again.
- Arrivals: the logarithms of the times between them are gamma (above exp(13) s drawn again), in a
  time that passes the faster the more jobs come at that hour: the hours' shares follow a gamma,
  too, in half hours from 5:30 on.

The model of 1996 has discrete sizes, run times by size, and repetitions.

D. G. Feitelson, "Packing schemes for gang scheduling" (JSSPP 1996), and the page of the model at
the Parallel Workloads Archive (``m_feitelson96``). The page says: six logs; a harmonic distribution
of sizes of order 1.5, "hand-tailored to further emphasize small sizes and powers of two"; run times
with a coefficient of variation above 1 that grow weakly with the size; repeated executions of the
same jobs. Its other numbers are in a program of which we found no public copy, so the
following are our choices, and parameters:

- the tailoring: a factor on powers of two that grows with the size, chosen after three of the six
  logs (NASA iPSC, SDSC Paragon, CTC SP2: 83 to 100 % of the jobs are of such sizes, and the large
  ones are far more frequent than the harmonic law has them);
- the run times: an exponential of mean 1 with probability 0.95 - 0.2 n/N, else one of mean 7, for
  size n of N: coefficients of variation from 1.7 to 1.8, means from 1.3 to 2.5. One unit of time is
  `unit_s`;
- the repetitions: harmonic of order 2.5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import log2
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
import numpy as np

from reshape.collection import no_collection
from reshape.errors import ConfigError, check_ranges, nearest, out_of_range
from reshape.speedup import parse
from scheduler.config import machine_file
from scheduler.policies.scenarios import scenario
from scheduler.text.located import converted
from simulator.engine.costs import Costs, ResizeCost
from simulator.engine.engine import Engine, simulated_core
from simulator.results.schedule import Schedule
from simulator.traces.normalise import normalise
from simulator.traces.swf import Trace
from simulator.workload_models.drawn import (
    DrawnJobs,
    Floats,
    Ints,
    Law,
    arrival_for_queue,
    mean_queue,
    poisson,
)
from simulator.workload_models.estimates import LEAST_LONGEST_S, TsafrirEstimates
from simulator.workload_models.workload import PrioWorkload, Workload

BUCKETS = 48  # half hours of a day
BUCKET_S = 1800.0
FIRST = 11  # half hour in which the day of the model begins
LONGEST_RUN, LONGEST_PAUSE = 12.0, 13.0  # logarithms of seconds


class Lublin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The model.

    Parameters
    ----------
    processors : of the machine; the largest job has as many.
    serial, power_of_2 : probabilities of one processor, and of a power of two.
    low, middle, first : the two-stage uniform: log2 of the smallest parallel size, of the size
        where the stages meet (None: 2.5 below that of the machine), probability of the first.
    a1, b1, a2, b2 : shapes and scales of the two gammas of the run time.
    pa, pb : probability of the first gamma is pa * size + pb, at least 0 and at most 1.
    a_pause, b_pause : gamma of the times between arrivals.
    a_hour, b_hour : gamma of the daily cycle, in half hours.

    Raises
    ------
    ValueError : a parameter is out of range.
    """

    processors: int = 128
    serial: float = 0.244
    power_of_2: float = 0.576
    low: float = 0.8
    middle: float | None = None
    first: float = 0.86
    a1: float = 4.2
    b1: float = 0.94
    a2: float = 312.0
    b2: float = 0.03
    pa: float = -0.0054
    pb: float = 0.78
    a_pause: float = 10.2303 * 1.0225  # rush hours to all hours
    b_pause: float = 0.4871
    a_hour: float = 8.1737
    b_hour: float = 3.9631

    def __post_init__(self) -> None:
        """Check the ranges."""
        gammas = ("a1", "b1", "a2", "b2", "a_pause", "b_pause", "a_hour", "b_hour")
        check_ranges(self, processors=">= 2", **dict.fromkeys(gammas, "> 0"))
        check_ranges(self, **dict.fromkeys(("serial", "power_of_2", "first"), ">= 0 and <= 1"))
        if not self.low <= self.stages[1] <= self.stages[2]:
            raise ValueError(f"low must be <= {self.stages[1]:g}, got {self.low:g}")

    @property
    def stages(self) -> tuple[float, float, float]:
        """Bounds of the two uniforms, as logarithms to the base 2."""
        high = log2(self.processors)
        middle = max(self.low, high - 2.5) if self.middle is None else self.middle
        return self.low, middle, high

    def generate(self, jobs: int, rng: np.random.Generator) -> DrawnJobs:
        """Draw this many jobs."""
        processors = self.sizes(jobs, rng)
        return DrawnJobs(processors, self.run_times(processors, rng), self.arrivals(jobs, rng))

    def sizes(self, jobs: int, rng: np.random.Generator) -> Ints:
        """Processors of this many jobs, (jobs,) int64."""
        kind = rng.random(jobs)
        low, middle, high = self.stages
        first = rng.random(jobs) <= self.first
        bounds = np.where(first, low, middle), np.where(first, middle, high)
        exponent = bounds[0] + rng.random(jobs) * (bounds[1] - bounds[0])
        exponent = np.where(kind <= self.serial + self.power_of_2, np.rint(exponent), exponent)
        parallel = np.minimum(np.floor(2**exponent + 0.5), self.processors)
        return np.where(kind <= self.serial, 1, parallel).astype(np.int64)

    def first_probability(self, processors: Ints) -> Floats:
        """Probability of the first gamma of the run time, for each size."""
        return np.clip(self.pa * processors + self.pb, 0.0, 1.0)

    def run_times(self, processors: Ints, rng: np.random.Generator) -> Floats:
        """Run times of jobs of these sizes, (n,) float64, seconds."""

        def logarithm(which: Ints) -> Floats:
            first = rng.random(len(which)) <= self.first_probability(processors[which])
            shape = np.where(first, self.a1, self.a2)
            return rng.gamma(shape, np.where(first, self.b1, self.b2))

        return np.exp(_redrawn(len(processors), logarithm, LONGEST_RUN))

    def pauses(self, jobs: int, rng: np.random.Generator) -> Floats:
        """Times between arrivals if all hours were alike, (jobs,) float64, seconds."""

        def logarithm(which: Ints) -> Floats:
            return rng.gamma(self.a_pause, self.b_pause, len(which))

        return np.exp(_redrawn(jobs, logarithm, LONGEST_PAUSE))

    def hours(self) -> Floats:
        """How much more than on average arrives in each half hour from midnight on.

        Returns
        -------
        (48,) float64, of mean 1
        """
        from scipy.special import gammainc  # late: it makes commands slow to start

        buckets = np.arange(FIRST, FIRST + BUCKETS)
        upper = gammainc(self.a_hour, (buckets + 0.5) / self.b_hour)
        shares = upper - gammainc(self.a_hour, (buckets - 0.5) / self.b_hour)
        weights = np.empty(BUCKETS)
        weights[(buckets - 1) % BUCKETS] = shares
        return np.asarray(weights / weights.mean())

    def arrivals(self, jobs: int, rng: np.random.Generator) -> Floats:
        """Times of submission from midnight on, (jobs,) float64, seconds, ascending."""
        passed = np.cumsum(self.pauses(jobs, rng)) / BUCKET_S
        days, within = np.divmod(passed, BUCKETS)
        clock = np.concatenate([[0.0], np.cumsum(self.hours())])
        at = np.interp(within, clock, np.arange(BUCKETS + 1.0))
        return np.asarray((days * BUCKETS + at) * BUCKET_S)


def _redrawn(count: int, draw: Callable[[Ints], Floats], most: float) -> Floats:
    """Draw, and again what is above `most`."""
    values = draw(which := np.arange(count))
    while len(which := np.flatnonzero(values > most)):
        values[which] = draw(which)
    return values


class Feitelson96(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The model.

    Parameters
    ----------
    processors : of the machine; the largest size.
    order : of the harmonic distribution of sizes.
    power_of_2, rise : the probability of a size n that is a power of two is multiplied by
        power_of_2 * n ** rise.
    short, long : means of the two exponentials, in units.
    p0, slope : probability of the first is p0 - slope * size / processors.
    unit_s : length of a unit, seconds.
    repeat_order : of the harmonic distribution of repetitions; 0: no job repeats.
    most_repeats : largest number of repetitions.

    Raises
    ------
    ValueError : a parameter is out of range.
    """

    processors: int = 128
    order: float = 1.5
    power_of_2: float = 2.0
    rise: float = 1.0
    short: float = 1.0
    long: float = 7.0
    p0: float = 0.95
    slope: float = 0.2
    unit_s: float = 600.0
    repeat_order: float = 2.5
    most_repeats: int = 1000

    def __post_init__(self) -> None:
        """Check the ranges."""
        check_ranges(self, processors=">= 1", most_repeats=">= 1", repeat_order=">= 0")
        check_ranges(self, **dict.fromkeys(("power_of_2", "short", "long", "unit_s"), "> 0"))
        if not 0 <= self.p0 - self.slope <= 1 or not 0 <= self.p0 <= 1:
            raise ValueError(
                f"p0 and p0 - slope must be >= 0 and <= 1, got {self.p0}, {self.slope}"
            )

    def tailoring(self) -> Floats:
        """Factors on the harmonic probabilities of the sizes 1, 2, ...

        Returns
        -------
        (processors,) float64
        """
        sizes = np.arange(1, self.processors + 1)
        is_power = sizes & (sizes - 1) == 0
        return np.where(is_power, self.power_of_2 * sizes.astype(np.float64) ** self.rise, 1.0)

    def size_probabilities(self) -> Floats:
        """Probabilities of the sizes 1, 2, ..., (processors,) float64."""
        weights: Floats = self.tailoring() / np.arange(1, self.processors + 1) ** self.order
        return np.asarray(weights / weights.sum())

    def short_probability(self, size: Floats) -> Floats:
        """Probability of the first exponential, for each size."""
        return self.p0 - self.slope * size / self.processors

    def repeat_probabilities(self) -> Floats:
        """Probabilities of 1, 2, ... executions of a job."""
        if self.repeat_order == 0:
            return np.ones(1)
        weights: Floats = np.arange(1.0, self.most_repeats + 1) ** -self.repeat_order
        return np.asarray(weights / weights.sum())

    def generate(self, jobs: int, rng: np.random.Generator) -> DrawnJobs:
        """Draw this many jobs, repetitions one behind the other; no times of submission."""
        sizes = rng.choice(self.processors, jobs, p=self.size_probabilities()) + 1
        repeats = rng.choice(len(p := self.repeat_probabilities()), jobs, p=p) + 1
        first = rng.random(jobs) < self.short_probability(sizes.astype(np.float64))
        means = np.where(first, self.short, self.long) * self.unit_s
        run = rng.exponential(means)
        which = np.repeat(np.arange(jobs), repeats)[:jobs]
        return DrawnJobs(
            processors=sizes[which].astype(np.int64),
            run=run[which],
            executable=which.astype(np.int64) + 1,
        )


Model: TypeAlias = Feitelson96 | Lublin
MODELS: dict[str, type[Model]] = {"feitelson96": Feitelson96, "lublin": Lublin}
PRIO = "prio"  # the model of resizable jobs
DEFAULT_LOAD = 0.7  # of a model without arrivals
DEFAULT_JOBS = 1000
MOST_JOBS = 10**8
MOST_RESOURCES = 100
NotBelow0: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]


class TraceRequest(msgspec.Struct, frozen=True):
    """Request for a generated trace.

    Parameters
    ----------
    model, jobs, seed : name of the model, number of jobs, seed of all draws.
    parameters : of the model, by name; numbers may be text.
    load : offered load (processor-seconds requested over those installed while jobs are submitted),
        or queue : mean queue of EASY; None and None: that of the model.
    resources : number of further resources; law : distribution of the demands.
    estimates : "exact", or "tsafrir" with the largest estimate `longest_s`.
    """

    model: str
    jobs: int
    seed: int
    parameters: Mapping[str, Any] = {}
    load: float | None = None
    queue: float | None = None
    resources: Annotated[int, msgspec.Meta(ge=0, le=MOST_RESOURCES)] = 0
    law: Law = "uniform"
    estimates: Literal["exact", "tsafrir"] = "exact"
    longest_s: Annotated[int, msgspec.Meta(ge=LEAST_LONGEST_S)] = TsafrirEstimates().longest_s


def request_of(model: str, options: Mapping[str, Any], seed: int) -> TraceRequest:
    """Request for a trace of a model by options: fields of the request, or parameters of the model.

    Raises
    ------
    ConfigError : see `model_of`; the number of jobs or a field of the request is wrong.
    """
    named = ("load", "queue", "resources", "law", "estimates", "longest_s")
    own = {name: value for name, value in options.items() if name in named}
    rest = {name: value for name, value in options.items() if name not in (*named, "jobs")}
    model_of(model, rest)
    jobs = options.get("jobs", DEFAULT_JOBS)
    if isinstance(jobs, bool) or not (isinstance(jobs, int) and 0 < jobs <= MOST_JOBS):
        raise ConfigError(
            f"must be a whole number >= 1 and <= {MOST_JOBS}, got {jobs!r}",
            field="jobs.options.jobs",
        )
    fields = {"model": model, "jobs": jobs, "seed": seed, "parameters": rest}
    made = converted(fields | own, TraceRequest, "jobs.options")
    needs = {"longest_s": made.estimates == "tsafrir", "law": made.resources > 0}
    for name, has_effect in needs.items():
        if name in own and not has_effect:
            fix = "estimates: tsafrir" if name == "longest_s" else "resources"
            raise ConfigError(
                f"has no effect without {fix}; leave it out, or give that as well",
                field=f"jobs.options.{name}",
            )
    if made.load is not None and made.queue is not None:
        raise ConfigError(
            "load and queue both set the arrival rate; give one", field="jobs.options"
        )
    return made


def model_of(name: str, parameters: Mapping[str, Any]) -> Model:
    """Model of this name with some parameters changed.

    Raises
    ------
    ConfigError : an unknown model or parameter (the nearest is offered), or a wrong value.
    """
    if name not in MODELS:
        raise ConfigError(f"unknown model {name!r}{nearest(name, (*MODELS, PRIO))}", field="model")
    return converted(parameters, MODELS[name], name)


def prio(parameters: Mapping[str, Any], seed: int) -> tuple[PrioWorkload, Workload]:
    """Draw the workload of PRIO section 4, as `reshape study prio-sweet-spot` does.

    Parameters
    ----------
    parameters : of `PrioWorkload`, by name; numbers, and the speedup model, may be text. `cost`,
        `start_s` and `end_s` are those of `Costs.constant`, by default none.

    Raises
    ------
    ConfigError : an unknown parameter, or a wrong value.
    """
    fields = dict(parameters)
    if isinstance(fields.get("speedup"), str):
        try:
            fields["speedup"] = msgspec.to_builtins(parse(fields["speedup"]))
        except ValueError as error:
            raise ConfigError(str(error), field=f"{PRIO}.speedup") from None
    start_s, end_s = (
        converted(fields.pop(name, 0.0), NotBelow0, f"{PRIO}.{name}")
        for name in ("start_s", "end_s")
    )
    cost = converted(fields.pop("cost", {}), ResizeCost, f"{PRIO}.cost")
    model = converted(fields, PrioWorkload, PRIO)
    jobs = model.generate(np.random.default_rng(seed))
    return model, Workload(model.processors, jobs, Costs.constant(cost, start_s, end_s))


def make(request: TraceRequest) -> Trace:
    """Make a trace; the same request gives the same bytes.

    Raises
    ------
    ConfigError : see `model_of`; a load or a queue that is not above 0, or not finite.
    ReshapeError : no rate of arrival gives the wanted queue.
    """
    if fault := out_of_range(request, load="> 0 and finite", queue="> 0 and finite"):
        raise ConfigError(fault[1], field=fault[0])
    model = model_of(request.model, request.parameters)
    capacity = model.processors
    jobs_rng, needs_rng, arrivals_rng, estimates_rng = np.random.default_rng(request.seed).spawn(4)
    drawn = model.generate(request.jobs, jobs_rng)
    if request.resources:
        drawn = drawn.requiring(request.resources + 1, request.law, capacity, needs_rng)
    if request.estimates == "tsafrir":
        guesses = TsafrirEstimates(longest_s=request.longest_s)
        estimates = guesses.generate(np.maximum(np.rint(drawn.run), 1), estimates_rng)
        drawn = msgspec.structs.replace(drawn, estimate=estimates.astype(np.float64))
    at = drawn.submitted
    at = poisson(request.jobs, arrivals_rng) if at is None else at
    scale = _scale(request, drawn, at, capacity)
    notes = msgspec.to_builtins(request) | {"parameters": msgspec.to_builtins(model)}
    header = [
        "; Version: 2.2",
        "; Computer: none, generated by reshape workload generate",
        *(f"; Note: {name} {value}" for name, value in notes.items() if value is not None),
        f"; Note: mean time between submissions {scale * float(at[-1]) / len(at):.6g} s",
    ]
    return drawn.trace(at * scale, capacity, header)


def _scale(request: TraceRequest, drawn: DrawnJobs, at: Floats, capacity: int) -> float:
    """Factor of the times of submission that gives the load or the queue wanted."""
    load = request.load
    if load is None and drawn.submitted is None:
        load = DEFAULT_LOAD
    full = drawn.work / (capacity * float(at[-1] - at[0])) if len(at) > 1 else 1.0
    if request.queue is None:
        return full / load if load is not None else 1.0

    def queue_at(scale: float) -> float:
        return mean_queue(under_easy(drawn.trace(at * scale, capacity), capacity))

    return arrival_for_queue(request.queue, queue_at, full)


def under_easy(trace: Trace, processors: int) -> Schedule:
    """Simulate the jobs of a trace under EASY on a number of processors."""
    (machine,) = machine_file.flat(processors).machines(trace.capacities(), counted=True).values()
    core = simulated_core(scenario("easy"), machine, kill_at_walltime=False, keep_ended=False)
    with no_collection():
        return Engine(core, normalise(trace, processors)[0]).run()
