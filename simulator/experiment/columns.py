"""Jobs from columns of numbers, such as those of a data frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sized
from datetime import UTC, datetime, timedelta
from math import inf, nan
from numbers import Real
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from reshape.errors import ConfigError, nearest
from simulator.traces.normalise import BOUNDS
from simulator.traces.swf import LARGEST, Column, Trace, whole

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
    **{name: (name, -1.0) for name in BOUNDS},
}
REQUIRED = ("submit_s", "processors", "run_s")
FIX = "correct the value or leave the row out"
_WHOLE = frozenset(NAMES) - {"submit_s", "run_s", "walltime_s", "think_s"}


@runtime_checkable
class Frame(Protocol):
    """What is used of a data frame; pandas iterates over names of columns, polars over columns."""

    @property
    def columns(self) -> Iterable[Any]:
        """Names of the columns."""

    def __getitem__(self, name: Any, /) -> Any:
        """Column of a name."""


def plain_numbers(value: Any) -> Any:
    """Value with numbers of Python in place of those of NumPy, also within mappings and lists."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {name: plain_numbers(item) for name, item in value.items()}
    return [plain_numbers(item) for item in value] if type(value) is list else value


def given_columns(source: object, named: Mapping[str, Iterable[Any]]) -> dict[str, Iterable[Any]]:
    """Columns of a mapping or a data frame, and those that are named besides.

    Raises
    ------
    ConfigError : the source is another object, or a column is given twice.
    """
    columns: dict[str, Iterable[Any]] = {}
    if isinstance(source, Mapping):
        columns = {str(name): column for name, column in source.items()}
    elif isinstance(source, Sized) and isinstance(source, Frame):  # a lazy frame has no length
        for name in source.columns:
            if str(name) in columns:
                raise ConfigError("is in the data frame twice; keep one", field=str(name))
            columns[str(name)] = source[name]
    elif source is not None:
        fix = f"; read a file by Jobs.read({str(source)!r})" * isinstance(source, str | Path)
        fix = fix or f", got {type(source).__name__}"
        fix += "; collect it first" * fix.endswith("LazyFrame")
        raise ConfigError(f"must be a mapping of columns or a data frame{fix}", field="jobs")
    for name in named.keys() & columns.keys():
        raise ConfigError("is given twice; keep one", field=name)
    return {**columns, **named}


