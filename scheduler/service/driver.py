"""The driver of the decision core in a live service.

The events of one turn of the service's loop go to the core together, and the journal notes them
with the orders that the core gives. Then the driver compares the processes on the nodes with the
state of the core and makes the components start and end what differs.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable

from scheduler.model.events import (
    Event,
    JobCancelled,
    JobSubmitted,
    NodeJoined,
    NodeLost,
    ResizePoint,
    Wakeup,
)
from scheduler.model.orders import Continue, Order, Requeue, WakeAt
from scheduler.service.assembly import Components

log = logging.getLogger(__name__)

#: Every job is compared with its processes at least once in this many ticks.
RECHECK_TICKS = 20


class Driver:
    """Hands events to the core and carries out its orders.

    Attributes
    ----------
    events : events to decide on in this turn.
    after_decision : functions to call after the decision of this turn.
    changed_jobs : jobs that may differ from their processes.
    """

    def __init__(self, components: Components) -> None:
        self._core, self._journal = components.core, components.journal
        self._clock = components.clock
        self._monitor, self._startup = components.monitor, components.startup
        self._remap, self._ends = components.remap, components.ends
        self._policy_errors = self._core.on_policy_error = components.policy_errors
        self.events: list[Event] = []
        self.after_decision: list[Callable[[], None]] = []
        self.changed_jobs: set[int] = set()
        self._alarms: list[float] = []
        self._unsettled: set[int] = set()  # jobs known to differ from their processes
        self._recheck: list[int] = []  # jobs still to be compared in this round
        self._recheck_share = 1  # number of them that one tick compares

    def restore_alarms(self) -> None:
        """Set the alarms of the jobs that a recovered core runs."""
        self._alarms = sorted(job.expected_end for job in self._core.live.values())

    def register_nodes(self, names: list[str]) -> None:
        """Number the processors of new nodes in the configured order, before any agent reports."""
        now = self._clock()
        events: list[Event] = []
        for name in names:
            if name not in self._core.machine.nodes:
                events.append(self._monitor.joined_event(name, now))
                events.append(NodeLost(at=now, node=name))  # down until its agent reports
        if events:
            self.decide(events)

    def run_turn(self) -> set[int]:
        """Decide on the events of this turn; return the jobs that were compared with processes."""
        events, self.events = self.events, []
        after, self.after_decision = self.after_decision, []
        if events:
            self.decide(events)
        for act in after:
            act()
        if not (self.changed_jobs or self._monitor.changed_jobs):
            return set()
        return self._reconcile()

    def decide(self, events: list[Event]) -> list[Order]:
        """Hand events to the core now, and note events and orders in the journal."""
        durable = any(isinstance(event, JobSubmitted | JobCancelled) for event in events)
        orders = self._core.handle(events)
        self._journal.record(self._policy_errors.noted(events), orders, durable=durable)
        for order in orders:
            if isinstance(order, WakeAt):
                heapq.heappush(self._alarms, order.at)
                continue
            if isinstance(order, Requeue):
                self._remap.progress.pop(order.job, None)  # the second life starts at iteration 0
            if not isinstance(order, Continue):
                log.info("%s", order)
                self.changed_jobs.add(order.job)
        for event in events:
            if isinstance(event, NodeJoined | NodeLost):
                self.changed_jobs |= self._core.live.keys() | self._monitor.known_jobs()
            elif not isinstance(event, ResizePoint | Wakeup):
                self.changed_jobs.add(event.job)
        return orders

    def tick(self, *, start_agents: bool, heard_all: bool) -> None:
        """Do what is due at the present time.

        Parameters
        ----------
        start_agents : whether to start an agent on nodes that have none.
        heard_all : whether every message that has arrived was read, so that the silence of an
            agent may be judged.
        """
        self.changed_jobs |= self._unsettled
        self.changed_jobs.update(self._next_to_recheck())
        now = self._clock()
        for event in self._monitor.on_tick(now, start_agents=start_agents, heard_all=heard_all):
            self.decide([event])
        self.events += self._remap.on_tick()
        if self._alarms and self._alarms[0] <= now:
            while self._alarms and self._alarms[0] <= now:
                heapq.heappop(self._alarms)
            self.events.append(Wakeup(at=now))
        self._startup.forget_old()

    def _reconcile(self) -> set[int]:
        """Report ended processes to the core; start and end processes as its state requires."""
        core = self._core
        compared = self.changed_jobs | self._monitor.changed_jobs
        ended = [
            event
            for number in sorted(compared & core.live.keys())
            for event in self._ends.examine(core.live[number])
        ]
        if ended:
            self.decide(ended)
        compared |= self.changed_jobs
        self.changed_jobs, self._monitor.changed_jobs = set(), set()
        for number in sorted(compared & core.jobs.keys()):
            self._startup.arrange(core.jobs[number])
            if self._startup.is_settled(core.jobs[number]):
                self._unsettled.discard(number)
            else:
                self._unsettled.add(number)
        return compared

    def _next_to_recheck(self) -> list[int]:
        """Return the next share of all jobs, so that an undetected difference is found in time."""
        if not self._recheck:
            known = self._monitor.known_jobs() | self._core.live.keys()
            self._recheck = sorted(known, reverse=True)
            self._recheck_share = 1 + len(self._recheck) // RECHECK_TICKS
        share = self._recheck[-self._recheck_share :]
        del self._recheck[-self._recheck_share :]
        return share
