"""Sweeps: experiments at all points of a grid, in several processes, with means and comparisons."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from reshape.errors import ConfigError, ReshapeError
from scheduler.policies.scenario import Scenario
from simulator.experiment.digests import digest
from simulator.experiment.experiment import Experiment
from simulator.experiment.tables import Columns, means_of, of_rows
from simulator.results.statistics import mean_interval
from simulator.study.progress import StudyProgress
from simulator.study.runner import InlineExecutor, Outcome, RunFailure, as_json, outcomes, processes

#: Points of the sweep under way, which its processes have by fork.
_points: list[_GridPoint] = []


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
        known = self._values(axis)
        baseline = baseline if baseline in known else _label(baseline)
        if baseline not in known:
            raise KeyError(f"{axis} has no value {baseline!r}; it has {known}")
        others = tuple(name for name in self.axes if name != axis)
        labels, groups = self[axis].tolist(), self._groups(others).values()
        rows = []
        for value in known:
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
        metrics = [name for name in self if name not in self.axes]
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
    file: str | Path | None = None,
    progress: bool = True,
) -> SweepTable:
    """Run an experiment at all points of a grid.

    Parameters
    ----------
    experiment : its fields are those of every point, except the axes.
    grid : axis, a field of `Experiment` -> its values. The last axis varies fastest.
    workers : number of processes; None: one for each CPU. They are forked, so that policies that
        are defined in a notebook work.
    file : SQLite file that keeps finished points, by a digest of all that determines their
        results: the experiment, its files, the sources of user-defined policies, and the release.
        The same call continues after an interruption.
    progress : show progress on standard error.

    Raises
    ------
    ConfigError : an axis is not a field or has no values, or a point is not a valid experiment.
    ReshapeError : a point fails; what is done stays in the file.
    """
    axes = {name: _axis(name, values) for name, values in grid.items()}
    if workers is not None and workers < 1:
        raise ConfigError(f"must be >= 1, got {workers}", field="workers")
    points = [
        _GridPoint(experiment, dict(zip(axes, values, strict=True)))
        for values in product(*axes.values())
    ]
    width = min(workers or len(os.sched_getaffinity(0)), len(points))
    results: dict[int, dict[str, Any]] = {}
    with _Store(file) as store:
        keys = ["" if file is None else digest(point.experiment) for point in points]
        results |= {i: known for i, key in enumerate(keys) if (known := store.get(key)) is not None}
        missing = [i for i in range(len(points)) if i not in results]
        for i, result in _computed(points, missing, width, shows=progress):
            store.put(keys[i], result)
            results[i] = result
    return _table(axes, [results[i] for i in range(len(points))])


def _axis(name: str, values: object) -> list[Any]:
    """Values of an axis."""
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        raise ConfigError(f"must be a list of values, got {values!r}", field=name)
    listed = list(map(_plain, values))
    if not listed:
        raise ConfigError("has no values; give at least one", field=name)
    return listed


def _plain(value: Any) -> Any:
    """Value with numbers of Python in place of those of NumPy, also within mappings."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value


def _table(
    axes: Mapping[str, Sequence[Any]], results: Sequence[Mapping[str, float | None]]
) -> SweepTable:
    """Results of all points; a number that does not exist is nan."""
    labels = {name: _labels(values) for name, values in axes.items()}
    table = SweepTable(of_rows([*axes], product(*labels.values())))
    for name in dict.fromkeys(name for result in results for name in result):
        if name not in axes:
            values = [result.get(name) for result in results]
            table[name] = np.array([np.nan if value is None else value for value in values])
    table.axes = tuple(axes)
    return table


class _GridPoint:
    """One point of a grid.

    Raises
    ------
    ConfigError : it is not a valid experiment; the message names the point.
    """

    def __init__(self, base: Experiment, values: Mapping[str, Any]) -> None:
        self.text = ", ".join(f"{name}={_label(value)}" for name, value in values.items())
        try:
            self.experiment = base.replace(**values)
        except ConfigError as error:
            raise ConfigError(f"{error.message} (at {self.text})", field=error.field) from None


def _computed(
    points: list[_GridPoint], missing: list[int], width: int, *, shows: bool
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Results of the missing points, each when it is done."""
    if not missing:
        return
    _points[:] = points
    make: Callable[[int], Any] = lambda workers: processes(workers, "fork")  # noqa: E731
    done = len(points) - len(missing)
    console = Console(stderr=True, quiet=not shows)
    try:
        with (
            make(width) if width > 1 else InlineExecutor() as pool,
            StudyProgress(console, "sweep", done, len(points)) as progress,
        ):
            for i, outcome in outcomes(missing, _run_point, pool, width, make):
                if isinstance(outcome, RunFailure):
                    details = f"\n{outcome.details}" if outcome.details else ""
                    raise ReshapeError(f"at {points[i].text}: {outcome.message}{details}")
                progress.step()
                yield i, json.loads(outcome)
    finally:
        _points.clear()  # they hold the columns of all jobs


def _run_point(i: int) -> Outcome:
    """Metrics of a point, as JSON."""
    import traceback

    try:
        return as_json(means_of(_points[i].experiment.run(progress=False).metrics))
    except ReshapeError as error:
        return RunFailure(str(error))
    except Exception as error:
        return RunFailure(f"{type(error).__name__}: {error}", traceback.format_exc())


class _Store:
    """Finished points by their digests, in an SQLite file or nowhere."""

    def __init__(self, file: str | Path | None) -> None:
        self._file = file
        self._base: sqlite3.Connection | None = None

    def __enter__(self) -> _Store:
        """Open the file."""
        if self._file is not None:
            try:
                self._base = sqlite3.connect(self._file)
                self._base.execute("CREATE TABLE IF NOT EXISTS points (digest PRIMARY KEY, result)")
            except sqlite3.Error as error:
                raise ReshapeError(f"{self._file} cannot be used: {error}") from None
        return self

    def __exit__(self, *error: object) -> None:
        """Close the file."""
        if self._base is not None:
            self._base.close()

    def get(self, key: str) -> dict[str, Any] | None:
        """Result of a point; None: it is not known."""
        if self._base is None:
            return None
        row = self._base.execute("SELECT result FROM points WHERE digest = ?", (key,)).fetchone()
        return None if row is None else json.loads(row[0])

    def put(self, key: str, result: Mapping[str, Any]) -> None:
        """Keep the result of a point."""
        if self._base is None:
            return
        try:
            with self._base:
                self._base.execute(
                    "INSERT OR REPLACE INTO points VALUES (?, ?)", (key, json.dumps(result))
                )
        except sqlite3.Error as error:
            raise ReshapeError(f"{self._file} cannot be written: {error}") from None


def _labels(values: Sequence[Any]) -> list[Any]:
    """What a table shows for the values of an axis; equal labels are numbered."""
    labels = [_label(value) for value in values]
    repeated = {label for label in labels if labels.count(label) > 1}
    return [f"{label} #{i}" if label in repeated else label for i, label in enumerate(labels, 1)]


def _label(value: Any) -> Any:
    """What a table shows for a value of an axis: a number, or a text."""
    value = _plain(value)
    if value is None or isinstance(value, str | int | float):
        return "" if value is None else value
    if isinstance(value, Scenario):
        return value.name
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_label(item)}" for name, item in value.items())
    return type(value).__name__ if repr(value) == object.__repr__(value) else repr(value)
