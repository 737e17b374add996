"""Backfilling on the reservation table, for selections that search it (GUIM 6.2.3, 7.4).

Jobs are placed in queue order: one that may start now does, the others hold reservations of certain
processors at certain times, up to the number of reservations; without any (FCFS) the first job that
has to wait ends the pass. Then later jobs start, in backfill order, that find processors now which
no reservation needs before they end. Reservations are made again when anything has changed.

With exclusions this pass serves every selection, because it matters then which processors a job
holds and until when (`scheduler.policies.selection.on_table`).
"""

from __future__ import annotations

from math import inf

from scheduler.model.job import Job, JobState
from scheduler.model.orders import Facts, Reason
from scheduler.model.procset import ProcSet
from scheduler.model.requests import NodeRequest
from scheduler.model.resources import Quantity
from scheduler.model.sharing import Demand
from scheduler.policies.backfill.balance import TEXT, Choose
from scheduler.policies.backfill.scheduling_pass import NO_FACTS, SchedulingPass
from scheduler.state.bitsets import bits_in_blocks, bits_of, set_of
from scheduler.state.reservation_table import (
    Allocation,
    Request,
    ReservationTable,
    TableSelection,
    Use,
)
from scheduler.state.scheduler_state import SchedulerState

FREE_LONG_ENOUGH = "{needed} of {free} free processors are free for {walltime} s"
STARTS_NOW = "{needed} processors with a penalty factor of {factor}, {free} free"
STARTS_ON_FEWER = (
    "first in the queue: {needed} processors wanted; it starts on {size} of {free} free ones, which"
    " are free for {walltime} s"
)


