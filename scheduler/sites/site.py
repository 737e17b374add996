"""The interface between a driver and what it drives.

The service, the simulator and the replay hand events to a site and carry out the orders that it
returns. A `Core` is a site, and so is a `TwoGroupSite`, which leads events to two cores. Code that
drives a site uses the members below and nothing else of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from scheduler.model.events import Event
from scheduler.model.job import Job
from scheduler.model.machine import Node
from scheduler.model.orders import Order, Reason
from scheduler.model.procset import ProcSet
from scheduler.policies.scenario import Scenario
from scheduler.state.exclusions import Exclusions


class SiteMachine(Protocol):
    """Nodes and processors of a site, for reading."""

    @property
    def nodes(self) -> Mapping[str, Node]:
        """Nodes by name, in the order in which they first joined."""

    @property
    def processors(self) -> int:
        """Number of processors of the nodes that are up."""

    @property
    def installed(self) -> int:
        """Number of processors of all known nodes, up or not."""

    @property
    def free_count(self) -> int:
        """Number of processors that no job holds."""

    @property
    def resources(self) -> dict[str, tuple[int, int]]:
        """Further resources of the nodes that are up, by name: (amount, free amount)."""

    def by_node(self, processors: ProcSet) -> dict[str, ProcSet]:
        """Divide a set of processors by node, in the order of their numbers."""


class Driven(Protocol):
    """What the loop of the virtual clock uses of a site; several centres together have it, too."""

    @property
    def now(self) -> float:
        """Time of the latest instant handled, seconds."""

    @property
    def jobs(self) -> Mapping[int, Job]:
        """All jobs that the site remembers, by number."""

    @property
    def live(self) -> Mapping[int, Job]:
        """The jobs that hold processors, by number."""

    @property
    def machine(self) -> SiteMachine:
        """Nodes and processors."""

    def handle(self, events: Sequence[Event]) -> list[Order]:
        """Apply the events of one instant and return the orders that follow from them."""


class RecordingSite(Driven, Protocol):
    """A site that keeps ended jobs until a driver calls `forget`."""

    def forget(self, job: int) -> None:
        """Drop the record of a job that has ended.

        Raises
        ------
        ValueError : the job has not ended.
        """


class Site(RecordingSite, Protocol):
    """A scheduler that a driver supplies with events and whose orders the driver carries out."""

    @property
    def scenario(self) -> Scenario:
        """The scenario that decides; it may be replaced between two instants."""

    @scenario.setter
    def scenario(self, scenario: Scenario) -> None: ...

    @property
    def kill_at_walltime(self) -> bool:
        """Whether jobs that exceed their walltime are ended."""

    @kill_at_walltime.setter
    def kill_at_walltime(self, kill: bool) -> None: ...

    @property
    def exclusions(self) -> Exclusions:
        """Advance reservations and nodes that expire."""

    def reason_pending(self, job: int) -> Reason:
        """Return why a queued job does not run yet.

        Raises
        ------
        KeyError : no job of this number is queued.
        """
