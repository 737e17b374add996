"""Valid processor sizes of a job.

A topology determines the sizes that a job can run on, given the size that it requests. It is pure
data without MPI, which runtime and scheduler share.

========================  =======================================================================
``arbitrary``             any size; sizes differ from the request by a multiple of ``step``
``nearly-square``         a grid of rows x columns; the next larger one has one more row, the next
                          smaller one a column less, where rows <= columns
``power-of-2``            1, 2, 4, 8, ...
``list:2,4,8``            exactly these sizes
``...:divides=120``       those sizes of any of these that divide 120
========================  =======================================================================

The kinds, and the condition that global data can be distributed equally, are those of PRIO
(Sudarsan and Ribbens, Priority scheduling for resizable applications), sections 2 and 4.1.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, cast, get_args

import msgspec

from reshape.errors import nearest
from reshape.key_values import key_values

Kind = Literal["arbitrary", "nearly-square", "power-of-2", "list"]

KINDS: tuple[Kind, ...] = get_args(Kind)
FORMS = (
    "arbitrary, arbitrary:step=2, nearly-square, power-of-2 or list:2,4,8, "
    "each also with divides=N, as in nearly-square:divides=120"
)
_OPTIONS = ("step", "divides")
_SEARCH = 100_000  # largest distance from an invalid starting size to a valid one in its error


@lru_cache(maxsize=4096)
def nearly_square(size: int) -> tuple[int, int]:
    """Return rows and columns of the most square grid of this many processors.

    Parameters
    ----------
    size : number of processors.

    Returns
    -------
    (rows, cols) with rows <= cols and rows * cols == size; a prime gives (1, size).

    Raises
    ------
    ValueError : size is < 1.
    """
    if size < 1:
        raise ValueError(f"a grid needs at least 1 processor, got {size}")
    rows = next(r for r in range(math.isqrt(size), 0, -1) if size % r == 0)
    return rows, size // rows


@lru_cache(maxsize=4096)
def _grid_sizes(request: int, least: int, most: int) -> tuple[int, ...]:
    """Sizes of the grids around that of a request, ascending.

    "Additional processors are added to the smallest row or column of the existing topology" (PRIO
    2): a larger grid has one more row, where rows <= columns. A smaller one has one column less.
    The existing grid is always `nearly_square(size)`, on which the job runs.
    """
    smaller, size = [], request
    while size > 1:
        rows, cols = nearly_square(size)
        size = rows * (cols - 1)
        if size >= least:
            smaller.append(size)
    larger, size = [], request
    while size <= most:
        larger.append(size)
        rows, cols = nearly_square(size)
        size = (rows + 1) * cols
    return tuple(size for size in [*reversed(smaller), *larger] if least <= size <= most)


class Topology(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The processor sizes a job can run on.

    Parameters
    ----------
    kind : "arbitrary", "nearly-square", "power-of-2" or "list".
    step : processors that an expansion adds; for "arbitrary" only.
    sizes : the sizes, ascending; for "list" only.
    divides : if given, only divisors of this number are valid sizes.

    Raises
    ------
    ValueError : a field is out of range, or does not belong to this kind.
    """

    kind: Kind = "arbitrary"
    step: int = 1
    sizes: tuple[int, ...] = ()
    divides: int | None = None

    def __post_init__(self) -> None:
        """Refuse values for which no job could run."""
        if self.kind not in KINDS:
            raise ValueError(f"unknown topology kind {self.kind!r}{nearest(self.kind, KINDS)}")
        if self.step < 1:
            raise ValueError(f"step must be >= 1, got {self.step}")
        if self.step != 1 and self.kind != "arbitrary":
            raise ValueError(f"step={self.step} belongs to arbitrary, not to {self.kind}")
        if self.divides is not None and self.divides < 1:
            raise ValueError(f"divides must be >= 1, got {self.divides}")
        if self.sizes and self.kind != "list":
            raise ValueError(f"explicit sizes belong to list, not to {self.kind}")
        if self.kind == "list":
            self._check_list()

    def _check_list(self) -> None:
        if not self.sizes:
            raise ValueError("a list needs at least one size, as in list:2,4,8")
        if self.sizes[0] < 1 or any(
            a >= b for a, b in zip(self.sizes, self.sizes[1:], strict=False)
        ):
            corrected = ",".join(map(str, sorted({s for s in self.sizes if s >= 1})))
            hint = f"; write list:{corrected}" if corrected else ""
            raise ValueError(f"sizes must be >= 1 and ascending, got {list(self.sizes)}{hint}")
        if self.divides is not None and not any(self.divides % s == 0 for s in self.sizes):
            raise ValueError(f"none of the sizes {list(self.sizes)} divides {self.divides}")

    @classmethod
    def parse(cls, text: str) -> Topology:
        """Read a topology from its text, such as ``nearly-square`` or ``arbitrary:step=2``.

        Raises
        ------
        ValueError : the text is not in an accepted form; the message names the wrong part.
        """
        kind, _, rest = text.strip().partition(":")
        try:
            parts = rest.split(",") if rest else []
            sizes = [_integer(part) for part in parts if "=" not in part]
            pairs = key_values((part for part in parts if "=" in part), _OPTIONS)
            options = {name: _integer(value) for name, value in pairs.items()}
            return cls(cast(Kind, kind), sizes=tuple(sizes), **options)  # __post_init__ checks kind
        except ValueError as error:
            raise ValueError(f"topology {text!r}: {error}; accepted are {FORMS}") from None

    def __str__(self) -> str:
        """Text from which `parse` makes an equal topology."""
        parts = [str(size) for size in self.sizes]
        if self.step != 1:
            parts.append(f"step={self.step}")
        if self.divides is not None:
            parts.append(f"divides={self.divides}")
        return f"{self.kind}:{','.join(parts)}" if parts else self.kind

    def check_start(self, start: int, minimum: int | None = None) -> None:
        """Check that a job of this topology can start on this many processors.

        Parameters
        ----------
        minimum : fewest processors on which the job may start; None: `start`.

        Raises
        ------
        ValueError : it cannot; the error names the nearest sizes.
        """
        least = start if minimum is None else minimum
        if start >= 1 and self._between(start, least, start):
            return
        below = next((s for s in range(least - 1, 0, -1) if self._can_start(s)), None)
        reach = range(max(start, 0) + 1, max(start, 0) + _SEARCH)
        above = next((s for s in reach if self._can_start(s)), None)
        closest = " or ".join(str(size) for size in (below, above) if size is not None)
        hint = f"; nearest: {closest}" if closest else ""
        sizes = f"{least} to {start}" if least < start else f"{start}"
        raise ValueError(f"a job of topology {self} cannot start on {sizes} processors{hint}")

    def valid_sizes(self, request: int, maximum: int, minimum: int | None = None) -> Sequence[int]:
        """Return the valid sizes of a job, ascending.

        Parameters
        ----------
        request : preferred size, from which "arbitrary" and "nearly-square" count in both
            directions.
        maximum, minimum : largest and smallest size; None: the job never has fewer processors than
            its request.

        Raises
        ------
        ValueError : the job cannot start on its request, or on any size from `minimum` to it;
            `maximum` is below the request.
        """
        if maximum < request:
            raise ValueError(f"maximum must be >= the requested size {request}, got {maximum}")
        if request < 1:
            self.check_start(request)
        least = request if minimum is None else minimum
        sizes = self._between(request, least, maximum)
        if not sizes or sizes[0] > request:
            self.check_start(request, least)
        return sizes

    def _between(self, request: int, least: int, most: int) -> Sequence[int]:
        """Valid sizes s with least <= s <= most, ascending."""
        least = max(least, 1)
        if self.divides is not None:
            most = min(most, self.divides)  # no larger number divides it
        sizes: Sequence[int]
        if self.kind == "nearly-square":
            sizes = _grid_sizes(request, least, most)
        elif self.kind == "power-of-2":
            sizes = [1 << n for n in range(most.bit_length()) if least <= 1 << n <= most]
        elif self.kind == "list":
            sizes = [size for size in self.sizes if least <= size <= most]
        else:
            sizes = range(least + (request - least) % self.step, most + 1, self.step)
        if self.divides is not None:
            sizes = [size for size in sizes if self.divides % size == 0]
        return sizes

    def _can_start(self, size: int) -> bool:
        if size < 1 or (self.divides is not None and self.divides % size):
            return False
        if self.kind == "power-of-2":
            return size & (size - 1) == 0
        return self.kind != "list" or size in self.sizes


