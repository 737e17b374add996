"""The driver of the decision core in a live service.

The events of one turn of the service's loop go to the core together, and the journal notes them
with the orders that the core gives. Then the driver compares the processes on the nodes with the
state of the core and makes the components start and end what differs.

For each event and order the code below compares types with tuples: a union like `A | B` would be
made anew each time.

The core reads no clock, so it cannot stop a pass when a time is over. The driver measures the
processor time of each decision. If one took too long, the event `DepthChanged` limits the next
passes to fewer jobs; when passes of that depth are short again, another event allows more. The
events are in the journal, so that a replay examines the same jobs.
"""

from __future__ import annotations

import heapq
import logging
import time
from collections.abc import Callable
from itertools import islice
from typing import Final

from scheduler.journal.explanations import sentence
from scheduler.journal.journal_format import MEASURED
from scheduler.journal.recovery import take_cancellations
from scheduler.model.events import (
    ClockSet,
    DepthChanged,
    DrainChanged,
    Event,
    HoldChanged,
    JobCancelled,
    JobEnded,
    JobEvent,
    JobRequeued,
    JobSignalled,
    JobSubmitted,
    JobUpdated,
    NodeJoined,
    NodeLost,
    NodeRemoved,
    ReservationCancelled,
    ReservationRequested,
    ResizePoint,
    Wakeup,
)
from scheduler.model.job import FINAL, Job
from scheduler.model.orders import (
    Continue,
    Enqueue,
    JobOrder,
    Order,
    Refuse,
    Requeue,
    Reserve,
    WakeAt,
)
from scheduler.model.procset import ProcSet
from scheduler.service.assembly import Components
from scheduler.text.plain import plain

log = logging.getLogger(__name__)

#: Passes are not limited to fewer jobs than this.
LEAST_DEPTH: Final = 50
#: So many short passes in succession, of the full depth, allow twice the depth.
SHORT_PASSES: Final = 20


class PassDepth:
    """Limit of the depth of passes, which bounds their time.

    Parameters
    ----------
    longest_s : longest processor time of a decision, s; None: no limit.
    depth : the present limit; None: there is none.
    """

    def __init__(self, longest_s: float | None, depth: int | None) -> None:
        self._longest_s = longest_s
        self._depth = depth
        self._short = 0  # short passes of the full depth in succession

    def initial_change(self, now: float) -> DepthChanged | None:
        """Change at the start of a service: without a bound of the time, no limit remains."""
        if self._longest_s is not None or self._depth is None:
            return None
        self._depth = None
        return DepthChanged(now, None)

    def change(self, now: float, took_s: float, examined: int) -> DepthChanged | None:
        """Change of the depth that follows from a decision; None: it stays.

        Parameters
        ----------
        now : time of the service, s.
        took_s : processor time of the decision, s.
        examined : number of jobs that its pass examined.
        """
        longest_s, depth = self._longest_s, self._depth
        if longest_s is None or examined <= LEAST_DEPTH:
            return None
        if took_s > longest_s:
            # The time of a pass grows at least in proportion to its depth.
            self._depth = max(LEAST_DEPTH, int(examined * min(0.5, longest_s / took_s)))
        elif depth is None or examined < depth:
            return None
        else:
            self._short = self._short + 1 if took_s < longest_s / 8 else 0
            if self._short < SHORT_PASSES:
                return None
            self._depth = 2 * depth
        self._short = 0
        return DepthChanged(now, self._depth)


#: Every job is compared with its processes at least once in this many ticks.
RECHECK_TICKS = 20
#: The measurements of a job are noted at least once in about as many ticks.
NOTE_TICKS = 20
#: Seconds between two ticks after which what has arrived is read before anything is overdue.
STALL_S = 1.0
#: Seconds after the start within which agents say how jobs have ended, if `node_lost_s` is more.
MOST_AWAITED_S = 600.0
#: Events and orders that change nothing but measurements and the time.
ROUTINE = (ResizePoint, Wakeup, Continue, WakeAt)
#: The most frequent events of jobs. The processes of the job are then as its state requires, unless
#: an order says otherwise.
CHANGE_NO_PROCESSES = (JobSubmitted, ResizePoint)
#: Events that a client has to be able to rely on when it has received the answer.
DURABLE = (
    *(JobSubmitted, JobCancelled, HoldChanged, JobRequeued, JobSignalled, JobUpdated),
    *(ReservationRequested, ReservationCancelled),
)