class TablePass(SchedulingPass):
    """Scheduling pass over the reservation table.

    Parameters
    ----------
    selection : finds the allocations.
    reservations : number of queued jobs that hold one; None is all of them.
    by_penalty : of the jobs that may start behind a reservation, take the one with the least
        penalty factor, then the shortest, and look again (RUA-Backfilling, GUIM 7.4); otherwise
        take them in backfill order.
    choose : chooses the next of these jobs in another way; None: see above.
    """

    def __init__(
        self,
        state: SchedulerState,
        name: str,
        selection: TableSelection,
        reservations: int | None,
        by_penalty: bool,
        choose: Choose | None = None,
    ) -> None:
        super().__init__(state, name)
        self._selection = selection
        self._most = inf if reservations is None else float(reservations)
        self._by_penalty, self._choose = by_penalty, choose
        self._rule = f"{name} by table"
        self._table = ReservationTable(ProcSet(), state.machine.shared)
        #: What the table holds of each live job: groups and expected end (s).
        self._held: dict[int, tuple[int, int, float]] = {}
        self._was_whole = True
        self._version = -1
        self._reserved: list[int] = []  # jobs that hold reservations
        #: (start of a reservation, what else than processors is left over then), s.
        self._left: list[tuple[float, Quantity]] = []
        self._tried: set[int] = set()  # jobs that cannot start as long as nothing changes
        #: What the job that is searched for may not hold, by its reservation and its nodes.
        self._excluded: dict[tuple[str, NodeRequest | None], list[Use]] = {}
        self._nodes: dict[NodeRequest, list[int]] = {}  # bits of the nodes that a job may get

    def run(self) -> None:
        """Start the queued jobs that may start now."""
        state = self.state
        if not state.machine.free_count:
            return
        examined = state.queue if state.window is None else state.window
        waiting = [job for job in examined if state.can_run(job)]
        state.examined += len(waiting)
        ahead = [job.id for job in waiting[: len(self._reserved)]]
        is_current = state.version == self._version and not state.releases.any_by(state.now)
        is_current = is_current and not state.was_limited
        if state.excluding and any(job.spec.is_placed for job in waiting):
            is_current = False
        in_order = not self._is_full or not self._most
        if not is_current or ahead != self._reserved or in_order:
            self._begin()
            self._place_in_order(waiting)
        if self._is_full and self._most and state.backfill_allowed:
            self._backfill()
        self._version = state.version

    @property
    def _is_full(self) -> bool:
        return len(self._reserved) >= self._most

    def _begin(self) -> None:
        """Bring the table up to date with the live jobs, without reservations."""
        state, table = self.state, self._table
        live, held = state.live, self._held
        if not (state.machine.whole and self._was_whole):
            self._table = table = ReservationTable(state.machine.free, state.machine.shared)
            held.clear()
        self._was_whole = state.machine.whole
        table.clear_reservations()
        table.advance(state.now)
        for number in [number for number in held if number not in live]:
            del held[number]
            table.remove(number)
        for number, job in live.items():
            end = -inf if job.state is JobState.COMPLETING else job.estimated_end
            now_held = job.next_group, len(job.own_groups), end
            if held.get(number) != now_held:
                held[number] = now_held
                table.run(number, state.held(job), end, self._demand(job))
        table.free_bits = bits_of(state.machine.free)
        self._reserved, self._left, self._tried = [], [], set()
        self._excluded, self._nodes = {}, {}

    def _demand(self, job: Job) -> Demand:
        shared = self.state.machine.shared
        return () if shared is None else shared.demand(job.spec.shared)

    def _place_in_order(self, waiting: list[Job]) -> None:
        """Start jobs or make reservations until there are enough.

        The jobs of each advance reservation wait in a line of their own.
        """
        now, most = self.state.now, self._most
        heads: dict[str, int] = {}  # waiting jobs by advance reservation
        for job in waiting:
            line = job.spec.reservation
            count = heads.get(line, 0)
            if count and count >= most:
                if not self.state.excluding:
                    return
                continue
            allocation = self._find(job, inf)
            if allocation is not None and allocation.begin <= now and self._start(job, allocation):
                continue
            if not count and self._start_on_fewer(job):
                continue
            heads[line] = count + 1
            if most:
                if job.minimum:  # it starts on its smallest size then
                    allocation = self._find(job, inf, job.start_least)
                self._reserve(job, allocation)

    def _start_on_fewer(self, job: Job) -> bool:
        """Start a malleable job on the largest smaller size that is free for long enough."""
        state = self.state
        size = job.starts_on(min(state.machine.free_count, job.processors - 1))
        while size is not None:
            allocation = self._find(job, state.now, size)
            if allocation is None:
                size = job.starts_on(size - 1)
                continue
            facts: Facts = {
                "needed": job.spec.processors,
                "size": size,
                "free": state.machine.free_count,
                "walltime": job.estimate_on_s(size),
            }
            reason = Reason(f"{self.name} on fewer processors", STARTS_ON_FEWER, facts)
            if self._start_with(job, allocation, reason, size):
                return True
            size = job.starts_on(size - 1)
        return False

    def _backfill(self) -> None:
        """Start jobs behind the reservations."""
        is_plain = self._choose is None and not self._by_penalty
        while True:
            ready: list[tuple[Job, Allocation]] = []
            for job in self._candidates():
                allocation = self._find(job, self.state.now)
                if allocation is None:
                    if is_plain and self._start_on_fewer(job):
                        continue
                    self._tried.add(job.id)
                elif is_plain:
                    self._start_early(job, allocation)
                else:
                    ready.append((job, allocation))
            if not ready:
                return
            if self._choose is None:
                job, allocation = min(ready, key=_penalty)
                self._start_early(job, allocation)
                continue
            index = self._choose(self.state.machine, [job for job, _ in ready])
            if index is None:
                return
            [allocation] = [allocation for job, allocation in ready if job is index[0]]
            self._start_early(index[0], allocation, index[1])

    def _candidates(self) -> list[Job]:
        """Jobs without a reservation that are to be tried, in backfill order."""
        fitting = self.state.queue.in_backfill_order(self.state.fitting_jobs(), self.state.now)
        return [
            job for job in fitting if job.id not in self._reserved and job.id not in self._tried
        ]

    def _start_early(self, job: Job, allocation: Allocation, facts: Facts = NO_FACTS) -> None:
        """Start a job behind the reservations."""
        job.backfilled = True
        if not self._start(job, allocation, facts):
            self._tried.add(job.id)

    def _find(self, job: Job, latest: float, size: int = 0) -> Allocation | None:
        """Allocation by a time (s) beside the reservations; `size` 0: on what the job requests."""
        state = self.state
        now, after = state.now, state.now
        processors, length_s, demand = job.processors, job.estimate_s, job.demand
        if size:
            length_s = job.estimate_on_s(size)
            processors, demand = size, state.quantity(size, job)
        if state.excluding:
            self._table.exclude(self._excluded_for(job.spec.reservation, job.spec.nodes))
        if state.multi_resource:
            if not demand <= state.free:
                after = inf if latest <= now else max(now, state.shadow(job)[0])
            for at, left in self._left:  # reservations that leave too little of other resources
                if after < at < after + length_s and not demand <= left:
                    after = at
        elif processors > state.machine.free_count and latest <= now:
            return None
        if after > latest or after == inf:
            return None
        request = Request(processors, length_s, self._demand(job), after, latest)
        nodes = job.spec.nodes
        if nodes is not None and nodes.block > 1:
            return self._find_blocks(request, nodes)
        found = self._selection.place(self._table, request)
        # A user-defined selection may err.
        return None if found is None or found.begin > latest else found

    def _find_blocks(self, request: Request, node_request: NodeRequest) -> Allocation | None:
        """Allocation in blocks on a node, such as whole nodes; the first nodes are preferred."""
        needed, nodes = request.processors, self._nodes_for(node_request)
        for begin, free in self._table.free(
            needed, request.length_s, request.after, request.latest
        ):
            bits = bits_in_blocks(free, nodes, node_request.block, needed)
            if bits:
                return Allocation(set_of(bits), begin)
        return None

    def _excluded_for(self, reservation: str, node_request: NodeRequest | None) -> list[Use]:
        """Find what jobs of a reservation with such nodes may not hold; "": without one."""
        uses = self._excluded.get((reservation, node_request))
        if uses is None:
            kept = self.state.blocked_intervals(reservation, node_request)
            uses = [Use(bits_of(held), begin, end, ()) for held, begin, end in kept]
            self._excluded[reservation, node_request] = uses
        return uses

    def _nodes_for(self, node_request: NodeRequest) -> list[int]:
        """Bits of each node that a job may get, kept until the pass begins anew."""
        nodes = self._nodes.get(node_request)
        if nodes is None:
            nodes = self._nodes[node_request] = [
                *map(bits_of, self.state.machine.nodes_for(node_request))
            ]
        return nodes

    def _start(self, job: Job, allocation: Allocation, choice: Facts = NO_FACTS) -> bool:
        """Start a job on its allocation; return whether the selection accepts it."""
        facts: dict[str, int | float | str] = {
            "needed": job.processors,
            "factor": round(allocation.factor, 4),
            "free": self.state.machine.free_count,
            "walltime": job.estimate_s,
        }
        text = STARTS_NOW if self._table.capacity is not None else FREE_LONG_ENOUGH
        if choice:
            text, facts = f"{text}; {TEXT}", {**facts, **choice}
        return self._start_with(job, allocation, Reason(self._rule, text, facts))

    def _start_with(
        self, job: Job, allocation: Allocation, reason: Reason, size: int | None = None
    ) -> bool:
        """Start a job on its allocation; return whether the selection accepts it."""
        state, processors = self.state, allocation.processors
        if not state.start(job, reason, state.machine.free - processors, size):
            return False
        end = state.now + job.estimate_s
        self._held[job.id] = job.next_group, len(job.groups), job.estimated_end
        self._table.run(job.id, processors, end, self._demand(job))
        self._left = [(at, left - job.demand if end > at else left) for at, left in self._left]
        return True

    def _reserve(self, job: Job, allocation: Allocation | None) -> None:
        """Reserve an allocation; a job without one, because nodes are down, only counts."""
        self._reserved.append(job.id)
        if allocation is None:
            return
        begin = allocation.begin
        end = begin + (job.estimate_on_s(job.start_least) if job.minimum else job.estimate_s)
        self._table.reserve(allocation.processors, begin, end, self._demand(job))
        if self.state.multi_resource:
            self._left.append((begin, self.state.shadow(job)[1]))


def _penalty(ready: tuple[Job, Allocation]) -> tuple[float, float]:
    """Penalty factor of an allocation, and the estimated run time with it (s)."""
    job, allocation = ready
    return allocation.factor, allocation.factor * job.estimate_s
