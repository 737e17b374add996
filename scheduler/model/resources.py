"""Several resources: processors and others that nodes have (memory, licences, disk).

A further resource is a pool of the whole machine, as in Leinberger, Karypis and Kumar, "Job
scheduling in the presence of multiple resource requirements" (KRES) section 1: the amounts of all
nodes are added up, and a job takes its share from any of them. Amounts are whole numbers.

Expected releases, profiles, reservations and backfilling compute with a `Quantity`: a plain number
with processors as the only resource, which adds no cost, and `Amounts` as soon as a node or a job
names another resource. Both can be added, subtracted and compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import add, ge, le, neg, sub
from typing import Any, Protocol, Self, cast


class Quantity(Protocol):
    """Number of processors, or an amount of each resource.

    ``needed <= free`` is true if enough is free, and ``needed > free`` is its negation.
    """

    def __add__(self, other: Any, /) -> Self:
        """Add."""

    def __sub__(self, other: Any, /) -> Self:
        """Subtract."""

    def __neg__(self) -> Self:
        """Negate."""

    def __le__(self, other: Any, /) -> bool:
        """Whether no amount exceeds the other's."""

    def __lt__(self, other: Any, /) -> bool:
        """Whether some amount falls short of the other's."""

    def __ge__(self, other: Any, /) -> bool:
        """Whether no amount falls short of the other's."""

    def __gt__(self, other: Any, /) -> bool:
        """Whether some amount exceeds the other's."""


class Amounts(tuple[int, ...]):
    """Amount of each resource, processors first.

    The order is partial: ``a < b`` is ``not a >= b`` (some part falls short), and ``a > b`` is
    ``not a <= b`` (some part exceeds).
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
    """Largest amount of each resource in at least one quantity."""
    if isinstance(quantities[0], Amounts):
        parts = zip(*cast("Sequence[Amounts]", quantities), strict=True)
        return Amounts(map(max, parts))
    return max(cast("Sequence[int]", quantities))


def excess(available: Quantity, needed: Quantity) -> Quantity:
    """Difference, with 0 for each resource that does not suffice."""
    left = available - needed
    if isinstance(left, Amounts):
        return Amounts(max(0, part) for part in left)
    return max(0, cast("int", left))


def processors_of(quantity: Quantity) -> int:
    """Number of processors in a quantity."""
    return quantity if isinstance(quantity, int) else cast("Amounts", quantity)[0]


class Pools:
    """The further resources of a machine.

    Attributes
    ----------
    names : resources that nodes had or jobs requested, in the order in which they were first named.
    installed : amount of each on all known nodes, up or down.
    there : amount on the nodes that are up, and amounts that belong to no node.
    held : amount that jobs hold; after the loss of a node it may exceed `there` for a while.
    """

    def __init__(self, resources: Mapping[str, int] | None = None) -> None:
        self.names: list[str] = []
        self.installed: list[int] = []
        self.there: list[int] = []
        self.held: list[int] = []
        self.install(resources or {})
        self.offer(resources or {})

    def register(self, names: Iterable[str]) -> bool:
        """Register names of resources; return whether one is new."""
        new = [name for name in names if name not in self.names]
        if not new:
            return False
        for column in (self.installed, self.there, self.held):
            column += [0] * len(new)
        self.names += new
        return True

    def install(self, resources: Mapping[str, int], sign: int = 1) -> None:
        """Add what a node has, whether it is up or down (sign -1: subtract it)."""
        self._count(self.installed, resources, sign)

    def offer(self, resources: Mapping[str, int], sign: int = 1) -> None:
        """Add what a node that is up has (sign -1: subtract it)."""
        self._count(self.there, resources, sign)

    def has(self, resources: Mapping[str, int]) -> bool:
        """Whether all nodes together, up or down, have these amounts."""
        installed = dict(zip(self.names, self.installed, strict=True))
        return all(amount <= installed.get(name, 0) for name, amount in resources.items())

    def take(self, resources: Mapping[str, int], sign: int = 1) -> None:
        """Let a job hold resources (sign -1: release them)."""
        self._count(self.held, resources, sign)

    def _count(self, column: list[int], resources: Mapping[str, int], sign: int) -> None:
        self.register(resources)
        for name, amount in resources.items():
            column[self.names.index(name)] += sign * amount

    def demand(self, processors: int, resources: Mapping[str, int]) -> Amounts:
        """Amounts of processors and of these resources, in the order of `names`."""
        return Amounts((processors, *(resources.get(name, 0) for name in self.names)))

    def free(self, processors: int) -> Amounts:
        """Free processors, as given, and the free amount of each other resource."""
        return Amounts((processors, *map(sub, self.there, self.held)))

    def format_quantity(self, quantity: Quantity) -> int | str:
        """Quantity as a fact of a reason: a number, or words for several resources."""
        if not isinstance(quantity, Amounts):
            return cast("int", quantity)
        parts = zip(["processors", *self.names], quantity, strict=True)
        return ", ".join(f"{amount} {name}" for name, amount in parts)


def checked(resources: Mapping[str, int]) -> None:
    """Check the names and amounts of resources.

    Raises
    ------
    ValueError : a name is empty or means the processors, or an amount is below 0.
    """
    for name, amount in resources.items():
        if not name or name == "processors":
            raise ValueError(f"{name!r} cannot be the name of a further resource")
        if amount < 0:
            raise ValueError(f"{name} must be >= 0, got {amount}")
