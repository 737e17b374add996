"""Jobs from columns of numbers, such as those of a data frame."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from numbers import Real
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from reshape.errors import ConfigError, nearest
from simulator.traces.plain_lines import Column, whole
from simulator.traces.swf import Oddities, Trace

#: Name of a column -> column of a trace, and the least value.
NAMES: dict[str, tuple[str, float]] = {
    "submit_s": ("submit", 0.0),
    "processors": ("requested_processors", 1.0),
    "run_s": ("run", 0.0),
    "walltime_s": ("requested_time", 0.0),
    "job": ("job", 0.0),
    "user": ("user", -1.0),
    "group": ("group", -1.0),
    "executable": ("executable", -1.0),
    "queue": ("queue", -1.0),
    "partition": ("partition", -1.0),
    "memory_kib": ("requested_memory", -1.0),
    "preceding_job": ("preceding", -1.0),
    "think_s": ("think", -1.0),
}
REQUIRED = ("submit_s", "processors", "run_s")
_WHOLE = frozenset(NAMES) - {"submit_s", "run_s", "walltime_s", "think_s"}


@runtime_checkable
class Frame(Protocol):
    """What is used of a data frame; pandas iterates over names of columns, polars over columns."""

    @property
    def columns(self) -> Iterable[Any]:
        """Names of the columns."""

    def __getitem__(self, name: Any, /) -> Any:
        """Column of a name."""


def given_columns(source: object, named: Mapping[str, Iterable[Any]]) -> dict[str, Iterable[Any]]:
    """Columns of a mapping or a data frame, and those that are named besides.

    Raises
    ------
    ConfigError : the source is another object, or a column is given twice.
    """
    given: dict[str, Iterable[Any]] = {}
    if isinstance(source, Mapping):
        given = {str(name): column for name, column in source.items()}
    elif isinstance(source, Frame):
        for name in source.columns:
            if str(name) in given:
                raise ConfigError("is in the data frame twice; keep one", field=str(name))
            given[str(name)] = source[name]
    elif source is not None:
        fix = f"; read a file by Jobs.read({str(source)!r})" * isinstance(source, str | Path)
        raise ConfigError(f"must be a mapping of columns or a data frame{fix}", field="jobs")
    for name in named.keys() & given.keys():
        raise ConfigError("is given twice; keep one", field=name)
    return {**given, **named}


def trace_of(columns: Mapping[str, Iterable[Any]]) -> Trace:
    """Make a trace of columns.

    Parameters
    ----------
    columns : name -> n values. `submit_s`, `run_s` and `walltime_s` are in seconds; `walltime_s`
        is the run time if it is left out. `user`, `group` and `executable` may be texts.
        `preceding_job` and `think_s` are for feedback.

    Raises
    ------
    ConfigError : a column is missing or unknown, has another length, or holds a value that is no
        number or too small; the message names the column and the row, counted from 0.
    """
    for name in columns:
        if name not in NAMES:
            raise ConfigError(f"unknown column{nearest(str(name), NAMES)}", field=str(name))
    for name in REQUIRED:
        if name not in columns:
            raise ConfigError(f"is missing; jobs need {', '.join(REQUIRED)}", field=name)
    arrays = {name: _numbers(name, values) for name, values in columns.items()}
    count = len(arrays["submit_s"])
    for name, values in arrays.items():
        if len(values) != count:
            raise ConfigError(
                f"has {len(values)} values and submit_s {count}; give one for each job", field=name
            )
    if not count:
        raise ConfigError("there is no job; give columns with at least one row", field="submit_s")
    arrays.setdefault("walltime_s", arrays["run_s"])
    arrays.setdefault("job", np.arange(1.0, count + 1.0))
    made: dict[str, Column] = {NAMES[name][0]: whole(values) for name, values in arrays.items()}
    made["processors"] = made["requested_processors"]
    return Trace("columns", [], made, Oddities(), is_table=True)


def _numbers(name: str, values: Iterable[Any]) -> NDArray[np.float64]:
    """Values as numbers, texts by their order among the different ones."""
    try:
        given = np.asarray(values if isinstance(values, np.ndarray) else list(values))
    except TypeError:
        raise ConfigError(
            f"must be an array or a list, one value for each job, got {values!r}", field=name
        ) from None
    except ValueError:
        raise ConfigError("must have one dimension, got lists in a list", field=name) from None
    if given.ndim != 1:
        raise ConfigError(f"must have one dimension, got {given.ndim}", field=name)
    if given.dtype.kind in "OUS" and name in ("user", "group", "executable"):
        return np.unique(given.astype(str), return_inverse=True)[1].astype(np.float64)
    if given.dtype.kind not in "biuf":
        for row, value in enumerate(given):
            if not isinstance(value, Real) or given.dtype.kind == "m":
                what = "a number of seconds" if name.endswith("_s") else "a number"
                value = value.item() if isinstance(value, np.str_) else value
                raise ConfigError(f"row {row}: must be {what}, got {value!r}", field=name)
    numbers = given.astype(np.float64)
    for row, fault in _faults(name, numbers):
        fix = "correct the value or leave the row out"
        raise ConfigError(f"row {row}: {fault}, got {numbers[row]:g}; {fix}", field=name)
    return numbers


def _faults(name: str, numbers: NDArray[np.float64]) -> Iterator[tuple[int, str]]:
    """First row with a value that a job cannot have, and what it must be."""
    least = NAMES[name][1]
    wrong = ~(numbers >= least) | ~np.isfinite(numbers)
    if name in _WHOLE:
        wrong |= numbers != np.floor(numbers)
    if wrong.any():
        kind = "whole number" if name in _WHOLE else "finite number"
        yield int(np.argmax(wrong)), f"must be a {kind} >= {least:g}"
