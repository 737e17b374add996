"""Statistics by name: estimators (GUIM 3.3 and 4.2.2), and of which variables they are computed.

A request is ``VARIABLE=ESTIMATOR``, with several estimators separated by commas, as in
``wait_s=mean,p95``. ``run_s=sum-by:selection`` sums by the values of another variable of jobs.
User-defined variables and estimators are ``module:Class``, see `own`.

F. Guim, "Job-guided scheduling strategies for multi-site HPC infrastructures". Percentiles are
values of the sample: the p-th is the smallest value that at least p % of the values do not exceed,
as in the thesis' examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reshape.errors import ConfigError, nearest
from reshape.user_modules import user_module
from simulator.results.jobs_csv import job_names
from simulator.statistics.variables import JOB_NUMBERS, SAMPLED, JobValues, Samples
from simulator.traces.files import as_csv

Values: TypeAlias = NDArray[Any]
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


class Statistic(NamedTuple):
    """An estimator of a variable."""

    variable: str
    estimator: str

    def __str__(self) -> str:
        """The form in which it is requested."""
        return f"{self.variable}={self.estimator}"


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
        asked += [Statistic(variable, name.strip()) for name in names.split(",")]
    for request in asked:
        _check(request)
    return list(dict.fromkeys(asked))


def estimate(asked: Iterable[Statistic], jobs: JobValues, samples: Samples) -> dict[str, Any]:
    """Compute the requested statistics.

    Returns
    -------
    variable -> estimator -> value: a number, a mapping of numbers (percentiles, by name), or None
    where there are no values.
    """
    statistics: dict[str, Any] = {}
    for request in asked:
        variable, estimator = request
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
            name = str(Statistic(variable, estimator))
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


def own(target: str) -> Any:
    """Create an object of a class ``module:Class``.

    A variable has `values(jobs: JobValues)`, which returns (n,) numbers or texts of the jobs that
    ran, or `sampled(samples: Samples)`, which returns (m,) numbers at its times. An estimator has
    `compute(values)`, which returns a number or a mapping of numbers.

    Raises
    ------
    ConfigError : it cannot be imported or created.
    """
    module_name, _, name = target.partition(":")
    try:
        return getattr(user_module(module_name), name)()
    except Exception as error:  # anything that the module raises
        raise ConfigError(
            f"statistic {target}: cannot be created: {type(error).__name__}: {error}"
        ) from error


def _check(request: Statistic) -> None:
    """Refuse unknown names and estimators of numbers for names."""
    variable, estimator = request
    known = [*JOB_NUMBERS, *NOMINAL, *SAMPLED]
    if ":" in variable:
        made = own(variable)
        if not (hasattr(made, "values") or hasattr(made, "sampled")):
            raise ConfigError(f"statistic {variable}: the class has neither values nor sampled")
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
        if not hasattr(own(estimator), "compute"):
            raise ConfigError(f"statistic {estimator}: the class has no method compute")
    elif estimator not in (*OF_NUMBERS, *OF_ALL) and any_percentile(estimator) is None:
        offered = nearest(estimator, (*OF_NUMBERS, *OF_ALL, f"{SUM_BY}VARIABLE"))
        raise ConfigError(f"statistic: unknown estimator {estimator!r}{offered}")
    elif variable in NOMINAL and estimator not in OF_ALL:
        raise ConfigError(f"statistic {request}: {variable} is a name; {', '.join(OF_ALL)} applies")


def _values(variable: str, jobs: JobValues, samples: Samples) -> NDArray[Any]:
    """Values of a variable.

    Raises
    ------
    ConfigError : the variable does not exist in this run.
    """
    if ":" in variable:
        made = own(variable)
        return np.asarray(made.values(jobs) if hasattr(made, "values") else made.sampled(samples))
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
        return own(estimator).compute(values)
    compute = OF_NUMBERS.get(estimator) or any_percentile(estimator)
    assert compute is not None
    return compute(values) if len(values) else None


def _csv(header: Sequence[str], columns: Sequence[Any]) -> bytes:
    plain = [column.tolist() if isinstance(column, np.ndarray) else column for column in columns]
    rows = zip(*plain, strict=True)
    return as_csv(header, ([None if value != value else value for value in row] for row in rows))
