"""One pool of a live service: its record in the journal, its batch jobs, and its nodes.

The batch job of an allocation is a script that starts an agent on each of its nodes by srun.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path

import msgspec

from reshape.times import utc_moment
from scheduler.journal.clock import Clock, moved_time
from scheduler.model.job import Job
from scheduler.node.slurm import BatchRequest, BatchState, BatchStatus
from scheduler.policies.pools.policy import WAITING, AllocationState, PoolAllocation
from scheduler.policies.pools.pool import Pool, PoolRecord
from scheduler.protocol import messages as m
from scheduler.service.components.system_monitor import GIVE_BACK_S, SAME_END_S
from scheduler.text.formats import counted, format_time

_SCRIPT = """#!/bin/sh
# An allocation of pool {pool} of the service in {directory}: an agent on each node.
set -- {nodes}
exec srun --nodes=$# --ntasks=$# --ntasks-per-node=1 --cpus-per-task={processors} --cpu-bind=none \\
  --mpi=none --kill-on-bad-exit=0 --wait=0 --job-name=reshape-agent --quiet \\
  sh -c 'shift "$SLURM_PROCID"; exec {agent} --node "$1"' sh "$@"
"""


S = AllocationState
#: Look-ups in a row that do not name a batch job, after which it counts as ended.
MOST_UNKNOWN = 5
#: Seconds in which all agents of a started allocation have to report.
AGENTS_START_S = 180.0
#: Seconds in which the agents of a released allocation end by themselves, and in which a batch job
#: ends whose agents have ended.
AGENTS_END_S = 15.0
#: Seconds after which a batch job is cancelled again that has not ended: the batch system may not
#: have answered.
CANCEL_AGAIN_S = 30.0


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(PoolRecord)


@dataclass
class _Sighting:
    """What was last seen of a batch job; times in seconds on the clock of the service.

    Parameters
    ----------
    since : when the allocation came into its present state.
    unknown : look-ups in a row that did not name it.
    queued_at : when the batch job was last seen in the queue of the batch system.
    status : latest answer of the batch system.
    cancelled_at : when the batch system was last asked to cancel the batch job; None: never.
    empty_since : since when the allocation, which has run, has no node any more; None: it has one.
    """

    since: float
    unknown: int = 0
    queued_at: float = 0.0
    status: BatchStatus | None = None
    cancelled_at: float | None = None
    empty_since: float | None = None


class LivePool(Pool):
    """A pool whose allocations are batch jobs of Slurm, with what is known of these.

    Parameters
    ----------
    record : see `Pool`; the journal holds it.
    service : name of the service that no other user of Slurm has.

    Attributes
    ----------
    sightings : what was last seen of the batch job of each allocation, by number.
    """

    def __init__(self, record: PoolRecord, service: str) -> None:
        super().__init__(record)
        self._service = service
        self.sightings: dict[int, _Sighting] = {}

    @classmethod
    def decode(cls, data: bytes, service: str) -> LivePool:
        """Read the record of a pool.

        Raises
        ------
        msgspec.DecodeError : it is damaged.
        """
        return cls(_decoder.decode(data), service)

    def encode(self) -> bytes:
        """Encode the record of the pool."""
        return _encoder.encode(self.record)

    def batch_name(self, number: int) -> str:
        """Name of the batch job of an allocation, by which it is found again."""
        return f"{self._service}.{self.name}.{number}"

    def request(self, directory: Path, number: int, nodes: Sequence[str]) -> BatchRequest:
        """Describe the batch job of an allocation.

        Parameters
        ----------
        directory : of the service; the nodes must share it.
        nodes : names of the nodes in the service.
        """
        access = directory / "access" / "agent.json"
        agent = [sys.executable, "-m", "reshape", "agent", "--connect", str(access)]
        options = self.options
        script = _SCRIPT.format(
            pool=self.name,
            directory=directory,
            nodes=shlex.join(nodes),
            processors=options.processors,
            agent=shlex.join(agent).replace("'", "'\"'\"'"),
        )
        own = ("--ntasks-per-node=1", f"--cpus-per-task={options.processors}", "--no-requeue")
        return BatchRequest(
            script=script,
            nodes=len(nodes),
            time_limit_s=options.time_limit_s,
            name=self.batch_name(number),
            directory=Path(os.sep),
            output=directory / f"pool-{self.name}.log",
            options=(*own, "--open-mode=append", *self.record.arguments),
        )

    def number_of(self, batch_name: str) -> int | None:
        """Allocation whose batch job has this name; None if there is none."""
        for number in self.record.allocations:
            if self.batch_name(number) == batch_name:
                return number
        return None

    def sighting(self, allocation: PoolAllocation, now: float) -> _Sighting:
        """What was last seen of the batch job of an allocation."""
        return self.sightings.setdefault(allocation.number, _Sighting(now))

    def see(
        self, statuses: Mapping[str, BatchStatus], now: float, age_s: float, offset_s: float
    ) -> set[int]:
        """Note what the batch system says about the allocations of the pool.

        Parameters
        ----------
        age_s : how old the answer may be, seconds.
        offset_s : clock of the service minus the system's clock, seconds.

        Returns
        -------
        allocations whose end was not known so far, or differs from what was assumed
        """
        changed: set[int] = set()
        for allocation in self.allocations:
            status = statuses.get(allocation.id)
            if status is None:
                continue
            sighting = self.sighting(allocation, now)
            is_known = status.state is not BatchState.UNKNOWN
            sighting.unknown = 0 if is_known else sighting.unknown + 1
            if is_known:
                sighting.status = status
            if status.state is BatchState.QUEUED:
                sighting.queued_at = now - age_s
            elif status.state is BatchState.RUNNING:
                ends_at = self._end_of(allocation, status, offset_s)
                if allocation.state in WAITING:
                    started = now if status.start is None else min(now, status.start + offset_s)
                    self.grant(allocation, started, ends_at, now)
                elif abs(allocation.ends_at + GIVE_BACK_S - ends_at) > SAME_END_S:
                    allocation.ends_at = ends_at - GIVE_BACK_S
                else:
                    continue
                changed.add(allocation.number)
        return changed

    def _end_of(self, allocation: PoolAllocation, status: BatchStatus, offset_s: float) -> float:
        """Time at which a running batch job ends, as exactly as it is known, seconds."""
        if status.end is not None:
            return status.end + offset_s
        if status.start is not None:
            return status.start + offset_s + self.options.time_limit_s
        return self.least_end(allocation)

    def grant(self, allocation: PoolAllocation, started: float, ends_at: float, now: float) -> None:
        """Note that the batch system has started an allocation, which ends at a time (s).

        A time that has passed is that of an allocation that waited while the service was down;
        its end is not known then.
        """
        if ends_at <= now:
            ends_at = inf
        status = self.sighting(allocation, now).status
        self.granted(allocation.number, started, ends_at - GIVE_BACK_S)
        self.sightings[allocation.number] = _Sighting(now, status=status)

    def has_ended(self, allocation: PoolAllocation, now: float) -> bool:
        """Whether the batch system says that a batch job is over, or does not know it any more.

        An unknown batch job may be one whose id the batch system has forgotten, so it counts as
        ended only after several answers.
        """
        sighting = self.sighting(allocation, now)
        if sighting.unknown >= MOST_UNKNOWN:
            return True
        return sighting.status is not None and sighting.status.state is BatchState.ENDED

    def overdue(self, allocation: PoolAllocation, now: float, *, has_nodes: bool) -> str:
        """Say why the batch job of an allocation is to be cancelled; empty if it is not.

        Parameters
        ----------
        has_nodes : whether a node of the allocation is not lost.
        """
        sighting = self.sighting(allocation, now)
        if has_nodes or allocation.state not in (S.RUNNING, S.LEAVING):
            sighting.empty_since = None
        elif sighting.empty_since is None:
            sighting.empty_since = now
        if sighting.cancelled_at is not None:
            is_late = now - sighting.cancelled_at > CANCEL_AGAIN_S
            return f"it has not ended {CANCEL_AGAIN_S:g} s after it was cancelled" * is_late
        waited_s = now - sighting.since
        if allocation.state is S.STARTING and not has_nodes and waited_s > AGENTS_START_S:
            return f"no agent has reported {AGENTS_START_S:g} s after its start"
        if allocation.state is S.LEAVING and has_nodes and waited_s > AGENTS_END_S:
            return f"its agents have not ended after {AGENTS_END_S:g} s"
        if sighting.empty_since is not None and now - sighting.empty_since > AGENTS_END_S:
            return f"it has not ended {AGENTS_END_S:g} s after its agents"
        return ""

    def why_ended(self, allocation: PoolAllocation) -> str:
        """Why a batch job ended, in the batch system's words."""
        sighting = self.sightings.get(allocation.number)
        if sighting is None or sighting.status is None or sighting.unknown:
            return f"Slurm does not know batch job {allocation.id} any more"
        words = [word for word in (sighting.status.word, sighting.status.reason) if word]
        return f"batch job {allocation.id} ended before its agents reported: {', '.join(words)}"

    def least_end(self, allocation: PoolAllocation) -> float:
        """Time at which the batch job ends at the earliest, as far as that is known, seconds."""
        if allocation.ends_at < inf:
            return allocation.ends_at + GIVE_BACK_S
        sighting = self.sightings.get(allocation.number)
        queued_at = allocation.submitted_at if sighting is None else sighting.queued_at
        return max(allocation.submitted_at, queued_at) + self.options.time_limit_s

    # What commands show of the pool.

    def describe(self, clock: Clock, fault: str, idle: Mapping[int, int]) -> m.PoolInfo:
        """Describe the pool for tables and JSON.

        Parameters
        ----------
        fault : why Slurm does not answer; may be empty.
        idle : processors of each allocation that a job may get now, by number.
        """
        ahead_s = clock.ahead_s
        state, reason = self.state(clock, fault)
        return m.PoolInfo(
            name=self.name,
            state=state,
            reason=reason,
            max_nodes=self.options.max_nodes,
            wanted=self.wanted,
            options=msgspec.structs.asdict(self.options),
            arguments=list(self.record.arguments),
            allocations=[
                m.AllocationInfo(
                    number=allocation.number,
                    id=allocation.id,
                    state=allocation.state.value,
                    nodes=list(allocation.nodes),
                    submitted_at=allocation.submitted_at + ahead_s,
                    started_at=moved_time(allocation.granted_at, ahead_s),
                    ends_at=None if allocation.ends_at == inf else allocation.ends_at + ahead_s,
                    idle=idle[allocation.number],
                )
                for allocation in self.allocations
            ],
        )

    def state(self, clock: Clock, fault: str) -> tuple[str, str]:
        """Return the state of the pool and the reason for it; see `describe`."""
        record = self.record
        fault = fault or record.fault
        if record.removing:
            return "removing", record.paused
        if record.paused:
            return "paused", record.paused
        if clock() < record.not_before and isfinite(record.not_before):
            until = utc_moment(record.not_before + clock.ahead_s)
            return "waiting", f"it submits again at {until}, after {fault}"
        return "active", fault

    def sentence(self, job: Job, clock: Clock, fault: str) -> str:
        """Say what the pool does for a queued job; see `describe`."""
        state, reason = self.state(clock, fault)
        text = f"pool {self.name} is {state}" + (f" ({reason})" if reason else "")
        coming = sum(
            len(allocation.nodes)
            for allocation in self.allocations
            if allocation.state not in (S.RUNNING, S.LEAVING)
        )
        if coming:
            text += f"; it has requested {counted(coming, 'node')}"
        longest_s = self.options.longest_s
        if job.estimate_s > longest_s:
            text += f"; its allocations have {format_time(longest_s)} for a job, too little for it"
        return text
