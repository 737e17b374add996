"""Statistics of a schedule: variables of jobs and of the machine, and estimators over them.

A request is ``VARIABLE=ESTIMATOR``, with several estimators separated by commas, as in
``wait_s=mean,p95``. ``run_s=sum-by:selection`` sums by the values of another variable of jobs.
User-defined variables and estimators are ``module:Class``, derived from `JobVariable`,
`SampledVariable` or `Estimator`.

F. Guim, "Job-guided scheduling strategies for multi-site HPC infrastructures", 3.2, 3.3, 4.2.1 and
4.2.2. Variables of the machine are sampled at equal intervals, from the schedule after the
simulation, which they do not slow down. Percentiles are values of the sample: the p-th is the
smallest value that at least p % of the values do not exceed, as in the thesis' examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reshape.errors import ConfigError, ReshapeError, nearest
from reshape.user_modules import user_module
from scheduler.text.formats import grouped
from simulator.results.jobs_csv import job_names
from simulator.results.schedule import Schedule, bounded_slowdown
from simulator.results.series import in_use
from simulator.traces.files import as_csv

Values: TypeAlias = NDArray[Any]
Floats: TypeAlias = NDArray[np.float64]
#: An estimator of a variable, by their names.
Statistic: TypeAlias = tuple[str, str]


class JobValues:
    """Variables of the jobs of a schedule that ran, (n,) each, in the order of submission.

    Parameters
    ----------
    tau : bound of the bounded slowdown, s.
    names : nominal variables ("selection", "centre"): a text for all jobs of the schedule, or one
        for each.
    price : of a processor-hour, for all jobs of the schedule or each; None: there are no costs.
    cost_limits : of each job of the schedule, inf for none; None: the cost of its estimate.
    """

    def __init__(
        self,
        schedule: Schedule,
        *,
        tau: float = 60.0,
        names: Mapping[str, str | Sequence[str]] | None = None,
        price: float | Floats | None = None,
        cost_limits: Floats | None = None,
    ) -> None:
        ran = schedule.ran
        self.schedule, self.ran = schedule, ran
        self.submitted = schedule.jobs.submitted[ran]
        self.started, self.ended = schedule.started[ran], schedule.ended[ran]
        self.tau, self._price, self._cost_limits = tau, price, cost_limits
        self._names = {
            name: np.broadcast_to(np.array(texts), ran.shape)[ran]
            for name, texts in (names or {}).items()
        }

    def __len__(self) -> int:
        """Count the jobs that ran."""
        return len(self.submitted)

    @property
    def available(self) -> list[str]:
        """Names of the variables."""
        numbers = [n for n in JOB_NUMBERS if self._price is not None or n not in PRICED]
        return [*numbers, *self._names]

    def __getitem__(self, name: str) -> NDArray[Any]:
        """Values of a variable: numbers, or texts of a nominal one.

        Raises
        ------
        KeyError : there is no such variable.
        """
        if name in self._names:
            return self._names[name]
        if name not in self.available:
            raise KeyError(name)
        values: Floats = getattr(self, name).astype(np.float64)
        return values

    @property
    def wait_s(self) -> Floats:
        """From submission to start, s."""
        return self.started - self.submitted

    @property
    def run_s(self) -> Floats:
        """From start to end, s."""
        return self.ended - self.started

    @property
    def nominal_run_s(self) -> Floats:
        """Run time without neighbours, and without resizes, s."""
        return self.schedule.jobs.run[self.ran]

    @property
    def slowdown(self) -> Floats:
        """Wait and run over run; nan of jobs without a run time."""
        run_s = np.maximum(self.run_s, np.finfo(np.float64).tiny)
        return np.where(self.run_s > 0, (self.wait_s + self.run_s) / run_s, np.nan)

    @property
    def bounded_slowdown(self) -> Floats:
        """Slowdown, with run times of at least the bound."""
        return bounded_slowdown(self.wait_s, self.run_s, self.tau)

    @property
    def processors(self) -> NDArray[np.int64]:
        """Processors requested."""
        return self.schedule.jobs.processors[self.ran]

    @property
    def killed(self) -> NDArray[np.bool_]:
        """Whether the job ended before its run was over."""
        return self.schedule.killed[self.ran]

    @property
    def completed(self) -> NDArray[np.bool_]:
        """Whether the run of the job was over."""
        return ~self.killed

    @property
    def penalised_s(self) -> Floats:
        """What neighbours on shared nodes added to the run time, s; nan of jobs killed there."""
        return self._of_neighbours(self.schedule.penalised_s)

    @property
    def penalised_pct(self) -> Floats:
        """Percentage of the final run time that neighbours added; nan of jobs killed there."""
        return self._of_neighbours(self.schedule.penalised_pct)

    def _of_neighbours(self, values: Floats) -> Floats:
        """Values of the jobs that ran; 0 if no nodes were shared."""
        return values[self.ran] if self.schedule.shares_nodes else np.zeros(len(self))

    @property
    def backfilled(self) -> NDArray[np.bool_]:
        """Whether the job started while one submitted to its centre before it waited."""
        backfilled = np.zeros(len(self), np.bool_)
        centres = self._names.get("centre", np.zeros(len(self)))
        for centre in np.unique(centres):
            here = np.flatnonzero(centres == centre)
            started = self.started[here]
            latest = np.maximum.accumulate(np.concatenate([[-np.inf], started[:-1]]))
            backfilled[here] = latest > started
        return backfilled

    @property
    def cost(self) -> Floats:
        """Price of the processors of each job for its run time."""
        return self._priced(self.run_s)

    @property
    def cost_respected(self) -> NDArray[np.bool_]:
        """Whether the cost is at most the limit: the job's own, or the cost of its estimate."""
        if self._cost_limits is None:
            limits = self._priced(self.schedule.jobs.estimate[self.ran])
        else:
            limits = self._cost_limits[self.ran]
        return self.cost <= limits * (1 + 1e-12)

    def _priced(self, seconds: Floats) -> Floats:
        """Price of the processors of each job for a time."""
        price = np.broadcast_to(np.array(self._price), self.ran.shape)
        return price[self.ran] * self.processors * seconds / 3600


