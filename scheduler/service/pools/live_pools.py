"""The pools of a live service.

At each tick the results of batch calls are noted, the reports of agents are compared with the
allocations, and the policy of each pool is asked. The records of all pools are in the journal. The
reports of agents tell which nodes there are; Slurm tells only of allocations that wait,
that have started without agents, and that are over.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import isfinite

import msgspec

from reshape.errors import ReshapeError
from scheduler.config.settings import NodeConfig
from scheduler.core.core import Core
from scheduler.journal.clock import Clock
from scheduler.journal.journal import Journal
from scheduler.model.events import DrainChanged, Event, NodeJoined, NodeLost, NodeRemoved
from scheduler.model.job import Job
from scheduler.node.directory import ServiceDirectory
from scheduler.node.slurm import BatchStatus, Slurm
from scheduler.policies.pools.options import check_pool_name, parse_pool_options
from scheduler.policies.pools.policy import (
    AWAITED,
    WAITING,
    AllocationState,
    PoolAllocation,
    PoolView,
)
from scheduler.policies.pools.pool import PoolRecord
from scheduler.protocol import messages as m
from scheduler.service.components.admission import Admission
from scheduler.service.components.node_states import NodeStates
from scheduler.service.components.system_monitor import SystemMonitor
from scheduler.service.pools.batch_jobs import BatchJobs
from scheduler.service.pools.live_pool import LivePool
from scheduler.text.plain import LONGEST_REASON, check_text

log = logging.getLogger(__name__)

S = AllocationState
#: Seconds between two decisions.
DECIDE_S = 1.0
#: Seconds that a service that ends waits for cancellations.
CLOSE_S = 10.0
#: Why a pool that is being removed is paused.
REMOVING = "it is being removed"

Answer = Callable[[m.Message], None]


class LivePools:
    """All pools of a service.

    Parameters
    ----------
    core, monitor, nodes, journal, clock, admission, directory : of the service.
    slurm : takes the batch jobs of all pools.

    Attributes
    ----------
    pools : by name.
    """

    def __init__(
        self,
        core: Core,
        monitor: SystemMonitor,
        nodes: NodeStates,
        journal: Journal,
        clock: Clock,
        admission: Admission,
        directory: ServiceDirectory,
        slurm: Slurm,
    ) -> None:
        self._partition, self._monitor, self._journal = core.partitions[0], monitor, journal
        self._clock, self._admission, self._directory = clock, admission, directory
        self._nodes = nodes
        self._jobs = BatchJobs(slurm, self._on_submission, self._on_statuses)
        self._now, self._events = 0.0, list[Event]()  # of the present tick
        self._service = directory.name
        self._noted: dict[str, bytes] = {}
        self._decide_at = 0.0  # monotonic seconds
        self._checks: set[str] = set()  # names of pools that a batch system is asked about
        self.pools: dict[str, LivePool] = {}
        self._restore()

    def _restore(self) -> None:
        """Take over the pools of the journal; submissions without an answer are in doubt."""
        for name, data in self._journal.pools():
            try:
                live = LivePool.decode(data, self._service)
            except msgspec.DecodeError as error:
                self._journal.report_unreadable(f"pool {name}", error)
                continue
            self._noted[name] = data
            self._install(live)
            for allocation in live.allocations:
                self._serve(live, allocation)
                if not allocation.id:
                    self._jobs.doubt(live.batch_name(allocation.number))

    def _install(self, live: LivePool) -> None:
        """Take account of the nodes that a pool may have."""
        self.pools[live.name] = live
        self._admission.add_nodes(live.node_names, live.options.processors)
        self._monitor.pool_nodes.update(live.node_names)

    # Requests of commands.

    def change(self, change: m.PoolChange, answer: Answer) -> m.Message | None:
        """Carry out a command, and answer it.

        Parameters
        ----------
        answer : called later if the answer is None.

        Raises
        ------
        ReshapeError : the request is refused.
        """
        match change:
            case m.AddPool():
                try:
                    self._add(change, answer)
                except ValueError as error:
                    raise ReshapeError(str(error)) from None
                return None
            case m.PausePool(name=name, why=why):
                check_text(why, "the reason", LONGEST_REASON)
                self._changeable(name).pause(why or "an administrator paused it")
            case m.ResumePool(name=name):
                self._changeable(name).resume()
            case m.RemovePool(name=name, at_once=at_once):
                self._remove(self._named(name), at_once=at_once)
        return m.Done()

    def _add(self, change: m.AddPool, answer: Answer) -> None:
        """Add a pool if the batch system would accept an allocation of it; see `change`."""
        options, name = parse_pool_options(change.options), check_pool_name(change.name)
        if not (self._directory.path / "access" / "agent.json").exists():
            raise ReshapeError(
                "the agents of a pool connect over TCP: start the service with --listen HOST:PORT"
            )
        live = LivePool(PoolRecord(name, options, arguments=change.arguments), self._service)
        if name in self.pools or name in self._checks:
            raise ReshapeError(f"there is a pool {name}: remove it first, or choose another name")
        taken = [node for node in live.node_names if node in self._monitor.configured]
        if taken:
            raise ReshapeError(f"there is a node {taken[0]}: choose another name for the pool")
        self._checks.add(name)
        names = live.node_names[: options.allocation_nodes]
        request = live.request(self._directory.path, 0, names)
        self._jobs.try_out(request, partial(self._on_checked, live, answer))

    def _remove(self, live: LivePool, *, at_once: bool) -> None:
        """Give everything back, then forget a pool; nodes with jobs drain unless `at_once`."""
        live.record.removing = True
        live.pause(REMOVING)
        if at_once:
            for allocation in live.allocations:
                live.leaves(allocation.number)
                self._cancel(live, allocation)

    def _named(self, name: str) -> LivePool:
        if name not in self.pools:
            names = ", ".join(self.pools) or "none"
            raise ReshapeError(f"there is no pool {name!r}; there is {names}")
        return self.pools[name]

    def _changeable(self, name: str) -> LivePool:
        live = self._named(name)
        if live.record.removing:
            raise ReshapeError(f"pool {name} is being removed")
        return live

    def table(self) -> m.PoolList:
        """Describe all pools."""
        return m.PoolList(
            pools=[
                live.describe(self._clock, self._jobs.fault, self._view(live, self._clock()).idle)
                for live in self.pools.values()
            ]
        )

    def sentences(self, job: Job) -> list[str]:
        """Say of each pool what it does for a queued job."""
        return [live.sentence(job, self._clock, self._jobs.fault) for live in self.pools.values()]

    # The loop of the service.

    def on_tick(self, now: float) -> list[Event]:
        """Do what is due; return the events that follow."""
        events = list[Event]()
        self._now, self._events = now, events
        if self.pools or self._checks or self._nodes.allocation:
            self._jobs.on_tick(self._ids)
        if time.monotonic() < self._decide_at:
            return events
        self._decide_at = time.monotonic() + DECIDE_S
        awaited = 0
        for live in list(self.pools.values()):
            events += self._follow_agents(live, now)
            events += self._decide(live, now, awaited)
            self._note(live)
            awaited += live.options.processors * sum(
                len(allocation.nodes)
                for allocation in live.allocations
                if allocation.state in AWAITED
            )
        return events

    def give_all_back(self) -> None:
        """Cancel all batch jobs; their agents have received AgentStop."""
        for live in self.pools.values():
            for allocation in live.allocations:
                if allocation.state is not S.LEAVING:
                    live.leaves(allocation.number)
                self._cancel(live, allocation)
            self._note(live)

    def close(self) -> None:
        """Make the calls that are due; the next service of the directory takes the pools over."""
        self._jobs.close(CLOSE_S if self.pools else 0.0)

    def _ids(self) -> Sequence[str]:
        """Ids of all batch jobs, that of the service included."""
        ids = [allocation.id for live in self.pools.values() for allocation in live.allocations]
        return [number for number in (self._nodes.allocation, *ids) if number]

    def _on_statuses(self, statuses: Mapping[str, BatchStatus], begun: float) -> None:
        """Note what the batch system says; see `BatchJobs`."""
        now, age_s = self._now, time.monotonic() - begun
        for live in self.pools.values():
            changed = live.see(statuses, now, age_s, now - time.time())
            for allocation in live.allocations:
                if allocation.state in AWAITED or allocation.number in changed:
                    self._serve(live, allocation)
                if allocation.number in changed:
                    # By these events the core learns later when nodes that are up expire.
                    up = [name for name in allocation.nodes if self._is_up(name)]
                    self._events += [self._monitor.joined_event(name, now) for name in up]
        if own := statuses.get(self._nodes.allocation):
            self._events += self._nodes.see_allocation(own, now)

    def _on_submission(self, name: str, batch_id: str, why: str) -> None:
        """Note how the submission of an allocation ended; see `BatchJobs`."""
        for live in self.pools.values():
            number = live.number_of(name)
            if number is not None:
                break
        else:
            log.error(
                "a batch job named %s belongs to no allocation: id %r %s", name, batch_id, why
            )
            return
        if batch_id:
            log.info("pool=%s allocation=%d is batch job %s", live.name, number, batch_id)
            live.queued(number, batch_id)
            allocation = live.record.allocations[number]
            if allocation.state is S.LEAVING:  # it was given back meanwhile
                self._cancel(live, allocation)
            return
        log.error("pool=%s allocation=%d was not submitted: %s", live.name, number, why)
        if why:
            allocation = live.refused(number, self._now, why)
        else:  # the service ended before it was submitted
            allocation = live.record.allocations.pop(number)
        self._events += self._withdraw(live, allocation, self._now)

    def _on_checked(self, live: LivePool, answer: Answer, said: str | None, why: str) -> None:
        """Answer the command that adds a pool, and add the pool if it may be."""
        self._checks.remove(live.name)
        if said is None:
            answer(m.Failure(message=f"an allocation would be refused: {why}"))
            return
        self._install(live)
        self._note(live)
        answer(m.PoolAdded(name=live.name, said=said))
        names, processors = live.node_names, live.options.processors
        self._events += [NodeJoined(self._now, name, processors) for name in names]
        self._events += [NodeLost(self._now, name) for name in names]  # until agents report

    def _follow_agents(self, live: LivePool, now: float) -> list[Event]:
        """Compare the allocations of a pool with the reports of agents."""
        events: list[Event] = []
        for allocation in live.allocations:
            agents = self._monitor.reports.agents
            reporting = sum(name in agents for name in allocation.nodes)
            if reporting and allocation.state in WAITING:  # it has started since the last look-up
                live.grant(allocation, now, live.least_end(allocation), now)
            if reporting == len(allocation.nodes):
                live.joined(allocation.number)
            self._follow_expiry(live, allocation, now)
            present = sum(name in agents or self._is_up(name) for name in allocation.nodes)
            if not present and live.has_ended(allocation, now):
                log.info("pool=%s allocation=%d has ended", live.name, allocation.number)
                live.ended(allocation.number, now, live.why_ended(allocation))
                events += self._withdraw(live, allocation, now)
            elif why := live.overdue(allocation, now, has_nodes=present > 0):
                self._cancel(live, allocation, why)
        return events

    def _follow_expiry(self, live: LivePool, allocation: PoolAllocation, now: float) -> None:
        """Note that the nodes of an allocation expire, which ends its agents and its batch job.

        They have also expired if they are not served any more, because their time is computed anew
        at every tick and may be reached slightly earlier.
        """
        expires = now >= allocation.ends_at or not any(
            name in self._monitor.nodes for name in allocation.nodes
        )
        if allocation.state is S.RUNNING and expires:
            log.info("pool=%s allocation=%d expires", live.name, allocation.number)
            live.leaves(allocation.number)
            live.sighting(allocation, now).since = now

    def _decide(self, live: LivePool, now: float, awaited: int) -> list[Event]:
        """Ask the policy of a pool, and carry its decision out.

        Parameters
        ----------
        awaited : processors that other pools await.
        """
        if live.record.removing:
            return self._empty(live, now)
        state, scenario = self._partition.state, self._partition.scenario
        steps = live.consider(state, scenario, now, awaited_elsewhere=awaited)
        events: list[Event] = []
        for allocation in steps.submitted:
            log.info(
                "submit pool=%s allocation=%d nodes=%s",
                live.name,
                allocation.number,
                allocation.nodes,
            )
            self._serve(live, allocation)
            request = live.request(self._directory.path, allocation.number, allocation.nodes)
            self._jobs.submit(request)
        for allocation in steps.cancelled:
            log.info("cancel pool=%s allocation=%d", live.name, allocation.number)
            self._cancel(live, allocation)
        for allocation in steps.released:
            log.info("release pool=%s allocation=%d", live.name, allocation.number)
            events += self._release(live, allocation, now)
        return events

    def _empty(self, live: LivePool, now: float) -> list[Event]:
        """Give back what a pool that is being removed still has; forget it after that."""
        events: list[Event] = []
        held = self._view(live, now).held
        for allocation in live.allocations:
            if allocation.state is S.LEAVING:
                continue
            if allocation.state is S.RUNNING and held[allocation.number]:
                events += self._drain(allocation, now, live.name, "is being removed")
                continue
            is_running = allocation.state is S.RUNNING
            live.leaves(allocation.number)
            if is_running:
                events += self._release(live, allocation, now)
            else:
                self._cancel(live, allocation)
        if live.allocations:
            return events
        log.info("removed pool=%s", live.name)
        names = live.node_names
        del self.pools[live.name]
        self._noted.pop(live.name, None)
        self._journal.remove_pool(live.name)
        self._admission.remove_nodes(names)
        self._monitor.pool_nodes.difference_update(names)
        return [*events, *(NodeRemoved(now, name) for name in names)]

    def _release(self, live: LivePool, allocation: PoolAllocation, now: float) -> list[Event]:
        """End the agents of an idle allocation; nothing starts on its nodes from now on."""
        live.sighting(allocation, now).since = now
        for name in allocation.nodes:
            self._monitor.send_to(name, m.AgentStop())
        return self._drain(allocation, now, live.name, "gives it back")

    def _withdraw(self, live: LivePool, allocation: PoolAllocation, now: float) -> list[Event]:
        """Forget an allocation that has ended; return the events of its nodes."""
        live.sightings.pop(allocation.number, None)
        self._monitor.remove_nodes(allocation.nodes)
        nodes = self._partition.machine.nodes
        joined = [name for name in allocation.nodes if name in nodes]
        events: list[Event] = [NodeLost(now, name) for name in joined if nodes[name].up]
        events += [DrainChanged(now, name, False) for name in joined if nodes[name].is_left]
        return events

    def _cancel(self, live: LivePool, allocation: PoolAllocation, why: str = "") -> None:
        """Cancel the batch job of an allocation, once without a reason; log a reason."""
        now = self._clock()
        sighting = live.sighting(allocation, now)
        if not allocation.id or (sighting.cancelled_at is not None and not why):
            return
        sighting.cancelled_at = now
        if why:
            log.warning(
                "pool=%s allocation=%d: batch job %s is cancelled: %s",
                *(live.name, allocation.number, allocation.id, why),
            )
        self._jobs.cancel(allocation.id)

    def _note(self, live: LivePool) -> None:
        """Note the record of a pool if it has changed."""
        data = live.encode()
        if live.name in self.pools and data != self._noted.get(live.name):
            self._noted[live.name] = data
            self._journal.note_pool(live.name, data)

    # The nodes of allocations.

    def _serve(self, live: LivePool, allocation: PoolAllocation) -> None:
        """Let the agents of an allocation report; their nodes expire when it ends."""
        processors, now = live.options.processors, self._clock()
        ends_at = live.least_end(allocation)
        # The batch system may have set an end that has passed; an estimated one is not known then.
        is_known = isfinite(allocation.ends_at) or (isfinite(ends_at) and ends_at > now)
        until = ends_at + time.time() - now if is_known else None
        self._monitor.put_nodes(
            NodeConfig(name=name, processors=processors, launcher="none", until=until)
            for name in allocation.nodes
        )

    def _view(self, live: LivePool, now: float) -> PoolView:
        return live.view(self._partition.state, self._partition.scenario, now)

    def _drain(self, allocation: PoolAllocation, now: float, pool: str, why: str) -> list[Event]:
        """Return the events by which the nodes of an allocation of a pool drain."""
        nodes, by = self._partition.machine.nodes, f"pool {pool}"
        return [
            DrainChanged(now, name, True, f"{by} {why}", by)
            for name in allocation.nodes
            if name in nodes and not nodes[name].drains
        ]

    def _is_up(self, name: str) -> bool:
        node = self._partition.machine.nodes.get(name)
        return node is not None and node.up
