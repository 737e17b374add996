"""Several resources at once: processors and whatever else nodes hold (memory, licences, disk).

A further resource is a pool of the whole machine, as in Leinberger, Karypis and Kumar, "Job
scheduling in the presence of multiple resource requirements" (KRES) section 1: what the nodes bring
is added up, and a job takes its part from wherever it is. Amounts are whole numbers of some unit.

Whatever reckons with processors (expected ends, profiles, reservations, backfilling) reckons with a
`Quantity`: a plain number as long as there are processors alone, which costs nothing extra, and
`Amounts` as soon as a node or a job names another resource. Both add, subtract and compare.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import add, ge, le, neg, sub
from typing import Any, Protocol, Self, cast


class Quantity(Protocol):
    """How much: a number of processors, or so much of each resource.

    ``needed <= free`` says that it suffices and ``needed > free`` that it does not, everywhere.
    """

    def __add__(self, other: Any, /) -> Self:
        """Put together."""

    def __sub__(self, other: Any, /) -> Self:
        """Take away."""

    def __neg__(self) -> Self:
        """Owe."""

    def __le__(self, other: Any, /) -> bool:
        """Whether there is no more of anything than in the other."""

    def __lt__(self, other: Any, /) -> bool:
        """Whether it does not reach the other."""

    def __ge__(self, other: Any, /) -> bool:
        """Whether there is no less of anything than in the other."""

    def __gt__(self, other: Any, /) -> bool:
        """Whether it exceeds the other."""


class Amounts(tuple[int, ...]):
    """So much of each resource, processors first.

    Not every two can be ordered: ``a < b`` is ``not a >= b`` (some part falls short), and ``a > b``
    is ``not a <= b`` (some part exceeds).
    """

    __slots__ = ()

    def __add__(self, other: Any) -> Amounts:
        """Add part by part."""
        return Amounts(map(add, self, other))

    def __sub__(self, other: Any) -> Amounts:
        """Subtract part by part."""
        return Amounts(map(sub, self, other))

    def __neg__(self) -> Amounts:
        """Negate every part."""
        return Amounts(map(neg, self))

    def __le__(self, other: Any) -> bool:
        """Whether no part exceeds the other's."""
        return all(map(le, self, other))

    def __ge__(self, other: Any) -> bool:
        """Whether no part falls short of the other's."""
        return all(map(ge, self, other))

    def __lt__(self, other: Any) -> bool:
        """Whether some part falls short of the other's."""
        return not all(map(ge, self, other))

    def __gt__(self, other: Any) -> bool:
        """Whether some part exceeds the other's."""
        return not all(map(le, self, other))


def highest(quantities: Sequence[Quantity]) -> Quantity:
    """Most there is at any time of each resource; there must be one quantity at least."""
    if isinstance(quantities[0], Amounts):
        parts = zip(*cast("Sequence[Amounts]", quantities), strict=True)
        return Amounts(map(max, parts))
    return max(cast("Sequence[int]", quantities))


def excess(there: Quantity, needed: Quantity) -> Quantity:
    """What is left over, nothing where it does not suffice."""
    left = there - needed
    if isinstance(left, Amounts):
        return Amounts(max(0, part) for part in left)
    return max(0, cast("int", left))


def processors_of(quantity: Quantity) -> int:
    """The processors in it."""
    return quantity[0] if isinstance(quantity, Amounts) else cast("int", quantity)


class Pools:
    """The further resources of a machine.

    Attributes
    ----------
    names : every resource that a node held or a job asked for, in the order of their coming.
    installed : amount of each on all nodes known, up or not.
    there : amount on the nodes that are up, and what belongs to no node.
    held : amount that jobs hold; it may exceed `there` for a moment when a node was lost.
    """

    def __init__(self, resources: Mapping[str, int] | None = None) -> None:
        self.names: list[str] = []
        self.installed: list[int] = []
        self.there: list[int] = []
        self.held: list[int] = []
        self.install(resources or {})
        self.offer(resources or {})

    def register(self, names: Iterable[str]) -> bool:
        """Give these resources a place, and tell whether one is new."""
        new = [name for name in names if name not in self.names]
        if not new:
            return False
        for column in (self.installed, self.there, self.held):
            column += [0] * len(new)
        self.names += new
        return True

    def install(self, resources: Mapping[str, int], sign: int = 1) -> None:
        """Count resources that a node holds, whether it is up or not."""
        self._count(self.installed, resources, sign)

    def offer(self, resources: Mapping[str, int], sign: int = 1) -> None:
        """Let a node that is up bring its resources, or take them away (-1)."""
        self._count(self.there, resources, sign)

    def take(self, resources: Mapping[str, int], sign: int = 1) -> None:
        """Let a job hold resources, or give them back (-1)."""
        self._count(self.held, resources, sign)

    def _count(self, column: list[int], resources: Mapping[str, int], sign: int) -> None:
        self.register(resources)
        for name, amount in resources.items():
            column[self.names.index(name)] += sign * amount

    def demand(self, processors: int, resources: Mapping[str, int]) -> Amounts:
        """Give processors and these resources in the order of the names."""
        return Amounts((processors, *(resources.get(name, 0) for name in self.names)))

    def free(self, processors: int) -> Amounts:
        """So many free processors, and what nobody holds of the rest."""
        return Amounts((processors, *map(sub, self.there, self.held)))

    def format_quantity(self, quantity: Quantity) -> int | str:
        """Write a quantity for a reason: a number, or words where there are several."""
        if not isinstance(quantity, Amounts):
            return cast("int", quantity)
        parts = zip(["processors", *self.names], quantity, strict=True)
        return ", ".join(f"{amount} {name}" for name, amount in parts)


def checked(resources: Mapping[str, int]) -> None:
    """Look at resources that somebody named.

    Raises
    ------
    ValueError : a name that is empty or means the processors, or an amount below 0.
    """
    for name, amount in resources.items():
        if not name or name == "processors":
            raise ValueError(f"{name!r} is no name of a further resource")
        if amount < 0:
            raise ValueError(f"{name} must be >= 0, got {amount}")