#: Numeric variables, properties of `JobValues`; flags are 0 or 1, and nan is no value.
JOB_NUMBERS: Final = (
    "wait_s", "slowdown", "bounded_slowdown", "run_s", "nominal_run_s", "penalised_s",
    "penalised_pct", "processors", "backfilled", "killed", "completed", "cost", "cost_respected",
)  # fmt: skip
PRICED: Final = ("cost", "cost_respected")


#: Largest number of samples, which bounds their memory.
MOST_SAMPLES: Final = 10_000_000


class Samples:
    """State of the machine at times, and what happened between them.

    The k-th sample is k intervals after the first submission; the last one is at or after the last
    end. Numbers of events count those since the sample before it.

    Parameters
    ----------
    interval_s : time between two samples, s; > 0.
    times : of other samples, to take the same; None: those of these jobs.

    Attributes
    ----------
    times : (m,) float64, s.

    Raises
    ------
    ValueError : the interval is not above 0 and finite.
    ReshapeError : there would be more than `MOST_SAMPLES` samples.
    """

    def __init__(
        self, jobs: JobValues, interval_s: float = 3600.0, times: Floats | None = None
    ) -> None:
        if not 0 < interval_s < np.inf:
            raise ValueError(f"the interval must be > 0 and finite, got {interval_s}")
        self.jobs, self.schedule = jobs, jobs.schedule
        if times is not None:
            self.times: Floats = times
        elif len(jobs):
            begin, end = float(jobs.submitted.min()), float(jobs.ended.max())
            count = max(1, int(np.ceil((end - begin) / interval_s)))
            if count > MOST_SAMPLES:
                raise ReshapeError(
                    f"samples every {interval_s:g} s: there are {grouped(count)} of them, at most"
                    f" {grouped(MOST_SAMPLES)} are possible; give a longer interval"
                )
            self.times = begin + interval_s * np.arange(1.0, count + 1)
        else:
            self.times = np.zeros(0)

    @property
    def available(self) -> list[str]:
        """Names of the variables."""
        return [*SAMPLED]

    def __getitem__(self, name: str) -> Floats:
        """Values of a variable at the times, (m,).

        Raises
        ------
        KeyError : there is no such variable.
        """
        return SAMPLED[name](self)

    def until(self, moments: Floats, weights: Floats | None = None) -> Floats:
        """Number of the moments until each time, or the sum of their weights, (m,)."""
        order = np.argsort(moments, kind="stable")
        before = np.searchsorted(moments[order], self.times, side="right")
        if weights is None:
            return before.astype(np.float64)
        sums: Floats = np.concatenate([[0.0], np.cumsum(weights[order])])
        return sums[before]

    def since_last(self, moments: Floats) -> Floats:
        """Number of the moments after the sample before, until each time, (m,)."""
        return np.diff(self.until(moments), prepend=0.0)

    @property
    def processors_used(self) -> Floats:
        """Processors that running jobs hold, first runs of redirected jobs included."""
        series = in_use(self.schedule)
        before = np.searchsorted(series.times, self.times, side="right")
        values: Floats = np.concatenate([[0.0], series.values])
        return values[before]


