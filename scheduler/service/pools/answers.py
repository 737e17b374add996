"""Answers to the commands about pools, and what explanations say of them."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, isfinite

import msgspec

from reshape.errors import ReshapeError
from reshape.times import utc_moment
from scheduler.journal.clock import moved_time
from scheduler.model.job import Job
from scheduler.policies.pools.options import check_pool_name, parse_pool_options
from scheduler.policies.pools.policy import AllocationState
from scheduler.protocol import messages as m
from scheduler.service.pools.live_pool import LivePool
from scheduler.service.pools.live_pools import LivePools
from scheduler.text.formats import counted, format_time
from scheduler.text.plain import LONGEST_REASON, check_text


def change_pool(
    pools: LivePools, change: m.PoolChange, answer: Callable[[m.Message], None]
) -> m.Message | None:
    """Carry out a command, and answer it.

    Parameters
    ----------
    answer : called later if the answer is None.

    Raises
    ------
    ReshapeError : the request is refused.
    """
    match change:
        case m.AddPool(name=name, system=system, options=options, arguments=arguments):
            try:
                parsed = parse_pool_options(options)
                pools.add(check_pool_name(name), system, parsed, arguments, answer)
            except ValueError as error:
                raise ReshapeError(str(error)) from None
            return None
        case m.PausePool(name=name, why=why):
            check_text(why, "the reason", LONGEST_REASON)
            pools.pause(name, why or "an administrator paused it")
        case m.ResumePool(name=name):
            pools.resume(name)
        case m.RemovePool(name=name, at_once=at_once):
            pools.remove(name, at_once=at_once)
    return m.Done()


def pool_list(pools: LivePools) -> m.PoolList:
    """List all pools."""
    return m.PoolList(pools=[describe(pools, live) for live in pools.pools.values()])


def describe(pools: LivePools, live: LivePool) -> m.PoolInfo:
    """Describe a pool for tables and JSON."""
    record, ahead_s = live.record.pool, pools.clock.ahead_s
    state, reason = state_of(pools, live)
    return m.PoolInfo(
        name=live.name,
        system=live.record.system,
        state=state,
        reason=reason,
        max_nodes=live.pool.options.max_nodes,
        wanted=live.pool.wanted,
        options=msgspec.structs.asdict(live.pool.options),
        arguments=list(live.record.arguments),
        allocations=[
            m.AllocationInfo(
                number=allocation.number,
                id=allocation.id,
                state=allocation.state.value,
                nodes=list(allocation.nodes),
                submitted_at=allocation.submitted_at + ahead_s,
                started_at=moved_time(allocation.granted_at, ahead_s),
                ends_at=None if allocation.ends_at == inf else allocation.ends_at + ahead_s,
                idle=pools.nodes.idle(allocation),
            )
            for allocation in record.allocations.values()
        ],
    )


def state_of(pools: LivePools, live: LivePool) -> tuple[str, str]:
    """Return the state of a pool and the reason for it."""
    record = live.record.pool
    fault = pools.fault_of(live)
    if live.record.removing:
        return "removing", record.paused
    if record.paused:
        return "paused", record.paused
    if pools.clock() < record.not_before and isfinite(record.not_before):
        until = utc_moment(record.not_before + pools.clock.ahead_s)
        return "waiting", f"it submits again at {until}, after {fault}"
    return "active", fault


def pool_sentences(pools: LivePools, job: Job) -> list[str]:
    """Say of each pool what it does for a queued job."""
    sentences = []
    for live in pools.pools.values():
        state, reason = state_of(pools, live)
        text = f"pool {live.name} is {state}" + (f" ({reason})" if reason else "")
        coming = sum(
            len(allocation.nodes)
            for allocation in live.pool.allocations
            if allocation.state not in (AllocationState.RUNNING, AllocationState.LEAVING)
        )
        if coming:
            text += f"; it has requested {counted(coming, 'node')}"
        longest_s = live.pool.options.longest_s
        if job.estimate_s > longest_s:
            text += f"; its allocations have {format_time(longest_s)} for a job, too little for it"
        sentences.append(text)
    return sentences
