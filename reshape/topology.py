"""Valid processor sizes of a job.

A topology determines the sizes that a job can run on, given the size on which it started. It is
pure data without MPI, which runtime and scheduler share.

========================  =======================================================================
``arbitrary``             any size; an expansion adds ``step`` processors
``nearly-square``         a grid of rows x columns; an expansion adds to its smaller dimension
``power-of-2``            1, 2, 4, 8, ...; an expansion doubles
``list:2,4,8``            exactly these sizes
``...:divides=120``       those sizes of any of these that divide 120
========================  =======================================================================

The kinds, and the condition that global data can be distributed equally, are those of PRIO
(Sudarsan and Ribbens, Priority scheduling for resizable applications), sections 2 and 4.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import count, takewhile
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


def _growing_grids(size: int) -> Iterator[int]:
    """Yield the sizes that result from adding one to the smaller dimension of the grid, repeatedly.

    "Additional processors are added to the smallest row or column of the existing topology" (PRIO
    2). The existing grid is always `nearly_square(size)`, on which the job runs.
    """
    while True:
        yield size
        rows, cols = nearly_square(size)
        size = (rows + 1) * cols


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
            given = key_values((part for part in parts if "=" in part), _OPTIONS)
            options = {name: _integer(value) for name, value in given.items()}
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

    def check_start(self, start: int) -> None:
        """Check that a job of this topology can start on this many processors.

        Raises
        ------
        ValueError : it cannot; the error names the nearest sizes.
        """
        if self._can_start(start):
            return
        below = next((s for s in range(start - 1, 0, -1) if self._can_start(s)), None)
        reach = range(max(start, 0) + 1, max(start, 0) + _SEARCH)
        above = next((s for s in reach if self._can_start(s)), None)
        closest = " or ".join(str(size) for size in (below, above) if size is not None)
        hint = f"; nearest: {closest}" if closest else ""
        raise ValueError(f"a job of topology {self} cannot start on {start} processors{hint}")

    def valid_sizes(self, start: int, maximum: int) -> tuple[int, ...]:
        """Return the sizes reachable by expansions from `start`, ascending, `start` included.

        Raises
        ------
        ValueError : no job of this topology can start on `start`, or `maximum` is below it.
        """
        self.check_start(start)
        if maximum < start:
            raise ValueError(f"maximum must be >= the starting size {start}, got {maximum}")
        return tuple(self._sizes(start, start - 1, maximum))

    def next_larger(self, current: int, start: int, maximum: int) -> int | None:
        """Return the next valid size above `current`, None if there is none up to `maximum`.

        Raises
        ------
        ValueError : no job of this topology can start on `start`.
        """
        self.check_start(start)
        return next(self._sizes(start, current, maximum), None)

    def allows(self, size: int, start: int) -> bool:
        """Whether a job that started on `start` processors can run on `size` of them.

        Raises
        ------
        ValueError : no job of this topology can start on `start`.
        """
        self.check_start(start)
        return next(self._sizes(start, size - 1, size), None) == size

    def grid(self, size: int) -> tuple[int, int]:
        """Return (rows, cols), rows <= cols, of the most square grid of this many processors."""
        return nearly_square(size)

    def _sizes(self, start: int, above: int, maximum: int) -> Iterator[int]:
        """Valid sizes s with above < s <= maximum, ascending."""
        if self.divides is not None:
            maximum = min(maximum, self.divides)  # no larger number divides it
        for size in takewhile(lambda size: size <= maximum, self._expansions(start, above)):
            if size > above and self._divides(size):
                yield size

    def _expansions(self, start: int, above: int) -> Iterator[int]:
        """Sizes from `start` on, regardless of `divides`; sizes <= above may be left out."""
        if self.kind == "nearly-square":
            return _growing_grids(start)
        if self.kind == "power-of-2":
            return (start << doublings for doublings in count())
        if self.kind == "list":
            return (size for size in self.sizes if size >= start)
        skipped = max(0, (above - start) // self.step)  # begin near `above`: a machine may be large
        return count(start + skipped * self.step, self.step)

    def _divides(self, size: int) -> bool:
        return self.divides is None or self.divides % size == 0

    def _can_start(self, size: int) -> bool:
        if size < 1 or not self._divides(size):
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

    def fault(self, start: int, most: int, topology: Topology | None) -> str:
        """Why a job can never be between these bounds; empty if it can.

        Parameters
        ----------
        start : size on which it started, below which it cannot contract.
        most : largest size that its submission allows.
        topology : its valid sizes; None: any.
        """
        minimum, maximum = self
        if minimum < 0 or maximum < 0:
            return f"the bounds must be >= 1, got {minimum} and {maximum}"
        if 0 < maximum < minimum:
            return f"the minimum {minimum} is above the maximum {maximum}"
        if minimum > most:
            return f"the submission of the job allows {most} processors at most"
        if 0 < maximum < start:
            return f"the job cannot run on fewer than the {start} processors it started on"
        low, high = max(start, minimum), min(most, maximum or most)
        if topology is not None and topology.next_larger(low - 1, start, high) is None:
            return f"the topology {topology} of the job has no size from {low} to {high}"
        return ""


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a whole number") from None