def _pending_work(samples: Samples) -> Floats:
    """Requested time times processors, summed over the queued jobs, processor-seconds."""
    jobs, columns = samples.jobs, samples.schedule.jobs
    work = columns.estimate[jobs.ran] * columns.processors[jobs.ran]
    left = samples.until(jobs.submitted, work) - samples.until(jobs.started, work)
    return np.maximum(left, 0.0)


#: Sampled variables: name -> values.
SAMPLED: Final[Mapping[str, Callable[[Samples], Floats]]] = {
    "queued_jobs": lambda s: s.until(s.jobs.submitted) - s.until(s.jobs.started),
    "running_jobs": lambda s: s.until(s.jobs.started) - s.until(s.jobs.ended),
    "submitted_jobs": lambda s: s.since_last(s.jobs.submitted),
    "backfilled_jobs": lambda s: s.since_last(s.jobs.started[s.jobs.backfilled]),
    "killed_jobs": lambda s: s.since_last(s.jobs.ended[s.jobs.killed]),
    "pending_work": _pending_work,
    "processors_used": lambda s: s.processors_used,
    "load": lambda s: s.processors_used / s.schedule.processors,
}


DECILES: Final = tuple(range(10, 100, 10))


def percentile(values: Values, share: float) -> float:
    """Percentile of numbers, (n,) with n >= 1; `share` in %."""
    return float(np.percentile(values, share, method="inverted_cdf"))


def any_percentile(name: str) -> Callable[[Values], float] | None:
    """Estimator of a name such as "p99" or "p2.5"; None if the name is another one."""
    try:
        share = float(name.removeprefix("p"))
    except ValueError:
        return None
    if not (name.startswith("p") and 0 < share <= 100):
        return None
    return lambda values: percentile(values, share)


def percentiles(values: Values) -> dict[str, float]:
    """Percentiles 10, 20, ..., 90, by name ("p10")."""
    return {f"p{share}": percentile(values, share) for share in DECILES}


def variance(values: Values) -> float | None:
    """Sample variance (divided by n - 1); None for fewer than two numbers."""
    return float(np.var(values, ddof=1)) if len(values) > 1 else None


def standard_deviation(values: Values) -> float | None:
    """Square root of the sample variance; None for fewer than two numbers."""
    squared = variance(values)
    return None if squared is None else float(np.sqrt(squared))


def count(values: Values) -> dict[str, int]:
    """Number of occurrences of each value (count literals)."""
    names, counts = np.unique(values, return_counts=True)
    return {str(name): int(number) for name, number in zip(names, counts, strict=True)}


def sum_by(values: Values, names: Values) -> dict[str, float]:
    """Sum of the numbers of each name (accumulate literals).

    Parameters
    ----------
    values, names : (n,) numbers, and texts.
    """
    known, which = np.unique(names, return_inverse=True)
    sums = np.bincount(which, weights=values.astype(np.float64), minlength=len(known))
    return {str(name): float(total) for name, total in zip(known, sums, strict=True)}


