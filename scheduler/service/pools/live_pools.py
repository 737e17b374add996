"""The pools of a live service.

At each tick the results of batch calls are noted, the reports of agents are compared with the
allocations, and the policy of each pool is asked. The records of all pools are in the journal. The
reports of agents tell which nodes there are; the batch system tells only of allocations that wait,
that have started without agents, and that are over.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import msgspec

from reshape.errors import ReshapeError
from scheduler.core.core import Core
from scheduler.journal.clock import Clock
from scheduler.journal.journal import Journal
from scheduler.model.events import Event, NodeJoined, NodeLost, NodeRemoved
from scheduler.node.directory import ServiceDirectory
from scheduler.node.slurm import BatchRequest, BatchStatus, Slurm
from scheduler.policies.pools.options import PoolOptions
from scheduler.policies.pools.policy import AWAITED, WAITING, AllocationState, PoolAllocation
from scheduler.policies.pools.pool import PoolRecord, PoolSteps
from scheduler.protocol import messages as m
from scheduler.service.components.admission import Admission
from scheduler.service.components.system_monitor import SystemMonitor
from scheduler.service.pools.batch_jobs import BatchJobs
from scheduler.service.pools.live_pool import (
    LivePool,
    LivePoolRecord,
    PoolNodes,
    batch_request,
)

log = logging.getLogger(__name__)

S = AllocationState
#: Seconds between two decisions.
DECIDE_S = 1.0
#: Why a pool that is being removed is paused.
REMOVING = "it is being removed"

Answer = Callable[[m.Message], None]


class LivePools:
    """All pools of a service.

    Parameters
    ----------
    core, monitor, journal, clock, admission, directory : of the service.
    batch_systems : makes a batch system, by its name.

    Attributes
    ----------
    pools : by name.
    nodes : those of all pools.
    """

    def __init__(
        self,
        core: Core,
        monitor: SystemMonitor,
        journal: Journal,
        clock: Clock,
        admission: Admission,
        directory: ServiceDirectory,
        batch_systems: Mapping[str, Callable[[], Slurm]],
    ) -> None:
        self._partition, self._monitor, self._journal = core.partitions[0], monitor, journal
        self.clock, self._admission, self._directory = clock, admission, directory
        self._jobs = BatchJobs(batch_systems, self._on_submission, self._on_statuses)
        self._now, self._events = 0.0, list[Event]()  # of the present tick
        self.nodes = PoolNodes(self._partition, monitor, clock)
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
            for allocation in live.pool.allocations:
                self.nodes.serve(live, allocation)
                if not allocation.id:
                    self._jobs.doubt(live.record.system, live.batch_name(allocation.number))

    def _install(self, live: LivePool) -> None:
        """Take account of the nodes that a pool may have."""
        self.pools[live.name] = live
        self._admission.add_nodes(live.pool.node_names, live.pool.options.processors)
        self._monitor.pool_nodes.update(live.pool.node_names)

    # Requests of commands.

    def add(
        self,
        name: str,
        system: str,
        options: PoolOptions,
        arguments: tuple[str, ...],
        answer: Answer,
    ) -> None:
        """Add a pool if the batch system would accept an allocation of it.

        Parameters
        ----------
        arguments : further options of the submission command of the batch system.
        answer : called with the answer when the batch system has answered.

        Raises
        ------
        ReshapeError : there is a pool or a node of this name, or no such batch system.
        """
        self._jobs.check_system(system)
        if not (self._directory.path / "access" / "agent.json").exists():
            raise ReshapeError(
                "the agents of a pool connect over TCP: start the service with --listen HOST:PORT"
            )
        record = LivePoolRecord(system, arguments, PoolRecord(name, options))
        live = LivePool(record, self._service)
        if name in self.pools or name in self._checks:
            raise ReshapeError(f"there is a pool {name}: remove it first, or choose another --name")
        taken = [node for node in live.pool.node_names if node in self._monitor.configured]
        if taken:
            raise ReshapeError(f"there is a node {taken[0]}: choose another --name for the pool")
        self._checks.add(name)
        names = live.pool.node_names[: options.allocation_nodes]
        request = self._request(live, 0, names)
        self._jobs.try_out(system, request, partial(self._on_checked, record, answer))

    def pause(self, name: str, why: str) -> None:
        """Stop a pool from submitting until it is resumed.

        Raises
        ------
        ReshapeError : there is no such pool, or it is being removed.
        """
        self._changeable(name).pool.pause(why)

    def resume(self, name: str) -> None:
        """Let a pool submit again, without waiting for the next retry.

        Raises
        ------
        ReshapeError : there is no such pool, or it is being removed.
        """
        self._changeable(name).pool.resume()

    def remove(self, name: str, *, at_once: bool) -> None:
        """Give everything back, then forget the pool.

        Parameters
        ----------
        at_once : cancel all batch jobs, which ends the jobs on their nodes; otherwise the nodes
            drain, and each is given back when its jobs have left it.

        Raises
        ------
        ReshapeError : there is no such pool.
        """
        live = self.get(name)
        live.record.removing = True
        live.pool.pause(REMOVING)
        if at_once:
            for allocation in live.pool.allocations:
                live.pool.leaves(allocation.number)
                self._cancel(live, allocation)

    def get(self, name: str) -> LivePool:
        """Return the pool of a name.

        Raises
        ------
        ReshapeError : there is none.
        """
        if name not in self.pools:
            names = ", ".join(self.pools) or "none"
            raise ReshapeError(f"there is no pool {name!r}; there is {names}")
        return self.pools[name]

    def _changeable(self, name: str) -> LivePool:
        live = self.get(name)
        if live.record.removing:
            raise ReshapeError(f"pool {name} is being removed")
        return live

    def fault_of(self, live: LivePool) -> str:
        """Why the batch system of a pool does not answer, or what failed last; may be empty."""
        return self._jobs.faults.get(live.record.system, "") or live.record.pool.fault

    # The loop of the service.

    def on_tick(self, now: float) -> list[Event]:
        """Do what is due; return the events that follow."""
        events = list[Event]()
        self._now, self._events = now, events
        if self.pools or self._checks:
            self._jobs.on_tick(self._ids)
        if time.monotonic() < self._decide_at:
            return events
        self._decide_at = time.monotonic() + DECIDE_S
        awaited = 0
        for live in list(self.pools.values()):
            events += self._follow_agents(live, now)
            events += self._decide(live, now, awaited)
            self._note(live)
            awaited += live.pool.options.processors * sum(
                len(allocation.nodes)
                for allocation in live.pool.allocations
                if allocation.state in AWAITED
            )
        return events

    def give_all_back(self) -> None:
        """Cancel all batch jobs; their agents have received AgentStop."""
        for live in self.pools.values():
            for allocation in live.pool.allocations:
                if allocation.state is not S.LEAVING:
                    live.pool.leaves(allocation.number)
                self._cancel(live, allocation)
            self._note(live)

    def close(self) -> None:
        """Make the calls that are due; the next service of the directory takes the pools over."""
        self._jobs.close()

    def _ids(self, system: str) -> Sequence[str]:
        """Ids of all batch jobs of a batch system."""
        return [
            allocation.id
            for live in self.pools.values()
            if live.record.system == system
            for allocation in live.pool.allocations
            if allocation.id
        ]

    def _on_statuses(self, statuses: Mapping[str, BatchStatus], begun: float) -> None:
        age_s = time.monotonic() - begun
        for live in self.pools.values():
            self._events += self._see(live, statuses, self._now, age_s)

    def _see(
        self, live: LivePool, statuses: Mapping[str, BatchStatus], now: float, age_s: float
    ) -> list[Event]:
        """Note what the batch system says about a pool."""
        changed = live.see(statuses, now, age_s, now - time.time())
        events: list[Event] = []
        for allocation in live.pool.allocations:
            if allocation.state in AWAITED or allocation.number in changed:
                self.nodes.serve(live, allocation)
            if allocation.number in changed:
                events += self.nodes.expire_later(allocation, now)
        return events

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
            live.pool.queued(number, batch_id)
            allocation = live.record.pool.allocations[number]
            if allocation.state is S.LEAVING:  # it was given back meanwhile
                self._cancel(live, allocation)
            return
        log.error("pool=%s allocation=%d was not submitted: %s", live.name, number, why)
        if why:
            allocation = live.pool.refused(number, self._now, why)
        else:  # the service ended before it was submitted
            allocation = live.record.pool.allocations.pop(number)
        self._events += self._withdraw(live, allocation, self._now)

    def _on_checked(
        self, record: LivePoolRecord, answer: Answer, said: str | None, why: str
    ) -> None:
        """Answer the command that adds a pool, and add the pool if it may be."""
        live = LivePool(record, self._service)
        self._checks.remove(live.name)
        if said is None:
            answer(m.Failure(message=f"an allocation would be refused: {why}"))
            return
        self._install(live)
        self._note(live)
        answer(m.PoolAdded(name=live.name, said=said))
        names, processors = live.pool.node_names, live.pool.options.processors
        self._events += [NodeJoined(self._now, name, processors) for name in names]
        self._events += [NodeLost(self._now, name) for name in names]  # until agents report

    def _follow_agents(self, live: LivePool, now: float) -> list[Event]:
        """Compare the allocations of a pool with the reports of agents."""
        events: list[Event] = []
        for allocation in live.pool.allocations:
            reporting = self.nodes.reporting(allocation)
            if reporting and allocation.state in WAITING:  # it has started since the last look-up
                live.grant(allocation, now, live.least_end(allocation), now)
            if reporting == len(allocation.nodes):
                live.pool.joined(allocation.number)
            self._follow_expiry(live, allocation, now)
            present = self.nodes.present(allocation)
            if not present and live.has_ended(allocation, now):
                log.info("pool=%s allocation=%d has ended", live.name, allocation.number)
                live.pool.ended(allocation.number, now, live.why_ended(allocation))
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
            live.pool.leaves(allocation.number)
            live.sighting(allocation, now).since = now

    def _decide(self, live: LivePool, now: float, awaited: int) -> list[Event]:
        """Ask the policy of a pool, and carry its decision out.

        Parameters
        ----------
        awaited : processors that other pools await.
        """
        if live.record.removing:
            return self._empty(live, now)
        steps = live.pool.consider(
            self._partition.state, self._partition.scenario, now, awaited_elsewhere=awaited
        )
        return self._carry_out(live, steps, now)

    def _carry_out(self, live: LivePool, steps: PoolSteps, now: float) -> list[Event]:
        events: list[Event] = []
        for allocation in steps.submitted:
            log.info(
                "submit pool=%s allocation=%d nodes=%s",
                live.name,
                allocation.number,
                allocation.nodes,
            )
            self.nodes.serve(live, allocation)
            request = self._request(live, allocation.number, allocation.nodes)
            self._jobs.submit(live.record.system, request)
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
        held = live.pool.view(self._partition.state, self._partition.scenario, now).held
        for allocation in live.pool.allocations:
            if allocation.state is S.LEAVING:
                continue
            if allocation.state is S.RUNNING and held[allocation.number]:
                events += self.nodes.drain(allocation, now, live.name, "is being removed")
                continue
            is_running = allocation.state is S.RUNNING
            live.pool.leaves(allocation.number)
            if is_running:
                events += self._release(live, allocation, now)
            else:
                self._cancel(live, allocation)
        if live.pool.allocations:
            return events
        log.info("removed pool=%s", live.name)
        names = live.pool.node_names
        del self.pools[live.name]
        self._noted.pop(live.name, None)
        self._journal.remove_pool(live.name)
        self._admission.remove_nodes(names)
        self._monitor.pool_nodes.difference_update(names)
        return [*events, *(NodeRemoved(now, name) for name in names)]

    def _release(self, live: LivePool, allocation: PoolAllocation, now: float) -> list[Event]:
        """End the agents of an idle allocation; nothing starts on its nodes from now on."""
        live.sighting(allocation, now).since = now
        self.nodes.end_agents(allocation)
        return self.nodes.drain(allocation, now, live.name, "gives it back")

    def _withdraw(self, live: LivePool, allocation: PoolAllocation, now: float) -> list[Event]:
        """Forget an allocation that has ended; return the events of its nodes."""
        live.sightings.pop(allocation.number, None)
        return self.nodes.withdraw(allocation, now)

    def _cancel(self, live: LivePool, allocation: PoolAllocation, why: str = "") -> None:
        """Cancel the batch job of an allocation, once without a reason; log a reason."""
        now = self.clock()
        sighting = live.sighting(allocation, now)
        if not allocation.id or (sighting.cancelled_at is not None and not why):
            return
        sighting.cancelled_at = now
        if why:
            log.warning(
                "pool=%s allocation=%d: batch job %s is cancelled: %s",
                *(live.name, allocation.number, allocation.id, why),
            )
        self._jobs.cancel(live.record.system, allocation.id)

    def _request(self, live: LivePool, number: int, nodes: Sequence[str]) -> BatchRequest:
        return batch_request(
            self._directory.path,
            live.batch_name(number),
            live.name,
            live.pool.options,
            nodes,
            live.record.arguments,
        )

    def _note(self, live: LivePool) -> None:
        """Note the record of a pool if it has changed."""
        data = live.encode()
        if live.name in self.pools and data != self._noted.get(live.name):
            self._noted[live.name] = data
            self._journal.note_pool(live.name, data)
