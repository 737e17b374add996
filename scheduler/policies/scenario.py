"""Scenarios: named compositions, in data, of queue order, backfilling, resizing and selection.

PRIO 3: "a scheduling scenario defines a specific, concrete attempt at achieving the scheduling
policy". A scenario can be written down and read back (journal, YAML file) and changed field by
field (``resizing.min_benefit=0.1``); a wrong field or value is told by its name.
"""

from __future__ import annotations

import msgspec

from reshape.errors import ConfigError
from scheduler.model.machine import Machine, Selection, anywhere
from scheduler.policies.backfill.backfill import Backfill
from scheduler.policies.queue_orders.aging import ByQueue
from scheduler.policies.queue_orders.basic import Fcfs
from scheduler.policies.redirection import Redirection
from scheduler.policies.resizing.interface import Resizing
from scheduler.policies.selection.first_fit import FirstFit
from scheduler.predictions.estimates import Estimates, UserEstimates
from scheduler.state.queue import QueueOrder


class QueueRules(msgspec.Struct, frozen=True):
    """What a named queue does otherwise than the rest: its order, and how its jobs are resized."""

    order: QueueOrder = Fcfs()
    resizing: Resizing | None = None


class Scenario(msgspec.Struct, frozen=True):
    """A named composition of policies.

    Parameters
    ----------
    name : what people call it.
    order : order of the queue.
    backfill : which jobs may pass others.
    backfill_order : in which order later jobs are tried when the first one has to wait; None is the
        order of the queue.
    estimates : how long jobs are expected to run.
    resizing : what happens at resize points; None keeps every job at its starting size (static).
    selection : which processors a group gets.
    max_restarts : times a job is started again after its processes died in a resize.
    retry_after : resize points before an expansion that failed is tried again.
    queues : rules of the named queues that have their own; backfilling and processors are shared,
        so the jobs of all queues stand in one line. Their orders must be of priorities then.
    redirection : when jobs are started again in a redirection group; None: there is no such group.
    """

    name: str
    order: QueueOrder = Fcfs()
    backfill: Backfill = Backfill()
    backfill_order: QueueOrder | None = None
    estimates: Estimates = UserEstimates()
    resizing: Resizing | None = None
    selection: Selection = FirstFit()
    max_restarts: int = 3
    retry_after: int = 3
    redirection: Redirection | None = None
    queues: dict[str, QueueRules] = {}

    @property
    def queue_order(self) -> QueueOrder:
        """Order of the jobs of all queues together."""
        orders = {name: rules.order for name, rules in self.queues.items()}
        if all(order == self.order for order in orders.values()):
            return self.order
        return ByQueue(self.order, orders)

    def minds_places(self, machine: Machine) -> bool:
        """Whether the selection may refuse although enough processors of a machine are free.

        Raises
        ------
        ConfigError : it needs a network that the machine has not, or the backfilling makes promises
            by numbers alone that it would break.
        """
        if getattr(self.selection, "needs_network", False) and machine.space.network is None:
            raise ConfigError("it needs a machine with a network", field="selection")
        if machine.counted or anywhere(self.selection):
            return False
        if self.backfill.reservations not in (0, 1):
            raise ConfigError(
                f"backfilling with {self.backfill.name} promises numbers of processors, not places;"
                " contiguous selections go with 0 reservations (FCFS) or 1 (EASY)",
                field="selection",
            )
        return True

    def resizing_of(self, queue: str) -> Resizing | None:
        """How the jobs of a queue are resized."""
        rules = self.queues.get(queue)
        return self.resizing if rules is None else rules.resizing
