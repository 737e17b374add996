"""What a service concludes from the answers of a batch system, without a service."""

from __future__ import annotations

from math import inf

import msgspec

from scheduler.core.core import Core
from scheduler.model.events import JobSpec, JobSubmitted, NodeJoined, NodeLost
from scheduler.node.slurm import BatchState, BatchStatus
from scheduler.policies.pools.options import PoolOptions
from scheduler.policies.pools.policy import AllocationState, PoolAllocation
from scheduler.policies.pools.pool import BACK_OFF_S, PoolRecord
from scheduler.policies.scenarios import scenario
from scheduler.service.components.system_monitor import GIVE_BACK_S
from scheduler.service.pools.live_pool import (
    AGENTS_END_S,
    AGENTS_START_S,
    CANCEL_AGAIN_S,
    MOST_UNKNOWN,
    LivePool,
)

S = AllocationState
UNKNOWN = {"7": BatchStatus(BatchState.UNKNOWN)}
OPTIONS = PoolOptions(max_nodes=2, time_limit_s=3600.0, processors=4)


def waiting_pool(backlog: int = 1) -> tuple[LivePool, PoolAllocation, Core]:
    """A pool with a queued allocation, Slurm job 7, for a job that waits from second 100 on."""
    core = Core(scenario("easy"))
    options = msgspec.structs.replace(OPTIONS, backlog=backlog)
    live = LivePool(PoolRecord("p", options), "service")
    names = live.node_names
    core.handle([*(NodeJoined(0.0, n, 4) for n in names), *(NodeLost(0.0, n) for n in names)])
    core.handle([JobSubmitted(100.0, 1, JobSpec(4, 600.0))])
    (each,) = live.consider(core.partitions[0].state, core.scenario, 100.0).submitted
    live.queued(each.number, "7")
    return live, each, core


def running(end: float | None, start: float = 200.0) -> dict[str, BatchStatus]:
    return {"7": BatchStatus(BatchState.RUNNING, "RUNNING", "", start, end, "n1")}


def test_an_unknown_batch_job_never_counts_as_running() -> None:
    live, each, _ = waiting_pool()
    for look_up in range(1, MOST_UNKNOWN + 1):
        live.see(UNKNOWN, 200.0, 0.0, 0.0)
        assert each.state is S.QUEUED
        assert live.has_ended(each, 200.0) is (look_up == MOST_UNKNOWN)
    assert live.why_ended(each) == "Slurm does not know batch job 7 any more"


def test_an_answer_in_between_begins_the_count_again() -> None:
    live, each, _ = waiting_pool()
    for _ in range(MOST_UNKNOWN - 1):
        live.see(UNKNOWN, 200.0, 0.0, 0.0)
    live.see({"7": BatchStatus(BatchState.QUEUED, "PENDING")}, 200.0, 0.0, 0.0)
    live.see(UNKNOWN, 200.0, 0.0, 0.0)
    assert not live.has_ended(each, 200.0)


def test_the_end_is_that_of_the_batch_system_on_the_clock_of_the_service() -> None:
    live, each, _ = waiting_pool()
    # The clock of the service is 50 s behind that of the system.
    assert live.see(running(3850.0, 250.0), 210.0, 0.0, -50.0) == {1}
    assert each.state is S.STARTING
    assert (each.granted_at, each.ends_at) == (200.0, 3800.0 - GIVE_BACK_S)
    assert live.see(running(3850.0, 250.0), 215.0, 0.0, -50.0) == set()
    assert live.see(running(3250.0, 250.0), 220.0, 0.0, -50.0) == {1}  # scontrol update
    assert each.ends_at == 3200.0 - GIVE_BACK_S


def test_an_end_that_is_not_known_is_the_time_limit_after_the_start() -> None:
    live, each, _ = waiting_pool()
    assert live.see(running(None, 200.0), 210.0, 0.0, 0.0) == {1}
    assert each.ends_at == 200.0 + 3600.0 - GIVE_BACK_S
    assert live.see(running(None, 200.0), 230.0, 0.0, 0.0) == set()