#: Estimators of numbers, for at least one number.
OF_NUMBERS: Final[Mapping[str, Callable[[Values], Any]]] = {
    "mean": lambda values: float(np.mean(values)),
    "median": lambda values: percentile(values, 50),
    "variance": variance,
    "stdev": standard_deviation,
    "percentiles": percentiles,
    "p95": lambda values: percentile(values, 95),
    "iqr": lambda values: percentile(values, 75) - percentile(values, 25),
    "max": lambda values: float(np.max(values)),
    "min": lambda values: float(np.min(values)),
    "sum": lambda values: float(np.sum(values)),
}
#: Estimators of numbers and of names.
OF_ALL: Final[Mapping[str, Callable[[Values], Any]]] = {"count": count}


SUM_BY = "sum-by:"
#: Nominal variables of jobs.
NOMINAL = ("selection", "centre")
JOBS_FILE, SAMPLES_FILE = "job_values.csv", "samples.csv"


def requests(texts: Iterable[str]) -> list[Statistic]:
    """Read requests and check their names.

    Raises
    ------
    ConfigError : a text has another form, a name is unknown, an own class cannot be imported, or
        the estimator does not apply to the variable.
    """
    asked = []
    for text in texts:
        variable, equals, names = text.partition("=")
        if not (variable and equals and names):
            raise ConfigError(f"statistic {text!r}: write VARIABLE=ESTIMATOR, as in wait_s=p95")
        asked += [(variable, name.strip()) for name in names.split(",")]
    for variable, estimator in asked:
        _check(variable, estimator)
    return list(dict.fromkeys(asked))


def estimate(asked: Iterable[Statistic], jobs: JobValues, samples: Samples) -> dict[str, Any]:
    """Compute the requested statistics.

    Returns
    -------
    variable -> estimator -> value: a number, a mapping of numbers (percentiles, by name), or None
    where there are no values.
    """
    statistics: dict[str, Any] = {}
    for variable, estimator in asked:
        values = _values(variable, jobs, samples)
        by = estimator.removeprefix(SUM_BY) if estimator.startswith(SUM_BY) else None
        names = None if by is None else _values(by, jobs, samples)
        statistics.setdefault(variable, {})[estimator] = _estimate(estimator, values, names)
    return statistics


def collected(jobs: JobValues, texts: Iterable[str]) -> dict[str, float | None]:
    """Requested statistics as single numbers, for the results of a study; see `flat`.

    Raises
    ------
    ConfigError : see `requests`.
    """
    return flat(estimate(requests(texts), jobs, Samples(jobs)))


