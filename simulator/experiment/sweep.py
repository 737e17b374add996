"""Sweeps: experiments at all points of a grid, on any executor, with means and comparisons."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import ExitStack, closing
from hashlib import sha256
from itertools import product
from pathlib import Path
from socket import gethostname
from typing import Any, Literal

import numpy as np
from rich.console import Console

from reshape.errors import ConfigError, ReshapeError
from scheduler.policies.scenario import Scenario
from scheduler.text.formats import counted
from simulator.experiment.columns import plain_numbers
from simulator.experiment.digests import content, digest, input_files
from simulator.experiment.experiment import Experiment
from simulator.experiment.tables import Columns, means_of, of_rows
from simulator.results.statistics import mean_interval
from simulator.study.progress import StudyProgress
from simulator.study.runner import (
    InlineExecutor,
    MakePool,
    Outcome,
    ResultFile,
    RunFailure,
    SubmitRun,
    outcome_of,
    outcomes,
    processes,
)
from simulator.study.sending import received, sent
from simulator.study.study import grid_points
from simulator.traces.files import replace_all

#: Points of the sweep under way, which its processes have by fork.
_points: list[_GridPoint] = []
#: In a worker: the latest base experiment, by its digest.
_bases: dict[str, Experiment] = {}
ERROR = "error"  #: Column of points that failed.


class SweepTable(Columns):
    """Results of a sweep: one row for each point, with a column for each axis and each metric.

    Attributes
    ----------
    axes : names of the axes.
    """

    axes: tuple[str, ...] = ()

    def mean(self, metric: str, by: str | Sequence[str]) -> Columns:
        """Mean of a metric over all other axes, with Student's 95 % interval.

        Parameters
        ----------
        by : axes; each combination of their values gives a row; the last axis varies fastest.

        Returns
        -------
        columns of these axes, and `metric`, `low`, `high` and `n`, the number of values

        Raises
        ------
        KeyError : there is no such axis or metric.
        """
        names = (by,) if isinstance(by, str) else tuple(by)
        self._check(names, metric)
        rows = []
        groups = self._groups(names)
        for key in product(*map(self._values, names)):
            values = self[metric][groups.get(key, [])]
            interval = mean_interval([value for value in values.tolist() if np.isfinite(value)])
            rows.append((*key, interval.mean, interval.low, interval.high, interval.n))
        return of_rows((*names, metric, "low", "high", "n"), rows)

    def compare(self, metric: str, axis: str, baseline: object) -> Columns:
        """Differences of a metric to those of one value of an axis, paired by all other axes.

        Parameters
        ----------
        baseline : the value of the axis to compare with, as it was given or as the table shows it.

        Returns
        -------
        columns of the axis; `difference`, the mean difference, with `low` and `high` of Student's
        95 % interval; `ratio`, the mean over the mean of the baseline; `n`, the number of pairs

        Raises
        ------
        KeyError : there is no such axis, metric or baseline.
        """
        self._check((axis,), metric)
        values = self._values(axis)
        baseline = baseline if baseline in values else _label(baseline)
        if baseline not in values:
            raise KeyError(f"{axis} has no value {baseline!r}; it has {values}")
        others = tuple(name for name in self.axes if name != axis)
        labels, groups = self[axis].tolist(), self._groups(others).values()
        rows = []
        for value in values:
            if value == baseline:
                continue
            pairs = []
            for members in groups:
                mine = {labels[i]: float(self[metric][i]) for i in members}
                if value in mine and baseline in mine:
                    pairs.append((mine[value], mine[baseline]))
            pairs = [pair for pair in pairs if np.isfinite(pair).all()]
            interval = mean_interval([one - other for one, other in pairs])
            whole = sum(other for _, other in pairs)
            ratio = sum(one for one, _ in pairs) / whole if whole else float("nan")
            rows.append((value, interval.mean, interval.low, interval.high, ratio, interval.n))
        return of_rows((axis, "difference", "low", "high", "ratio", "n"), rows)

    def _check(self, names: Iterable[str], metric: str) -> None:
        for name in names:
            if name not in self.axes:
                raise KeyError(f"the sweep has no axis {name!r}; it has {', '.join(self.axes)}")
        metrics = [name for name in self if name not in (*self.axes, ERROR)]
        if metric not in metrics:
            raise KeyError(f"the sweep has no metric {metric!r}; it has {', '.join(metrics)}")

    def _values(self, axis: str) -> list[Any]:
        return list(dict.fromkeys(self[axis].tolist()))

    def _groups(self, names: Sequence[str]) -> dict[tuple[Any, ...], list[int]]:
        """Indices of the rows with equal values of these axes."""
        groups: dict[tuple[Any, ...], list[int]] = {}
        columns = [self[name].tolist() for name in names]
        for i in range(self.rows):
            groups.setdefault(tuple(column[i] for column in columns), []).append(i)
        return groups


def sweep(
    experiment: Experiment,
    grid: Mapping[str, Iterable[Any]],
    *,
    workers: int | None = None,
    executor: Executor | Callable[[], Executor] | None = None,
    file: str | Path | None = None,
    on_error: Literal["row", "raise"] = "row",
    progress: bool = True,
) -> SweepTable:
    """Run an experiment at all points of a grid.

    Parameters
    ----------
    experiment : gives the fields of every point, except the axes.
    grid : axis, a field of `Experiment` or one below it as in `Experiment.replace` -> its values.
        The last axis varies fastest.
    workers : number of points that are computed at a time; None: one for each CPU here.
    executor : computes the points: an executor, or a function without arguments that makes one,
        such as `get_executor` of a client of dask, or `loky.get_reusable_executor`. If a point ends
        its process, only a function lets the sweep find it. Experiments are sent by cloudpickle.
        None: processes are forked, so that nothing has to be sent.
    file : keeps finished points, a line of JSON each, by a digest of all that determines their
        results: the experiment, its files, the sources of user-defined policies, and the release.
        The same call continues after an interruption. At the end the points are in the order of
        the grid.
    on_error : what a point that fails becomes: "row", a row of nan with its `error`, and a warning;
        or "raise", an error that ends the sweep. The same call with a file tries it again.
    progress : show progress on standard error.

    Raises
    ------
    ConfigError : an axis is not a field or has no values, a point is not a valid experiment, or
        cloudpickle is not installed.
    ReshapeError : a point fails, if these raise; the executor broke, and no function can make
        another one. What is done stays in the file.
    """
    axes = {name: _axis(name, values) for name, values in grid.items()}
    if not isinstance(experiment, Experiment):
        got = type(experiment).__name__
        raise ConfigError(
            f"must be an Experiment, got {got}; write Experiment(jobs)", field="sweep"
        )
    if on_error not in ("row", "raise"):
        raise ConfigError(f"must be row or raise, got {on_error!r}", field="on_error")
    points = [_GridPoint(experiment, values) for values in grid_points(axes)]
    width = min(_workers(workers), len(points))
    with ResultFile(None if file is None else Path(file), _by_digest) as kept:
        keys = [str(i) if file is None else digest(p.experiment) for i, p in enumerate(points)]
        missing = [i for i, key in enumerate(keys) if kept.get(key.encode()) is None]
        failed: dict[int, str] = {}
        computed = _computed(experiment, points, missing, width, executor, shows=progress)
        with closing(computed):  # ends the processes if a point raises
            for i, outcome in computed:
                if not isinstance(outcome, RunFailure):
                    kept.add(keys[i], points[i].labels, outcome)
                elif on_error == "raise":
                    raise points[i].error(outcome)
                else:
                    failed[i] = outcome.message
        if file is not None:  # its lines came as points ended, which differs between calls
            replace_all({Path(file): kept.lines([key.encode() for key in keys])})
        results = [
            {ERROR: failed[i]} if i in failed else json.loads(kept.get(key.encode()) or b"")
            for i, key in enumerate(keys)
        ]
    if failed:
        _warn(points, failed)
    return _table(axes, results)


def _workers(workers: int | None) -> int:
    """Number of points that are computed at a time."""
    workers = plain_numbers(workers)
    if workers is None:
        return len(os.sched_getaffinity(0))
    if not isinstance(workers, int) or workers < 1:
        raise ConfigError(f"must be a whole number >= 1, got {workers!r}", field="workers")
    return workers


def _warn(points: Sequence[_GridPoint], failed: Mapping[int, str]) -> None:
    """Warn of points that failed."""
    first = min(failed)
    text = f"{counted(len(failed), 'point')} of {len(points)} failed, see the column {ERROR};"
    text += f" the first at {points[first].text}: {failed[first]}"
    warnings.warn(text, RuntimeWarning, stacklevel=3)


def _by_digest(digest: str, _: Mapping[str, Any]) -> bytes:
    """Key of a point in a file of results: its digest, which the line names as the run."""
    return digest.encode()


def _axis(name: str, values: object) -> list[Any]:
    """Values of an axis."""
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        raise ConfigError(f"must be a list of values, got {values!r}", field=name)
    listed = list(map(plain_numbers, values))
    if not listed:
        raise ConfigError("has no values; give at least one", field=name)
    return listed


def _table(axes: Mapping[str, Sequence[Any]], results: Sequence[Mapping[str, Any]]) -> SweepTable:
    """Results of all points; a number that does not exist is nan."""
    labels = {name: _labels(values) for name, values in axes.items()}
    table = SweepTable(of_rows([*axes], product(*labels.values())))
    for name in dict.fromkeys(name for result in results for name in result):
        if name not in (*axes, ERROR):
            values = [result.get(name) for result in results]
            table[name] = np.array([np.nan if value is None else value for value in values])
    if any(ERROR in result for result in results):
        table[ERROR] = np.array([result.get(ERROR, "") for result in results])
    table.axes = tuple(axes)
    return table


class _GridPoint:
    """One point of a grid; an error about its experiment names it."""

    def __init__(self, base: Experiment, values: Mapping[str, Any]) -> None:
        self.values, self.labels = values, {name: _label(value) for name, value in values.items()}
        self.text = ", ".join(f"{name}={label}" for name, label in self.labels.items())
        try:
            self.experiment = base.replace(**values)
        except ConfigError as error:
            raise ConfigError(f"{error.message} (at {self.text})", field=error.field) from None

    def error(self, failure: RunFailure) -> ReshapeError:
        """Error about a failure of this point, with its traceback."""
        details = f"\n{failure.details}" if failure.details else ""
        return ReshapeError(f"at {self.text}: {failure.message}{details}")


def _computed(
    base: Experiment,
    points: list[_GridPoint],
    missing: list[int],
    width: int,
    executor: Executor | Callable[[], Executor] | None,
    *,
    shows: bool,
) -> Generator[tuple[int, Outcome], None, None]:
    """Results of the missing points, each when it is done."""
    if not missing:
        return
    console, done = Console(stderr=True, quiet=not shows), len(points) - len(missing)
    with ExitStack() as stack:
        make: MakePool | None = None
        submit: SubmitRun[int] = _submit_forked
        if executor is None:
            make = lambda workers: processes(workers, "fork")  # noqa: E731
            stack.callback(_points.clear)  # they hold the columns of all jobs
            _points[:] = points
            pool = stack.enter_context(make(width) if width > 1 else InlineExecutor())
        else:
            submit = _sent_points(base, points, width)
            if isinstance(executor, Executor):
                pool = executor
            else:
                function = executor
                make = lambda _: function()  # noqa: E731
                pool = stack.enter_context(function())
        progress = stack.enter_context(StudyProgress(console, "sweep", done, len(points)))
        for i, outcome in outcomes(missing, submit, pool, width, make):
            if not isinstance(outcome, RunFailure):
                progress.step()
            yield i, outcome


def _submit_forked(pool: Executor, i: int, _: bool) -> Future[Outcome | None]:
    """Submit a point to a forked process, or to this one."""
    return pool.submit(_run_forked, i)


def _run_forked(i: int) -> Outcome | None:
    return outcome_of(lambda: _metrics_of(_points[i].experiment))


def _metrics_of(experiment: Experiment) -> dict[str, float]:
    return means_of(experiment.run(progress=False).metrics)


def _sent_points(base: Experiment, points: Sequence[_GridPoint], width: int) -> SubmitRun[int]:
    """Submit points to workers that share nothing with this process.

    The base experiment is sent to a worker once, as the jobs in it may be large; a point is sent as
    its difference, with the digests of the files that it names.
    """
    pickled, unsent = sent(base), width
    key = sha256(pickled).hexdigest()

    def submit(pool: Executor, i: int, whole: bool) -> Future[Outcome | None]:
        nonlocal unsent
        whole, unsent = whole or unsent > 0, unsent - 1  # the first ones, and all that need it
        point = sent((points[i].values, input_files(points[i].experiment)))
        return pool.submit(_run_sent, key, pickled if whole else None, point)

    return submit


def _run_sent(key: str, base: bytes | None, point: bytes) -> Outcome | None:
    """Metrics of a point in a worker; None if it has not got the base experiment yet."""
    if key not in _bases:
        if base is None:
            return None
        _bases.clear()
        _bases[key] = received(base)
    values, files = received(point)
    for path, expected in files.items():
        if content(path) != expected:
            return RunFailure(
                f"{path} on {gethostname()} is not the file of the sweep; copy it there"
            )
    return outcome_of(lambda: _metrics_of(_bases[key].replace(**values)))


def _labels(values: Sequence[Any]) -> list[Any]:
    """What a table shows for the values of an axis; equal labels are numbered."""
    labels = [_label(value) for value in values]
    repeated = {label for label in labels if labels.count(label) > 1}
    return [f"{label} #{i}" if label in repeated else label for i, label in enumerate(labels, 1)]


def _label(value: Any) -> Any:
    """What a table shows for a value of an axis: a number, or a text."""
    value = plain_numbers(value)
    if value is None or isinstance(value, str | int | float):
        return "" if value is None else value
    if isinstance(value, Scenario):
        return value.name
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_label(item)}" for name, item in value.items())
    return type(value).__name__ if repr(value) == object.__repr__(value) else repr(value)