class Driver:
    """Hands events to the core and carries out its orders.

    Attributes
    ----------
    events : events to decide on in this turn.
    deciding : events on which the core decides now.
    after_decision : functions to call after the decision of this turn.
    changed_jobs : jobs that may differ from their processes, by a decision or a report.
    """

    def __init__(self, components: Components) -> None:
        self._core, self._journal = components.core, components.journal
        self._clock = components.clock
        self._monitor, self._startup = components.monitor, components.startup
        self._reports = components.monitor.reports
        self._remap, self._ends = components.remap, components.ends
        self._nodes, self._pools = components.nodes, components.pools
        self._applications = components.applications
        self._depth = PassDepth(components.config.passes.longest_s, self._core.depth_limit)
        self.events: list[Event] = []
        self.deciding: list[Event] = []
        self.after_decision: list[Callable[[], None]] = []
        self.changed_jobs: Final = self._reports.changed_jobs
        self._alarms: list[float] = []
        self._began_at = self._ticked_at = time.monotonic()
        self._has_stalled = False  # before the latest tick
        self._knows_ends = False  # of the jobs that have ended while there was no service
        self._unsettled: set[int] = set()  # jobs known to differ from their processes
        self._settled: set[int] = set()  # ended jobs that have left nothing
        # Jobs with measurements that no record holds, and the first batch with some, ascending.
        self._measured: dict[int, int] = {}
        self._sweet_spots: dict[int, int | None] = {}  # of running jobs, as they were noted
        self._recheck: list[int] = []  # jobs still to be compared in this round
        self._recheck_share = 1  # number of them that one tick compares

    def restore_alarms(self) -> None:
        """Wake a recovered core at once, so that it asks for the wake-ups it needs."""
        if self._core.jobs or len(self._core.exclusions):
            self._alarms = [self._clock()]
        change = self._depth.initial_change(self._clock())
        if change is not None:
            self.events.append(change)

    def cancel_as_requested(self) -> None:
        """Cancel the jobs that a command has named while no service ran, before all else."""
        now, jobs = self._clock(), self._core.jobs
        asked = take_cancellations(self._journal)
        events: list[Event] = [
            JobCancelled(now, number, why)
            for number, why in asked.items()
            if number in jobs and jobs[number].state not in FINAL
        ]
        if events:
            self.decide(events)

    def register_nodes(self, names: list[str]) -> None:
        """Number the processors of new nodes in the configured order, before any agent reports.

        Nodes that the configuration no longer names are lost and removed. A removed node that is in
        the Slurm allocation of the service belongs to the machine again.
        """
        now = self._clock()
        events: list[Event] = []
        nodes, configured = self._core.machine.nodes, self._monitor.configured
        for name in names:
            granted = configured[name].launcher == "slurm"
            if name not in nodes or (nodes[name].removed and granted):
                events.append(self._monitor.joined_event(name, now))
                events.append(NodeLost(at=now, node=name))  # down until its agent reports
            elif nodes[name].removed:
                log.warning("node %s was removed: reshape node resume %s takes it back", name, name)
        for name, node in nodes.items():
            if name not in configured and (node.up or not node.removed):
                events += [NodeLost(at=now, node=name), NodeRemoved(at=now, node=name)]
        if events:
            self.decide(events)
        self._follow_removals()

    def run_turn(self) -> set[int]:
        """Decide on the events of this turn; return the jobs that were compared with processes."""
        self._forget_settled()
        after, self.after_decision = self.after_decision, []
        self.decide_pending()
        for act in after:
            act()
        return self._reconcile() if self.changed_jobs else set()

    def decide_pending(self) -> None:
        """Decide now on the events of this turn that have come so far."""
        events, self.events = self.events, []
        if events:
            self.decide(events)
            if any(isinstance(event, (DrainChanged, NodeRemoved)) for event in events):
                self._follow_removals()

    def decide(self, events: list[Event]) -> list[Order]:
        """Hand events to the core now, and note events and orders in the journal."""
        durable = any(isinstance(event, DURABLE) for event in events)
        orders = self._handle(events)
        for order in orders:
            if isinstance(order, Enqueue):  # a task of an array, perhaps
                self._applications.add_task(self._core.jobs[order.job])
        self._journal.record(events, orders, durable=durable)
        self._note_changes(events, orders)
        for order in orders:
            if isinstance(order, WakeAt):
                heapq.heappush(self._alarms, order.at)
                continue
            if isinstance(order, (Reserve, Refuse)):
                reason = order.reason.dated(self._clock.ahead_s)
                log.info("reservation %s: %s", plain(order.name), plain(str(reason)))
                continue
            if isinstance(order, Requeue):
                self._remap.kept.pop(order.job, None)  # it may start again at once
            if not isinstance(order, Continue):
                self._log(order.job, order)
                self.changed_jobs.add(order.job)
        for event in events:
            if isinstance(event, JobEnded):
                self._log(event.job, event)
            if isinstance(event, (NodeJoined, NodeLost)):
                self.changed_jobs.update(self._core.live.keys() | self._reports.known_jobs())
            elif isinstance(event, JobEvent) and not isinstance(event, CHANGE_NO_PROCESSES):
                self.changed_jobs.add(event.job)
        return orders

    def _log(self, job: int, what: Event | Order) -> None:
        """Log what happens to a job in the words of `reshape explain`."""
        log.info("job=%d %s", job, plain(sentence(what, self._clock.ahead_s)))

    def _handle(self, events: list[Event]) -> list[Order]:
        """Hand events to the core; limit the depth of its passes if they take too long."""
        core = self._core
        examined, began_s = core.examined, time.thread_time()
        self.deciding = events
        orders = core.handle(events)
        self.deciding = []
        took_s, examined = time.thread_time() - began_s, core.examined - examined
        change = self._depth.change(self._clock(), took_s, examined)
        if change is not None:
            log.info("passes examine %s jobs: one of %d took %.3f s", change.jobs, examined, took_s)
            self.events.append(change)
        return orders

    def _note_changes(self, events: list[Event], orders: list[Order]) -> None:
        """Note the state of the jobs that events and orders name, in the same transaction.

        Measurements of a resize point at which nothing is decided are noted at a later tick;
        recovery takes those that no record holds from the events.
        """
        jobs = self._core.jobs
        changes = (*events, *orders)
        named = [change.job for change in changes if isinstance(change, (JobEvent, JobOrder))]
        routine = all(isinstance(change, ROUTINE) for change in changes)
        if not routine:
            # A change of a job concerns its steps: their time, and whose their processors are.
            named += [step.id for job in dict.fromkeys(named) for step in self._core.steps_of(job)]
        noted: list[Job] = []
        for number in dict.fromkeys(named):
            job = jobs.get(number)
            if job is None:
                continue
            history = job.recorded_history  # None until a job is measured, for most jobs always
            sweet_spot = None if history is None else history.sweet_spot
            if routine and sweet_spot == self._sweet_spots.get(job.id):
                self._measured.setdefault(job.id, self._journal.batch)
            else:
                self._measured.pop(job.id, None)
                self._sweet_spots[job.id] = sweet_spot
                self._journal.note_job(job)
                noted.append(job)
        ended = [job for job in noted if job.state in FINAL]
        self._applications.note_ends(ended)
        for job in ended:
            del self._sweet_spots[job.id]
        for job in noted:
            if job.id not in self._core.live:  # its groups have ended
                self._remap.kept.pop(job.id, None)
        if not routine:
            self._journal.note_core(self._core.record())

    def _note_measurements(self) -> None:
        """Note a share of the jobs that resize points have changed, and up to where all are."""
        if not self._measured:
            return
        for number in list(islice(self._measured, 1 + len(self._measured) // NOTE_TICKS)):
            del self._measured[number]
            if number in self._core.jobs:
                self._journal.note_job(self._core.jobs[number])
        missing_from = next(iter(self._measured.values()), self._journal.batch + 1)
        self._journal.note_meta(MEASURED, str(missing_from - 1))

    def tick(self, *, start_agents: bool, heard_all: bool) -> None:
        """Do what is due at the present time.

        Parameters
        ----------
        start_agents : whether to start an agent on nodes that have none.
        heard_all : whether every message that has arrived was read, so that the silence of an
            agent may be judged.
        """
        self.changed_jobs.update(self._unsettled)
        self._recheck_next()
        self._follow_wall_clock()
        now = self._clock()
        self._follow_removals()
        for event in self._monitor.on_tick(now, start_agents=start_agents, heard_all=heard_all):
            self.decide([event])
        if heard_all and (silences := self._nodes.follow_silence(now)):
            self.decide(silences)
        if expired := self._nodes.expire(now):
            self.decide(expired)
        if resumed := self._nodes.probe(now):
            self.decide(resumed)
        self.events += self._pools.on_tick(now)
        self.events += self._remap.on_tick()
        moment = time.monotonic()
        # Only once in succession: each turn of an overloaded service may take as long.
        self._has_stalled = moment - self._ticked_at > STALL_S and not self._has_stalled
        self._ticked_at = moment
        if not self._knows_ends:
            self._knows_ends = not self._awaits_ends()  # this turn decides on those that are known
        elif self._alarms and self._alarms[0] <= now and not self._has_stalled:
            self.decide_pending()
            self._decide_ends()
            while self._alarms and self._alarms[0] <= now:
                heapq.heappop(self._alarms)
            self.events.append(Wakeup(at=now))
        self._startup.sent.forget_old()
        self._note_measurements()

    def _awaits_ends(self) -> bool:
        """Whether an agent with jobs has not reported since the start, and may still do so.

        Its jobs may have ended while there was no service. Until it reports there are no wake-ups,
        since a job that has ended in time may be beyond its walltime by now.
        """
        if time.monotonic() - self._began_at > MOST_AWAITED_S:
            return False
        machine, agents = self._core.machine, self._reports.agents
        held = ProcSet.union(
            part for job in self._core.live.values() for part in job.own_groups.values()
        )
        return any(name not in agents and machine.nodes[name].up for name in machine.by_node(held))

    def _decide_ends(self) -> None:
        """Decide on the ends of jobs that agents have reported."""
        core = self._core
        live = sorted(self.changed_jobs & core.live.keys())
        ended = self._nodes.drain_failing(live, self._clock())
        ended += (event for number in live for event in self._ends.examine(core.live[number]))
        if ended:
            self.decide(ended)

    def _follow_wall_clock(self) -> None:
        """Tell the core if the wall clock was set; the journal notes the event with the change."""
        by_s = self._clock.step()
        if by_s:
            log.warning("the wall clock was set by %+.3f s; durations do not change", by_s)
            self._journal.note_clock_anchor(self._clock.anchor)
            self.decide([ClockSet(at=self._clock(), by_s=by_s)])

    def _follow_removals(self) -> None:
        """Serve the nodes that the scheduler state has, and no removed ones."""
        for lost in self._nodes.follow_removals(self._clock()):
            self.decide([lost])

    def _reconcile(self) -> set[int]:
        """Report ended processes to the core; start and end processes as its state requires."""
        compared = self.changed_jobs.copy()
        self._decide_ends()
        compared |= self.changed_jobs
        self.changed_jobs.clear()
        for number in sorted(compared):
            if self._arrange(number):
                self._unsettled.discard(number)
            else:
                self._unsettled.add(number)
        return compared

    def _arrange(self, number: int) -> bool:
        """Start and end processes of a job as its state requires; return whether it is settled.

        What an ended job has left is looked at when a report changes it, and with the next share
        of all jobs: ticks do not take longer for it.
        """
        job = self._core.jobs.get(number)
        if job is None:
            if not self._startup.is_removed(number):
                self._startup.remove_remains(number, ended=self._applications.ended(number))
            return True
        settled = self._startup.arrange(job)
        if job.state not in FINAL:
            return settled
        if settled:
            self._settled.add(number)
        return True

    def _forget_settled(self) -> None:
        """Drop ended jobs that have left nothing; the journal of an earlier turn holds them."""
        for number in self._settled:
            self._applications.forget(number)
            self._reports.started.pop(number, None)
        self._settled.clear()

    def _recheck_next(self) -> None:
        """Look at the next share of all jobs: for undetected differences, and for late ones."""
        if not self._recheck:
            numbers = self._reports.known_jobs() | self._core.live.keys()
            self._recheck = sorted(numbers, reverse=True)
            self._recheck_share = 1 + len(self._recheck) // RECHECK_TICKS
        share = self._recheck[-self._recheck_share :]
        del self._recheck[-self._recheck_share :]
        self.changed_jobs.update(share)
        for number in share:
            if (job := self._core.live.get(number)) is not None:
                self._remap.locate_if_late(job)
