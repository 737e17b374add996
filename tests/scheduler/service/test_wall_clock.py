"""The wall clock is set while a service runs: people read its times, durations do not change."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from desk import Desk
from set_clock import WallClock

from reshape.__main__ import main
from reshape.wire.codec import MAX_ANSWER_BYTES
from scheduler.model.events import JobSpec
from scheduler.protocol import messages as m
from scheduler.protocol.messages import decode
from scheduler.service.forecaster_process import Forecaster
from scheduler.service.reader_process import ForecastQuestion
from scheduler.text.formats import format_moment

HOUR_S = 3600.0
NEAR_S = 120.0
JOB = m.Submission(argv=["true"], processors=1, walltime_s=60.0)


@pytest.fixture
def wall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WallClock:
    clock = WallClock(tmp_path / "clock")
    monkeypatch.setattr("time.time", clock)
    return clock


@pytest.fixture
def desk(tmp_path: Path, wall: WallClock) -> Iterator[Desk]:
    desk = Desk(tmp_path / "service")
    yield desk
    desk.components.journal.close()


def tick(desk: Desk) -> None:
    desk.driver.tick(start_agents=False, heard_all=True)
    desk.turn()


def reserved(desk: Desk, name: str, start: float | None) -> m.ReservationInfo:
    desk.hello([])
    request = m.ChangeMachine(
        change=m.CreateReservation(duration_s=1800.0, name=name, start=start, processors=1)
    )
    (answer,) = desk.ask(b"x", request)
    assert isinstance(answer, m.Reservations), answer
    return answer.reservations[0]


def states(desk: Desk) -> dict[str, str]:
    (answer,) = desk.ask(b"x", m.ListMachine(part="reservations"))
    assert isinstance(answer, m.Reservations)
    return {each.name: each.state for each in answer.reservations}


def ended(desk: Desk, **query: Any) -> list[m.JobInfo]:
    (answer,) = desk.ask(b"x", m.ListJobs(ended=True, live=False, **query))
    assert isinstance(answer, m.JobListing)
    return answer.jobs


@pytest.mark.parametrize("by_s", [HOUR_S, -HOUR_S])
def test_reservations_follow_the_wall_clock(desk: Desk, wall: WallClock, by_s: float) -> None:
    wall.set_forward(by_s)
    tick(desk)
    now = reserved(desk, "now", wall())
    assert (now.state, now.begin) == ("ACTIVE", pytest.approx(wall(), abs=NEAR_S))
    later = reserved(desk, "later", wall() + HOUR_S)
    assert (later.state, later.begin) == ("INACTIVE", pytest.approx(wall() + HOUR_S, abs=NEAR_S))
    wall.set_forward(HOUR_S + 60.0)
    tick(desk)
    assert states(desk) == {"later": "ACTIVE"}, "the first one was for half an hour"
    wall.set_forward(-600.0)
    tick(desk)
    assert states(desk) == {"later": "INACTIVE"}


@pytest.mark.parametrize("by_s", [HOUR_S, -HOUR_S])
def test_the_times_of_jobs_are_those_of_the_wall_clock(
    desk: Desk, wall: WallClock, by_s: float
) -> None:
    """Those of a job that has ended remain as people have read them."""
    desk.ask(b"x", m.Submit(submission=JOB))
    desk.ask(b"x", m.ChangeJobs.one(1, m.CancelJob()))
    (first,) = ended(desk)
    desk.ask(b"x", m.Submit(submission=JOB))
    wall.set_forward(by_s)
    tick(desk)
    (queued,) = desk.ask(b"x", m.ListJobs(job=2))
    assert isinstance(queued, m.JobListing)
    assert queued.now == pytest.approx(wall(), abs=NEAR_S)
    assert 0 <= queued.now - queued.jobs[0].submitted_at < NEAR_S, "it has not waited for an hour"
    desk.ask(b"x", m.ChangeJobs.one(2, m.CancelJob()))
    again, second = ended(desk)
    assert again == first
    assert ended(desk, since=wall() - NEAR_S, until=wall() + NEAR_S) == [second]
    assert second.ended_at == pytest.approx(wall(), abs=NEAR_S)
    assert second.ended_at is not None
    assert 0 <= second.ended_at - second.submitted_at < NEAR_S
    for number, info in ((1, first), (2, second)):
        (told,) = desk.ask(b"x", m.Explain(job=number))
        assert isinstance(told, m.Explanation)
        assert told.lines[0].at == pytest.approx(info.submitted_at, abs=0.001)
        assert told.lines[-1].at == pytest.approx(info.ended_at, abs=NEAR_S)
    (info,) = desk.ask(b"x", m.ServerInfo())
    assert isinstance(info, m.Info)
    assert 0 <= info.now - info.started_at < NEAR_S


def test_forecasts_are_by_the_wall_clock(desk: Desk, wall: WallClock) -> None:
    wall.set_forward(HOUR_S)
    tick(desk)
    desk.hello([])
    for processors in (1, 4):
        job = msgspec.structs.replace(JOB, processors=processors)
        desk.ask(b"x", m.Submit(submission=job))
    forecaster, now = Forecaster(desk.components.journal), desk.components.clock()
    quote = m.RequestForecast(of=JOB, futures=2)
    for question in (
        ForecastQuestion(m.RequestForecast(), now),
        ForecastQuestion(m.RequestForecast(of=2, futures=2), now),
        ForecastQuestion(quote, now, JobSpec(1, 60.0)),
    ):
        answer = decode(forecaster.answer(1, question), MAX_ANSWER_BYTES)
        assert isinstance(answer, m.ForecastResult), answer
        text = json.dumps(answer.found)
        moments = [float(number) for number in re.findall(r"(?<![\d.])\d{9,}\.?\d*", text)]
        assert len(moments) >= 3
        assert all(0 <= at - wall() + NEAR_S < HOUR_S / 2 for at in moments), text
        if question.query.of == 2:
            assert f"enough by {format_moment(answer.found['forecast']['start'])}" in text


def test_a_change_while_no_service_runs_is_noticed(tmp_path: Path, wall: WallClock) -> None:
    before = Desk(tmp_path / "service")
    reserved(before, "r", wall() + HOUR_S)
    before.components.journal.close()
    wall.set_forward(HOUR_S)
    after = Desk(tmp_path / "service")
    assert states(after) == {"r": "INACTIVE"}
    tick(after)
    assert states(after) == {"r": "ACTIVE"}
    after.components.journal.close()


def command(served: Any, *words: str) -> str:
    result = CliRunner().invoke(main, [*words[:2], "--dir", str(served.directory), *words[2:]])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_running_service_follows_and_its_journal_replays(
    served: Any, wall: WallClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All processes of the service read a wall clock that the test sets; the job computes on."""
    for name, value in wall.environment().items():
        monkeypatch.setenv(name, value)
    served.start("--processors", "4")

    def created(name: str, start: str) -> dict[str, Any]:
        text = command(
            served, "reserve", "create", "--name", name, "--processors", "1",
            "--start", start, "--duration", "30:00", "--json",
        )  # fmt: skip
        (found,) = json.loads(text)
        return dict(found)

    def time_of_service() -> float:
        answer = served.ask(m.ServerInfo())
        return float(answer.now)

    def until_followed() -> None:
        served.when(job, lambda _: abs(time_of_service() - wall()) < 60.0)

    job = served.submit(["sleep", "600"], walltime_s=300.0)
    started = served.until(job, "RUNNING").started_at
    assert created("afternoon", "now+1:10:00")["state"] == "INACTIVE"
    wall.set_forward(HOUR_S)
    until_followed()
    assert created("at-once", "now")["state"] == "ACTIVE"
    later = served.job(job)
    assert later.state == "RUNNING", "its walltime of five minutes is not over"
    assert later.started_at == pytest.approx(started + HOUR_S, abs=2.0)

    served.kill()
    wall.set_forward(-2 * HOUR_S)
    served.start()
    until_followed()
    assert created("back", "now")["state"] == "ACTIVE"
    served.ask(m.ChangeJobs.one(job, m.CancelJob()))
    done = served.wait(job)
    assert (done.state, done.ended_at) == ("CANCELLED", pytest.approx(wall(), abs=NEAR_S))
    assert done.ended_at - done.started_at < NEAR_S
    (listed,) = json.loads(command(served, "history", "--json"))["jobs"]
    assert (listed["job"], listed["ended_at"]) == (job, done.ended_at)
    served.end()
    replayed = CliRunner().invoke(main, ["replay", str(served.directory)])
    assert replayed.exit_code == 0, replayed.output
    assert "identical" in replayed.output