def trace_of(columns: Mapping[str, Iterable[Any]]) -> Trace:
    """Make a trace of columns.

    Parameters
    ----------
    columns : name -> n values. `submit_s`, `run_s` and `walltime_s` are in seconds; `walltime_s`
        is the run time if it is left out. Durations (timedeltas) become seconds, and dates and
        times in `submit_s` seconds since 1970, in UTC unless they have a time zone. `user`, `group`
        and `executable` may be texts. `preceding_job` and `think_s` are for feedback.
        `min_processors` and `max_processors` are bounds on the sizes of resizable jobs; -1: none.

    Raises
    ------
    ConfigError : a column is missing or unknown, has another length, or holds a value that is
        masked, no number, too small or beyond `LARGEST`; the message names the column and the row,
        counted from 0.
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
    _check_bounds(arrays)
    arrays.setdefault("walltime_s", arrays["run_s"])
    arrays.setdefault("job", np.arange(1.0, count + 1.0))
    made: dict[str, Column] = {NAMES[name][0]: whole(values) for name, values in arrays.items()}
    made["processors"] = made["requested_processors"]
    return Trace("columns", [], made, is_table=True)


def _check_bounds(arrays: Mapping[str, NDArray[np.float64]]) -> None:
    """Check that the processors of each job are between its bounds."""
    processors = arrays["processors"]
    for name, words, is_beyond in zip(
        BOUNDS, ("at most", "at least"), (np.greater, np.less), strict=True
    ):
        bounds = arrays.get(name, processors)
        wrong = (bounds > 0) & is_beyond(bounds, processors)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ConfigError(
                f"row {row}: must be {words} {processors[row]:g}, the processors of the job, got"
                f" {bounds[row]:g}; {FIX}",
                field=name,
            )


def _numbers(name: str, values: Iterable[Any]) -> NDArray[np.float64]:
    """Values as numbers, texts by their order among the different ones."""
    try:
        listed = values if isinstance(values, np.ndarray) else list(values)
        array = np.asarray(listed)
    except TypeError:
        raise ConfigError(
            f"must be an array or a list, one value for each job, got {values!r}", field=name
        ) from None
    except ValueError:
        raise ConfigError("must have one dimension, got lists in a list", field=name) from None
    if array.ndim != 1:
        raise ConfigError(f"must have one dimension, got {array.ndim}", field=name)
    masked = np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else None
    if masked is not None and masked.any():
        raise ConfigError(f"row {int(np.argmax(masked))}: is masked; {FIX}", field=name)
    if array.dtype.kind in "OUS" and name in ("user", "group", "executable"):
        _refuse_unknown(name, listed)
        return np.unique(array.astype(str), return_inverse=True)[1].astype(np.float64)
    numbers = array.astype(np.float64) if array.dtype.kind in "iuf" else _seconds(name, array)
    _check_range(name, numbers)
    return numbers


def _refuse_unknown(name: str, values: Iterable[Any]) -> None:
    """Refuse what is neither a text nor a number among texts, such as None or nan."""
    for row, value in enumerate(values):
        if not isinstance(value, str | bytes) and not (isinstance(value, Real) and value == value):
            fix = "give '' or 'unknown' where it is not known"
            raise ConfigError(f"row {row}: must be a text, got {value!r}; {fix}", field=name)


def _seconds(name: str, values: NDArray[Any]) -> NDArray[np.float64]:
    """Numbers, durations in seconds, or times in seconds since 1970."""
    if values.dtype.kind == "m" and name.endswith("_s"):
        return np.asarray(values / np.timedelta64(1, "s"), np.float64)
    if values.dtype.kind == "M" and name == "submit_s":
        since_1970 = values - np.datetime64(0, "s")
        return np.asarray(since_1970 / np.timedelta64(1, "s"), np.float64)
    numbers = np.empty(len(values))
    for row, value in enumerate(values):
        kind = _kind(name, value)
        if kind is None:
            what = "a number of seconds" if name.endswith("_s") else "a number"
            value = value.item() if isinstance(value, np.generic) else value
            raise ConfigError(f"row {row}: must be {what}, got {value!r}", field=name)
        if kind is not _kind(name, values[0]):
            raise ConfigError(f"row {row}: must be of the kind of row 0, got {value!r}", field=name)
        if kind is timedelta:
            value = value.total_seconds()
        numbers[row] = _since_1970(value) if kind is datetime else float(value)
    return numbers


def _kind(name: str, value: object) -> type | None:
    """Kind of a value that a column may have; None: it may not."""
    if isinstance(value, datetime):
        return datetime if name == "submit_s" else None
    if isinstance(value, timedelta):
        return timedelta if name.endswith("_s") else None
    return (
        Real if isinstance(value, Real) and not isinstance(value, bool | np.timedelta64) else None
    )


def _since_1970(at: datetime) -> float:
    """Seconds since 1970, nan of the NaT of pandas; a time without a zone is in UTC."""
    if at != at:
        return nan
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _check_range(name: str, numbers: NDArray[np.float64]) -> None:
    """Refuse the first value that a job cannot have."""
    least = NAMES[name][1]
    wrong = ~(numbers >= least) | ~(numbers <= LARGEST)
    if name in _WHOLE:
        wrong |= numbers != np.floor(numbers)
    if not wrong.any():
        return
    row, kind = int(np.argmax(wrong)), "whole" if name in _WHOLE else "finite"
    value, most, fix = numbers[row], "", FIX
    if LARGEST < value < inf:
        most = f" and <= {LARGEST:g}"
        if name.endswith("_s"):
            fix = "if these are not seconds, convert them, or give the dates and times themselves"
    fault = f"must be a {kind} number >= {least:g}{most}, got {value:g}"
    raise ConfigError(f"row {row}: {fault}; {fix}", field=name)
