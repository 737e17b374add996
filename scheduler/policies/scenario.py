"""Scenarios: named compositions of queue order, backfilling, resizing and processor selection.

PRIO 3: "a scheduling scenario defines a specific, concrete attempt at achieving the scheduling
policy". A scenario is data: `scheduler.policies.scenarios` writes it to a journal, reads it back
and changes single fields (``resizing.min_benefit=0.1``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from reshape.errors import ConfigError
from scheduler.model.interfaces import QueueOrder, Selection
from scheduler.model.machine import Machine
from scheduler.model.network import lacks
from scheduler.policies.backfill.backfill import Backfill
from scheduler.policies.backfill.own_pass import Scheduling
from scheduler.policies.queue_orders.aging import ByQueue
from scheduler.policies.queue_orders.basic import Fcfs
from scheduler.policies.redirection import Redirection
from scheduler.policies.resizing.interface import Resizing
from scheduler.policies.selection.basic import FirstFit
from scheduler.predictions.estimates import Estimates, UserEstimates
from scheduler.text.used_fields import Needs, check


def _backfills(own: Scenario) -> bool:
    return own.own_scheduling is None


class QueueRules(msgspec.Struct, frozen=True):
    """Rules of a named queue that has its own.

    Parameters
    ----------
    order : queue order of its jobs.
    resizing : resizing policy of its jobs; None: they are not resized.
    """

    order: QueueOrder = Fcfs()
    resizing: Resizing | None = None


class Scenario(msgspec.Struct, frozen=True):
    """A named composition of policies.

    Parameters
    ----------
    name : name for messages and reports.
    order : queue order.
    backfill : backfilling rule: which jobs may start before jobs ahead of them.
    scheduling : user-defined scheduling pass in place of backfilling; None: there is none.
    backfill_order : order in which jobs behind the head are tried; None is the queue order.
    estimates : source of the estimates of run times.
    resizing : resizing policy; None keeps every job at its starting size (static). If it has a
        method `schedule`, it takes the place of backfilling as well.
    selection : processor selection.
    max_restarts : number of restarts of a job whose processes died in a resize; after the last one
        no resize of the job is tried any more.
    retry_after : resize points before a resize that failed is tried again.
    max_failures : number of expansions, or of contractions, of a job that fail in succession and
        after which no other one is tried. Before that, the second and each further one is followed
        by a pause of 4, 8, 16 s and so on, up to one hour.
    redirection : rule of redirection; None: there is no redirection group.
    queues : rules of the named queues that have their own. Backfilling and processors are shared
        and the jobs of all queues are in one order, so that all orders must give priorities.
    partitions : scenario of each partition, by name, in place of this one; the first takes the jobs
        that name none. Empty: there is one partition without a name.

    A field that is set although it has no effect with the values of the others is refused; the
    tables `field_needs`, here and in the policies, say what such fields need.

    Raises
    ------
    UnusedFieldError : a field has no effect.
    """

    field_needs: ClassVar[Mapping[str, Needs]] = {
        **{
            f"backfill.{field}": Needs(_backfills, "without a user-defined scheduling pass")
            for field in Backfill.__struct_fields__
            if field != "max_jobs"
        },
        "backfill_order": Needs(
            lambda own: (
                _backfills(own) and (own.backfill.reservations == 1 or own.backfills_on_table)
            ),
            "with 1 reservation (EASY), or with some and a selection on the reservation table",
        ),
        "backfill.pick": Needs(
            lambda own: (
                _backfills(own) and (own.backfill.pick != "penalty" or own.backfills_on_table)
            ),
            "with reservations for some jobs and a selection on the reservation table, such as rua",
        ),
        "backfill.reserve": Needs(
            lambda own: (
                _backfills(own)
                and (own.backfill.reservations, own.backfill.pick) == (1, "first")
                and not own.selection.anywhere
            ),
            "with 1 reservation (EASY), pick first and a selection that may refuse, such as"
            " contiguous",
        ),
    }

    name: str
    order: QueueOrder = Fcfs()
    backfill: Backfill = Backfill()
    scheduling: Scheduling | None = None
    backfill_order: QueueOrder | None = None
    estimates: Estimates = UserEstimates()
    resizing: Resizing | None = None
    selection: Selection = FirstFit()
    max_restarts: int = 3
    retry_after: int = 3
    max_failures: int = 6
    redirection: Redirection | None = None
    queues: dict[str, QueueRules] = {}
    partitions: dict[str, Scenario] = {}

    def __post_init__(self) -> None:
        """Check that no field was set in vain."""
        check(self, f"scenario {self.name}")

    @property
    def backfills_on_table(self) -> bool:
        """Whether jobs behind reservations of some jobs are placed on the reservation table."""
        return self.selection.searches_table and self.backfill.reservations not in (0, None)

    @property
    def queue_order(self) -> QueueOrder:
        """Order of the jobs of all queues together.

        Raises
        ------
        ValueError : the queues have different orders, and one of them gives no priority.
        """
        orders = {name: rules.order for name, rules in self.queues.items()}
        if all(order == self.order for order in orders.values()):
            return self.order
        return ByQueue(self.order, orders)

    def selection_may_refuse(self, machine: Machine) -> bool:
        """Whether the selection may refuse although enough processors of a machine are free.

        Raises
        ------
        ConfigError : the selection needs a network that the machine does not have; the backfilling
            reserves numbers of processors, which a selection that refuses would not honour; or its
            pick does not go with the selection.
        """
        lacking = lacks(machine.space.network, self.selection.network)
        if lacking is not None and not machine.counted:
            raise ConfigError(lacking, field="selection")
        if self.selection.searches_table and self.backfill.pick in ("bl", "bb"):
            raise ConfigError(
                f"a selection on the reservation table does not go with pick {self.backfill.pick}",
                field="backfill.pick",
            )
        if machine.counted or self.selection.anywhere:
            return False
        if self.backfill.reservations not in (0, 1):
            raise ConfigError(
                f"backfilling with {self.backfill.name} promises numbers of processors, not places;"
                " contiguous selections go with 0 reservations (FCFS) or 1 (EASY)",
                field="selection",
            )
        return True

    @property
    def own_scheduling(self) -> Scheduling | None:
        """Scheduling pass in place of backfilling: its own, or that of the resizing policy.

        A resizing policy with a method `schedule` decides on starts as well.
        """
        if self.scheduling is not None:
            return self.scheduling
        policy: Any = self.resizing
        return policy if callable(getattr(type(policy), "schedule", None)) else None

    @property
    def needs_index(self) -> bool:
        """Whether the pass asks the queue's index for the first job that fits."""
        rules = self.backfill
        few = rules.reservations not in (0, None) and rules.max_jobs is None
        return self.own_scheduling is None and few and rules.pick == "first"

    def resizing_of(self, queue: str) -> Resizing | None:
        """Resizing policy of the jobs of a queue; None: they are not resized."""
        rules = self.queues.get(queue)
        return self.resizing if rules is None else rules.resizing