def test_agents_that_report_before_a_look_up_get_the_earliest_possible_end() -> None:
    live, each, _ = waiting_pool()
    live.see({"7": BatchStatus(BatchState.QUEUED, "PENDING")}, 500.0, 2.0, 0.0)
    live.grant(each, 503.0, live.least_end(each), 503.0)
    assert each.ends_at == 498.0 + 3600.0 - GIVE_BACK_S
    # Nothing is known of an allocation that started while the service was down.
    live, each, _ = waiting_pool()
    live.grant(each, 9000.0, live.least_end(each), 9000.0)
    assert each.ends_at == inf
    assert live.see(running(9500.0), 9001.0, 0.0, 0.0) == {1}


def test_a_record_is_the_same_after_it_was_stored() -> None:
    live, _, _ = waiting_pool()
    live.see(running(3800.0), 210.0, 0.0, 0.0)
    again = LivePool.decode(live.encode(), "service")
    assert again.record == live.record
    assert again.number_of(live.batch_name(1)) == 1
    assert again.number_of("other.p.1") is None


def test_failures_in_a_row_delay_submissions_and_then_pause_the_pool() -> None:
    live, each, core = waiting_pool()
    now = 100.0
    for failures in range(1, len(BACK_OFF_S)):
        live.refused(each.number, now, "Invalid account")
        assert (
            live.consider(
                core.partitions[0].state, core.scenario, now + BACK_OFF_S[failures] - 1
            ).submitted
            == ()
        )
        now += BACK_OFF_S[failures]
        (each,) = live.consider(core.partitions[0].state, core.scenario, now).submitted
    live.refused(each.number, now, "Invalid account")
    assert live.record.paused == "5 failures in a row, the last: Invalid account"
    assert live.consider(core.partitions[0].state, core.scenario, now + 1e6).submitted == ()
    live.resume()
    (each,) = live.consider(core.partitions[0].state, core.scenario, now + 1e6).submitted


def test_what_fails_before_the_next_submission_is_the_same_failure() -> None:
    live, each, core = waiting_pool(backlog=2)
    core.handle([JobSubmitted(100.0, 2, JobSpec(4, 600.0))])
    (other,) = live.consider(core.partitions[0].state, core.scenario, 100.0).submitted
    live.refused(each.number, 100.0, "Invalid account")
    live.refused(other.number, 101.0, "Invalid partition")
    assert live.record.failures == 1
    assert live.record.not_before == 100.0 + BACK_OFF_S[1]
    assert live.record.fault == "Invalid partition"


def test_an_allocation_in_which_no_job_starts_is_a_failure() -> None:
    live, each, core = waiting_pool()
    live.see(running(3800.0), 200.0, 0.0, 0.0)
    live.joined(each.number)
    core.handle([NodeJoined(200.0, name, 4, until=700.0) for name in each.nodes])
    live.consider(core.partitions[0].state, core.scenario, 200.0)
    assert len(core.partitions[0].queue) == 1  # the node expires before the job would end
    live.ended(each.number, 700.0)
    assert live.record.failures == 1
    assert "although jobs waited" in live.record.fault


def test_a_batch_job_is_overdue_when_its_agents_do_not_come_or_it_outlives_them() -> None:
    live, each, _ = waiting_pool()
    live.see(running(3800.0), 200.0, 0.0, 0.0)
    at = 200.0 + AGENTS_START_S
    assert live.overdue(each, at, has_nodes=False) == ""
    assert "no agent has reported" in live.overdue(each, at + 1, has_nodes=False)
    live.joined(each.number)
    assert live.overdue(each, at + 1, has_nodes=True) == ""
    for at in (1000.0, 2000.0):  # the agents end, report again, and end for good
        assert live.overdue(each, at, has_nodes=False) == ""
        assert live.overdue(each, at + AGENTS_END_S, has_nodes=False) == ""
        assert live.overdue(each, at + AGENTS_END_S + 1, has_nodes=at < 2000.0) == (
            "" if at < 2000.0 else f"it has not ended {AGENTS_END_S:g} s after its agents"
        )


def test_a_batch_job_that_was_cancelled_and_has_not_ended_is_cancelled_again() -> None:
    live, each, _ = waiting_pool()
    live.leaves(each.number)
    live.sighting(each, 300.0).cancelled_at = 300.0
    assert live.overdue(each, 300.0 + CANCEL_AGAIN_S, has_nodes=False) == ""
    assert "was cancelled" in live.overdue(each, 301.0 + CANCEL_AGAIN_S, has_nodes=False)
