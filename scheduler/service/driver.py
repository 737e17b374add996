"""The gate through which every decision goes.

The events of one turn are handed to the core together, and written to the journal with the orders
that it gives. Then processes are made what the core's state says.
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
from scheduler.service.assembly import Parts

log = logging.getLogger(__name__)

#: All jobs are compared with their processes once in so many ticks, should news have been missed.
ROUND_TICKS = 20


class Gate:
    """Decides on events, and lets processes follow.

    Attributes
    ----------
    events : what is to be decided on in this turn.
    after : what is to be done when that is decided.
    news : jobs that may differ from their processes.
    """

    def __init__(self, parts: Parts) -> None:
        self._core, self._journal, self._clock = parts.core, parts.journal, parts.clock
        self._monitor, self._startup = parts.monitor, parts.startup
        self._remap, self._ends = parts.remap, parts.ends
        self._excuses = self._core.excuse = parts.policy_errors
        self.events: list[Event] = []
        self.after: list[Callable[[], None]] = []
        self.news: set[int] = set()
        self._alarms: list[float] = []
        self._unsettled: set[int] = set()  # jobs that do differ: something is to come or to repeat
        self._round: list[int] = []  # jobs still to be looked at in any case
        self._share = 1  # ... so many at a tick

    def open(self) -> None:
        """Think of the alarms that the journal leaves."""
        self._alarms = sorted(job.expected_end for job in self._core.live.values())

    def install(self, names: list[str]) -> None:
        """Number the processors of new nodes as they are configured, whoever comes up first."""
        now = self._clock()
        events: list[Event] = []
        for name in names:
            if name not in self._core.machine.nodes:
                events.append(self._monitor.joined(name, now))
                events.append(NodeLost(at=now, node=name))  # until its agent is here
        if events:
            self.decide(events)

    def turn(self) -> bool:
        """Decide on what has come together; whether processes were compared with jobs."""
        events, self.events = self.events, []
        after, self.after = self.after, []
        if events:
            self.decide(events)
        for act in after:
            act()
        if not (self.news or self._monitor.news):
            return False
        self._follow()
        return True

    def decide(self, events: list[Event]) -> list[Order]:
        """Hand events to the core now, and write down what it says."""
        durable = any(isinstance(event, JobSubmitted | JobCancelled) for event in events)
        orders = self._core.handle(events)
        self._journal.record(self._excuses.noted(events), orders, durable=durable)
        for order in orders:
            if isinstance(order, WakeAt):
                heapq.heappush(self._alarms, order.at)
                continue
            if isinstance(order, Requeue):
                self._remap.progress.pop(order.job, None)  # it begins anew
            if not isinstance(order, Continue):
                log.info("%s", order)
                self.news.add(order.job)
        for event in events:
            if isinstance(event, NodeJoined | NodeLost):
                self.news |= self._core.live.keys() | self._monitor.known_jobs()
            elif not isinstance(event, ResizePoint | Wakeup):
                self.news.add(event.job)
        return orders

    def tick(self, *, hire: bool) -> None:
        """Do what time alone asks for.

        Parameters
        ----------
        hire : whether nodes without an agent are to get one.
        """
        self.news |= self._unsettled
        self.news.update(self._next_of_round())
        now = self._clock()
        for event in self._monitor.on_tick(now, hire=hire):
            self.decide([event])
        self.events += self._remap.on_tick()
        if self._alarms and self._alarms[0] <= now:
            while self._alarms and self._alarms[0] <= now:
                heapq.heappop(self._alarms)
            self.events.append(Wakeup(at=now))
        self._startup.forget_old()

    def _follow(self) -> None:
        """Let processes be what jobs say, and jobs what has become of processes."""
        core = self._core
        looked = self.news | self._monitor.news
        ended = [
            event
            for number in sorted(looked & core.live.keys())
            for event in self._ends.examine(core.live[number])
        ]
        if ended:
            self.decide(ended)
        looked |= self.news
        self.news, self._monitor.news = set(), set()
        for number in sorted(looked & core.jobs.keys()):
            self._startup.arrange(core.jobs[number])
            if self._startup.is_settled(core.jobs[number]):
                self._unsettled.discard(number)
            else:
                self._unsettled.add(number)

    def _next_of_round(self) -> list[int]:
        """Jobs that are looked at although there is no news of them: all of them, in turn."""
        if not self._round:
            known = self._monitor.known_jobs() | self._core.live.keys()
            self._round = sorted(known, reverse=True)
            self._share = 1 + len(self._round) // ROUND_TICKS
        part = self._round[-self._share :]
        del self._round[-self._share :]
        return part