def flat(statistics: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Single numbers of statistics by request, such as ``wait_s=p95``.

    A member of a mapping has its name behind it, as in ``wait_s=percentiles:p10``.
    """
    numbers: dict[str, Any] = {}
    for variable, estimators in statistics.items():
        for estimator, value in estimators.items():
            name = f"{variable}={estimator}"
            members = value if isinstance(value, Mapping) else {"": value}
            numbers |= {f"{name}:{key}" if key else name: v for key, v in members.items()}
    return numbers


def jobs_csv(jobs: JobValues) -> bytes:
    """All variables of the jobs that ran, a line for each."""
    names = [name for name, ran in zip(job_names(jobs.schedule), jobs.ran, strict=True) if ran]
    columns = {name: jobs[name] for name in jobs.available}
    return _csv(["job_id", "submission_time", *columns], [names, jobs.submitted, *columns.values()])


def samples_csv(samples: Samples) -> bytes:
    """All sampled variables, a line for each time."""
    columns = {name: samples[name] for name in samples.available}
    return _csv(["time", *columns], [samples.times, *columns.values()])


class JobVariable:
    """Base of a user-defined variable of the jobs."""

    def values(self, jobs: JobValues) -> Values:
        """Compute (n,) numbers or texts of the jobs that ran."""
        raise NotImplementedError(f"{type(self).__name__} has no method values")


class SampledVariable:
    """Base of a user-defined variable of the machine."""

    def sampled(self, samples: Samples) -> Values:
        """Compute (m,) numbers at the times of the samples."""
        raise NotImplementedError(f"{type(self).__name__} has no method sampled")


class Estimator:
    """Base of a user-defined estimator."""

    def compute(self, values: Values) -> Any:
        """Compute a number, or a mapping of numbers, of (n,) values."""
        raise NotImplementedError(f"{type(self).__name__} has no method compute")


def own(target: str, *kinds: type) -> Any:
    """Create an object of a class ``module:Class``, which must derive from one of some bases.

    Raises
    ------
    ConfigError : it cannot be imported or created, or derives from none of them.
    """
    module_name, _, name = target.partition(":")
    try:
        made = getattr(user_module(module_name), name)()
    except Exception as error:  # anything that the module raises
        raise ConfigError(
            f"statistic {target}: cannot be created: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(made, kinds):
        names = " or ".join(kind.__name__ for kind in kinds)
        raise ConfigError(f"statistic {target}: derive the class from {names} ({__name__})")
    return made


def _check(variable: str, estimator: str) -> None:
    """Refuse unknown names and estimators of numbers for names."""
    request = f"{variable}={estimator}"
    known = [*JOB_NUMBERS, *NOMINAL, *SAMPLED]
    if ":" in variable:
        own(variable, JobVariable, SampledVariable)
    elif variable not in known:
        raise ConfigError(f"statistic: unknown variable {variable!r}{nearest(variable, known)}")
    if estimator.startswith(SUM_BY):
        by = estimator.removeprefix(SUM_BY)
        if variable in SAMPLED or variable in NOMINAL:
            raise ConfigError(f"statistic {request}: sum-by needs a number of each job")
        if by not in (*JOB_NUMBERS, *NOMINAL):
            offered = nearest(by, (*NOMINAL, *JOB_NUMBERS))
            raise ConfigError(f"statistic {request}: unknown variable {by!r}{offered}")
    elif ":" in estimator:
        own(estimator, Estimator)
    elif estimator not in (*OF_NUMBERS, *OF_ALL) and any_percentile(estimator) is None:
        offered = nearest(estimator, (*OF_NUMBERS, *OF_ALL, f"{SUM_BY}VARIABLE"))
        raise ConfigError(f"statistic: unknown estimator {estimator!r}{offered}")
    elif variable in NOMINAL and estimator not in OF_ALL:
        raise ConfigError(f"statistic {request}: {variable} is a name; {', '.join(OF_ALL)} applies")


def _values(variable: str, jobs: JobValues, samples: Samples) -> NDArray[Any]:
    """Values of a variable, which must exist in this run."""
    if ":" in variable:
        made = own(variable, JobVariable, SampledVariable)
        is_of_jobs = isinstance(made, JobVariable)
        return np.asarray(made.values(jobs) if is_of_jobs else made.sampled(samples))
    try:
        return samples[variable] if variable in SAMPLED else jobs[variable]
    except KeyError:
        needed = "a price of a processor-hour" if variable in JOB_NUMBERS else "a name of it"
        raise ConfigError(f"statistic {variable}: the run needs {needed}") from None


def _estimate(estimator: str, values: NDArray[Any], names: NDArray[Any] | None) -> Any:
    """Apply an estimator; with `names`, sum the values of each name."""
    if values.dtype.kind == "f":
        there = ~np.isnan(values)
        values, names = values[there], None if names is None else names[there]
    if names is not None:
        return sum_by(values, names)
    if estimator in OF_ALL:
        return OF_ALL[estimator](values)
    if ":" in estimator:
        return own(estimator, Estimator).compute(values)
    compute = OF_NUMBERS.get(estimator) or any_percentile(estimator)
    assert compute is not None
    return compute(values) if len(values) else None


def _csv(header: Sequence[str], columns: Sequence[Any]) -> bytes:
    plain = [column.tolist() if isinstance(column, np.ndarray) else column for column in columns]
    rows = zip(*plain, strict=True)
    return as_csv(header, ([None if value != value else value for value in row] for row in rows))