class SizeBounds(NamedTuple):
    """Smallest and largest size that a program requests; 0: no bound."""

    minimum: int = 0
    maximum: int = 0

    def __str__(self) -> str:
        """Describe the bounds."""
        least, most = self
        if not least and not most:
            return "any size"
        if not most:
            return f"{least} processors or more"
        return f"{least} to {most} processors" if least else f"{most} processors or fewer"

    def fault(self, least: int, most: int, sizes: Sequence[int]) -> str:
        """Why a job can never be between these bounds; empty if it can.

        Parameters
        ----------
        least, most : smallest and largest size that its submission allows.
        sizes : its valid sizes, ascending.
        """
        minimum, maximum = self
        if minimum < 0 or maximum < 0:
            return f"the bounds must be >= 1, got {minimum} and {maximum}"
        if 0 < maximum < minimum:
            return f"the minimum {minimum} is above the maximum {maximum}"
        if minimum > most:
            return f"the submission of the job allows {most} processors at most"
        if 0 < maximum < least:
            return f"the job cannot run on fewer than {least} processors"
        low, high = max(least, minimum), min(most, maximum or most)
        i = bisect_left(sizes, low)
        if i == len(sizes) or sizes[i] > high:
            return f"the job has no valid size from {low} to {high}"
        return ""


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None
