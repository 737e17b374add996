"""Speedup models: the time of an iteration as a function of the number of processors.

The formulas need no MPI. The simulator and the application that sleeps as long as a model says
(:mod:`apps.synthetic`) share them, so that a live run and its simulation use the same model.

===============================  ================================================================
``prio:alpha=0.8``               PRIO section 4.1, in the form that has sweet spots
``prio:reading=printed``         PRIO section 4.1, the formula as printed
``amdahl:serial=0.05``           Amdahl's law
``downey:A=64,sigma=0.5``        Downey's model: average parallelism A, its variance sigma
``table:2=10,4=6,8=5``           measured: processors = seconds, interpolated
===============================  ================================================================
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from functools import lru_cache
from math import inf, isfinite, log
from typing import Any, Literal, Protocol, TypeAlias, get_args

import msgspec

from reshape.errors import nearest
from reshape.key_values import key_values
from reshape.user_modules import user_module


class Speedup(Protocol):
    """A speedup model."""

    def factor(self, start: int, size: int) -> float:
        """Return the speedup on `size` processors relative to `start` processors."""


class _Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="model"):
    """Base of the models; the tag identifies the model in files."""


class Prio(_Model, frozen=True, tag="prio"):
    """Speedup model of PRIO (Sudarsan and Ribbens, Priority scheduling ...) section 4.1.

    Parameters
    ----------
    alpha : node efficiency, 0 < alpha <= 1; the paper's experiments use 0.8.
    reading : the formula is printed as ``(P2/P1) ** (alpha * (P2-P1)/P1)``, which is superlinear
        for P2 > 2.25 P1 and never decreases. This contradicts the "realistic speedup" and the sweet
        spots of the paper. "sweet-spot" means ``(P2/P1) ** (alpha ** ((P2-P1)/P1))``: the curve of
        figure 2, which has its maximum near three times the processors (alpha 0.75). "printed"
        means the formula as printed.

    Raises
    ------
    ValueError : alpha is out of range.
    """

    alpha: float = 0.8
    reading: Literal["sweet-spot", "printed"] = "sweet-spot"

    def __post_init__(self) -> None:
        """Check the range."""
        if not 0 < self.alpha <= 1:
            raise ValueError(f"alpha must be > 0 and <= 1, got {self.alpha}")

    def factor(self, start: int, size: int) -> float:
        """Return the speedup on `size` processors relative to `start` processors."""
        ratio, growth = size / start, (size - start) / start
        exponent = self.alpha * growth if self.reading == "printed" else self.alpha**growth
        return float(ratio**exponent)


class Amdahl(_Model, frozen=True, tag="amdahl"):
    """Amdahl's law: a fraction of the work is serial, the rest scales perfectly.

    Parameters
    ----------
    serial : the fraction, of the time on one processor.

    Raises
    ------
    ValueError : `serial` is not within 0 and 1.
    """

    serial: float = 0.05

    def __post_init__(self) -> None:
        """Check the range."""
        if not 0 <= self.serial <= 1:
            raise ValueError(f"serial must be >= 0 and <= 1, got {self.serial}")

    def factor(self, start: int, size: int) -> float:
        """Return the speedup on `size` processors relative to `start` processors."""
        return self._time(start) / self._time(size)

    def _time(self, size: int) -> float:
        return self.serial + (1 - self.serial) / size


class Downey(_Model, frozen=True, tag="downey"):
    """Downey's model (A model for speedup of parallel programs, UCB/CSD-97-933, 1997).

    The run time on n processors follows from a hypothetical profile of parallelism. The speedup is:

    low variance, ``sigma <= 1`` (the parallelism is A, except for a fraction sigma of the time, in
    which it is 1 for one half and 2A - 1 for the other)::

        A n / (A + sigma (n - 1) / 2)                   1 <= n <= A
        A n / (sigma (A - 1/2) + n (1 - sigma / 2))     A <= n <= 2A - 1
        A                                               n >= 2A - 1

    high variance, ``sigma >= 1`` (a sequential part of length sigma, and one of parallelism
    A + A sigma - sigma)::

        n A (sigma + 1) / (sigma (n + A - 1) + A)       1 <= n <= A + A sigma - sigma
        A                                               n >= A + A sigma - sigma

    Both are equal at sigma = 1.

    Parameters
    ----------
    A : average parallelism, >= 1: the speedup that no number of processors exceeds.
    sigma : coefficient of variance of the parallelism, >= 0; 0 is perfect scaling up to A.

    Raises
    ------
    ValueError : a parameter is out of range.
    """

    A: float = 64.0
    sigma: float = 0.5

    def __post_init__(self) -> None:
        """Check the ranges."""
        if not 1 <= self.A < inf:
            raise ValueError(f"A must be >= 1, got {self.A}")
        if not 0 <= self.sigma < inf:
            raise ValueError(f"sigma must be >= 0, got {self.sigma}")

    def speedup(self, n: int) -> float:
        """Return the speedup on `n` processors relative to one."""
        A, sigma = self.A, self.sigma
        most = 2 * A - 1 if sigma <= 1 else A + A * sigma - sigma
        if n >= most:
            return A
        if sigma > 1:
            return n * A * (sigma + 1) / (sigma * (n + A - 1) + A)
        if n <= A:
            return A * n / (A + sigma * (n - 1) / 2)
        return A * n / (sigma * (A - 0.5) + n * (1 - sigma / 2))

    def factor(self, start: int, size: int) -> float:
        """Return the speedup on `size` processors relative to `start` processors."""
        return self.speedup(size) / self.speedup(start)


Formula: TypeAlias = Prio | Amdahl | Downey


class Tabulated(_Model, frozen=True, tag="table"):
    """Measured times, interpolated between two sizes by a power law as in the performance profiler.

    Parameters
    ----------
    times : size -> seconds of an iteration, or another unit, as only ratios matter; at least one.
    beyond : model for sizes outside the table, scaled to be continuous at the nearest end of the
        table; None: the time is constant there.

    Raises
    ------
    ValueError : there is no size, a size is below 1, or a time is not above 0.
    """

    times: dict[int, float]
    beyond: Formula | None = None

    def __post_init__(self) -> None:
        """Check the table."""
        if not self.times:
            raise ValueError("times must name at least one size")
        for size, seconds in self.times.items():
            if size < 1:
                raise ValueError(f"times: a size must be >= 1, got {size}")
            if not 0 < seconds < inf:
                raise ValueError(f"times: the time on {size} must be > 0, got {seconds}")

    def time(self, size: int) -> float:
        """Return the time on this many processors."""
        if size in self.times:
            return self.times[size]
        sizes = sorted(self.times)
        index = bisect_left(sizes, size)
        if 0 < index < len(sizes):
            low, high = sizes[index - 1], sizes[index]
            part = log(size / low) / log(high / low)
            return float(self.times[low] ** (1 - part) * self.times[high] ** part)
        first, end = sizes[0], sizes[0] if index == 0 else sizes[-1]
        if self.beyond is None:
            return self.times[end]
        # Relative to the first size, because PRIO's model is another curve for another start.
        return self.times[end] * self.beyond.factor(first, end) / self.beyond.factor(first, size)

    def factor(self, start: int, size: int) -> float:
        """Return the speedup on `size` processors relative to `start` processors."""
        return self.time(start) / self.time(size)


Model: TypeAlias = Formula | Tabulated
MODELS: Mapping[str, type[Model]] = {
    model.__struct_config__.tag: model for model in get_args(Model)
}
FORMS = (
    "prio:alpha=0.8, prio:reading=printed, amdahl:serial=0.05, downey:A=64,sigma=0.5 "
    "or table:2=10,4=6"
)


def parse(text: str) -> Model:
    """Read a model from its text: a name and parameters, each of which may be left out.

    Raises
    ------
    ValueError : a name or parameter is unknown (the message suggests the nearest), or a value is
        out of range.
    """
    name, _, rest = text.partition(":")
    if name not in MODELS:
        raise ValueError(
            f"unknown speedup model {name!r}{nearest(name, MODELS)}; write it as in {FORMS}"
        )
    parameters = None if name == "table" else MODELS[name].__struct_fields__
    try:
        fields: dict[str, Any] = {**key_values(filter(None, rest.split(",")), parameters)}
    except ValueError as error:
        raise ValueError(f"{text!r}: {error}; write it as in {FORMS}") from None
    if name == "table":
        fields = {"times": fields}
    try:
        model: Model = msgspec.convert({"model": name} | fields, Model, strict=False)
    except msgspec.ValidationError as error:
        raise ValueError(f"{text!r}: {str(error).partition(' - at')[0]}") from None
    return model


def written(model: Model) -> str:
    """Return the text from which `parse` makes the model; `beyond` of a table is left out."""
    fields: dict[str, Any] = msgspec.to_builtins(model)
    name = fields.pop("model")
    if isinstance(model, Tabulated):
        fields = {str(size): seconds for size, seconds in model.times.items()}
    defaults = msgspec.structs.fields(type(model))
    changed = {
        key: value
        for key, value in fields.items()
        if not any(field.name == key and field.default == value for field in defaults)
    }
    parts = ",".join(f"{key}={value}" for key, value in changed.items())
    return f"{name}:{parts}" if parts else name


def is_own_class(text: str) -> bool:
    """Whether a text names a class of a user, ``module:Class``, and not one of the models here."""
    name, _, rest = text.partition(":")
    return name not in MODELS and rest.partition(",")[0].isidentifier()


@lru_cache(maxsize=1024)
def named(text: str) -> Speedup:
    """Return the model that a text names: one of this module, or ``module:Class,key=value,...``.

    A class of a user is created with the values as keyword arguments, numbers where they are such.

    Raises
    ------
    ValueError : there is no such model, or it cannot be created; it has no method `factor`.
    """
    if not is_own_class(text):
        return parse(text)
    spec, *rest = text.split(",")
    module, _, name = spec.partition(":")
    try:
        values = {key: _number(value) for key, value in key_values(rest).items()}
        made = getattr(user_module(module), name)(**values)
    except Exception as error:  # code of a user
        kind = type(error).__name__
        raise ValueError(f"performance model {text!r} cannot be made: {kind}: {error}") from None
    if not callable(getattr(made, "factor", None)):
        raise ValueError(f"performance model {text!r} has no method factor(start, size)")
    return made  # type: ignore[no-any-return]


def _number(text: str) -> int | float | str:
    """Read a number, or return the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


@lru_cache(maxsize=16384)
def speedup_by(text: str, start: int, size: int) -> float | None:
    """Speedup on `size` processors relative to `start`, by a model as `named` reads it.

    Returns
    -------
    None if there is no such model, it raises an exception, or the result is not above 0 and finite.
    """
    try:
        factor = float(named(text).factor(start, size))
    except Exception:  # code of a user
        return None
    return factor if isfinite(factor) and factor > 0 else None
