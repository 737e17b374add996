"""What the loop of the virtual clock drives: a core, or several as one.

A `scheduler.core.core.Core` is such a thing, and so are the centres of a simulation together, and a
core whose nodes come and go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from scheduler.model.events import Event
from scheduler.model.job import Job
from scheduler.model.orders import Order


class DrivenMachine(Protocol):
    """Nodes and processors, for reading."""

    @property
    def processors(self) -> int:
        """Number of processors of the nodes that are up."""

    @property
    def free_count(self) -> int:
        """Number of processors that no job holds."""


class Driven(Protocol):
    """What the loop of the virtual clock uses."""

    @property
    def now(self) -> float:
        """Time of the latest instant handled, seconds."""

    @property
    def jobs(self) -> Mapping[int, Job]:
        """All jobs that are remembered, by number."""

    @property
    def live(self) -> Mapping[int, Job]:
        """The jobs that hold processors, by number."""

    @property
    def machine(self) -> DrivenMachine:
        """Nodes and processors."""

    def handle(self, events: Sequence[Event]) -> list[Order]:
        """Apply the events of one instant and return the orders that follow from them."""


class Recording(Driven, Protocol):
    """Something driven that keeps ended jobs until `forget` is called."""

    def forget(self, job: int) -> None:
        """Drop the record of a job that has ended.

        Raises
        ------
        ValueError : the job has not ended.
        """
