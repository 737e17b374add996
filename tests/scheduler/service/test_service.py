"""The live service with rigid jobs: real mpiexecs, real kills, a service that dies and returns."""

from __future__ import annotations

import os
import signal
import sqlite3
import tempfile
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import zmq
from told import WAITS
from waiting import LIMIT_S, wait_until

from reshape.errors import ReshapeError
from scheduler.client import background
from scheduler.protocol import messages as m
from scheduler.protocol.client import ServiceConnection
from scheduler.protocol.messages import decode

RANKS = [
    "python",
    "-c",
    "from mpi4py import MPI; c = MPI.COMM_WORLD; print(f'{c.rank} of {c.size}\\n', end='')",
]


@pytest.fixture
def service(shared_service: Any) -> Any:
    """One service for the tests of this module that leave it as it was."""
    return shared_service


def test_a_job_runs_on_the_processes_it_asked_for(service):
    job = service.wait(service.submit(RANKS, 3))
    assert (job.state, job.exit_code, job.signal) == ("COMPLETED", 0, 0)
    assert sorted(service.output(job.job).split("\n")) == ["", "0 of 3", "1 of 3", "2 of 3"]
    assert [part for _, part in job.allocation] == ["0-2", ""]


def test_a_full_machine_queues_and_says_why(service):
    first = service.submit(WAITS, 8)
    second = service.submit(["true"], 2)
    service.until(first, "RUNNING")
    waiting = service.job(second)
    assert waiting.state == "PENDING"
    assert waiting.reason
    ended = service.finish(first)
    assert service.wait(second).started_at >= ended.ended_at
    assert service.free() == 8


@pytest.mark.parametrize(
    ("program", "code"),
    [
        (["sh", "-c", "echo no input; exit 3"], 3),
        (["no-such-program"], None),
    ],
)
def test_a_program_that_fails_is_a_failed_job(service, program, code):
    job = service.wait(service.submit(program, 2))
    assert job.state == "FAILED"
    assert job.exit_code != 0
    if code is not None:
        assert job.exit_code == code
        assert "no input" in job.last_lines
    assert service.free() == 8


def test_a_killed_process_is_a_failed_job(service):
    number = service.submit(["sleep", "600"], 2)
    service.until(number, "RUNNING")
    sleepers = wait_until(
        lambda: [each for each in service.processes(agents=False) if each.name() == "sleep"]
    )
    sleepers[0].kill()
    job = service.wait(number)
    assert job.state == "FAILED"
    assert (job.exit_code, job.signal) == (0, signal.SIGKILL)
    assert not service.processes(agents=False)


def test_an_output_that_cannot_be_written_fails_the_job_with_its_path(service):
    job = service.wait(service.submit(["true"], 1, output="/nowhere/at/all.out"))
    assert job.state == "FAILED"
    assert "/nowhere/at/all.out" in job.reason


def test_cancelling_ends_the_processes_first(service):
    number = service.submit(["sleep", "600"], 4)
    service.until(number, "RUNNING")
    service.ask(m.ChangeJobs.one(number, m.CancelJob()))
    job = service.wait(number)
    assert job.state == "CANCELLED"
    assert not service.processes(agents=False)
    assert service.free() == 8


def test_a_queued_job_can_be_cancelled(service):
    service.submit(["sleep", "600"], 8)
    queued = service.submit(["true"], 1)
    service.ask(m.ChangeJobs.one(queued, m.CancelJob()))
    assert service.wait(queued).state == "CANCELLED"
    with pytest.raises(ReshapeError, match="has ended already"):
        service.ask(m.ChangeJobs.one(queued, m.CancelJob()))


def test_a_job_that_ignores_sigterm_is_killed_at_its_walltime(service):
    stubborn = ["sh", "-c", "trap '' TERM; while true; do sleep 0.1; done"]
    job = service.wait(service.submit(stubborn, 2, walltime_s=1.5))
    assert (job.state, job.exit_code, job.signal) == ("TIMEOUT", 0, signal.SIGKILL)
    assert not service.processes(agents=False)


@pytest.mark.parametrize(
    ("submission", "words"),
    [
        ({"processors": 9}, "asks for 9 processors, the machine has 8"),
        ({"processors": 0}, "at least 1 processor, got 0"),
        ({"processors": 4, "max_processors": 2}, "--max 2 is below the 4"),
        ({"processors": 1, "walltime_s": -2.0}, "above 0 s, got -2"),
    ],
)
def test_a_job_that_can_never_run_is_refused(service, submission, words):
    before = service.ask(m.ListJobs(ended=True)).jobs
    with pytest.raises(ReshapeError, match=words):
        service.submit(["true"], **submission)
    assert service.ask(m.ListJobs(ended=True)).jobs == before


def programs(service: Any, job: int) -> list[psutil.Process]:
    """Processes of a job that run a shell."""
    found = []
    for process in service.processes(agents=False):
        with suppress(psutil.Error):  # it has ended meanwhile
            if process.name() == "sh" and process.environ().get("RESHAPE_JOB") == str(job):
                found.append(process)
    return found


def test_jobs_outlive_the_service(service):
    running = service.submit(["sh", "-c", f"{WAITS[-1]}; echo survived"], 6)
    queued = service.submit(RANKS, 4)
    short = service.submit(["sh", "-c", f"{WAITS[-1]}; exit 5"], 2)
    wait_until(lambda: programs(service, running) and programs(service, short))
    service.kill()
    assert programs(service, running)
    service.let_end(short)
    wait_until(lambda: not programs(service, short))
    service.start()
    assert service.wait(short).exit_code == 5
    assert service.finish(running).state == "COMPLETED"
    assert service.output(running).splitlines() == ["survived"] * 6
    assert service.wait(queued).state == "COMPLETED"
    assert service.free() == 8


def test_a_submission_is_acknowledged_when_it_is_in_the_journal(service):
    number = service.submit(["sleep", "600"], 8)
    other = service.submit(["true"], 8)
    service.kill()
    with closing(sqlite3.connect(service.place.journal)) as journal:
        rows = journal.execute(
            "SELECT job FROM events WHERE CAST(event AS TEXT) LIKE '%JobSubmitted%' ORDER BY job"
        ).fetchall()
    assert rows == [(number,), (other,)]
    service.start()
    assert service.job(other).state == "PENDING"
    service.ask(m.ChangeJobs.one(number, m.CancelJob()))
    assert service.wait(other).state == "COMPLETED"


def test_a_dead_agent_ends_its_jobs_and_is_replaced(service):
    number = service.submit(["sleep", "600"], 2)
    service.until(number, "RUNNING")
    first = service.agent_pid()
    os.kill(first, signal.SIGKILL)
    job = service.wait(number)
    assert job.state == "NODE_FAIL"
    after = service.submit(RANKS, 2)
    assert service.wait(after).state == "COMPLETED"
    assert service.agent_pid() != first
    assert not service.processes(agents=False)


def test_ends_that_a_killed_agent_knew_are_not_lost(served):
    """The service was away when the jobs ended; what still ran with the agent is lost."""
    served.start("--processors", "8")
    success = served.submit(WAITS, 2, requeue=True)
    failure = served.submit(["sh", "-c", f"{WAITS[-1]}; exit 3"], 2)
    lost = served.submit(["sleep", "600"], 2)
    for number in (success, failure, lost):
        served.until(number, "RUNNING")
    agent = served.agent_pid()
    served.kill()
    served.let_end(success, failure)
    ends = [served.place.memory / f"end-{number}-1-on-local" for number in (success, failure)]
    wait_until(lambda: all(path.exists() for path in ends))
    os.kill(agent, signal.SIGKILL)
    served.start()
    jobs = [served.wait(number) for number in (success, failure, lost)]
    assert [job.state for job in jobs] == ["COMPLETED", "FAILED", "NODE_FAIL"]
    assert [job.exit_code for job in jobs[:2]] == [0, 3]
    assert jobs[0].requeues == 0
    wait_until(lambda: not served.segments())
    served.check_replay()


def test_the_shared_memory_of_jobs_is_removed_after_the_death_of_their_agent(service):
    data = 'echo data > "$RESHAPE_SHM/u.e0.r0"; touch "$0"; sleep 600'
    written = service.work / "written"
    number = service.submit(["sh", "-c", data, str(written)], 1)
    service.when(number, lambda _: written.exists())
    assert service.segments() == [f"job-{number}"]
    os.kill(service.agent_pid(), signal.SIGKILL)
    assert service.wait(number).state == "NODE_FAIL"
    wait_until(lambda: not service.segments())


def test_no_shared_memory_is_left_if_the_agent_is_killed_while_the_service_stops(service):
    assert service.wait(service.submit(RANKS, 2)).state == "COMPLETED"
    agent = service.agent_pid()
    os.kill(agent, signal.SIGSTOP)  # it does not read the order to end
    stopping = threading.Thread(
        target=background.stop, args=(service.directory,), kwargs={"kill": True}
    )
    stopping.start()
    wait_until(lambda: "Stop kill=True: by" in service.place.log("serve").read_text())
    assert stopping.is_alive()
    assert service.place.memory.exists()
    os.kill(agent, signal.SIGKILL)
    stopping.join(LIMIT_S)
    assert not stopping.is_alive()
    assert not service.place.memory.exists()
    assert not service.processes()


def test_a_lost_node_ends_only_its_own_jobs(served, tmp_path):
    config = tmp_path / "nodes.yaml"
    config.write_text("nodes:\n  - {name: a, processors: 4}\n  - {name: b, processors: 4}\n")
    served.start("--config", str(config))
    here = served.submit(WAITS, 3)
    there = served.submit(["sleep", "600"], 4)  # on processors 3-6: of both nodes
    other = served.submit(["sleep", "600"], 1)
    for number in (here, there, other):
        served.until(number, "RUNNING")
    assert [served.job(n).nodes for n in (here, there, other)] == ["a", "a,b", "b"]
    os.kill(served.agent_pid("b"), signal.SIGKILL)
    assert served.wait(there).state == "NODE_FAIL"
    assert served.wait(other).state == "NODE_FAIL"
    assert served.job(here).state == "RUNNING"
    assert served.wait(served.submit(RANKS, 5)).state == "COMPLETED"
    assert served.finish(here).state == "COMPLETED"
    assert served.free() == 8


def test_only_one_service_in_a_directory(service):
    with pytest.raises(ReshapeError, match=r"a service runs in .* already"):
        background.start(service.directory, service.options)
    assert service.free() == 8  # the first one is not disturbed


def test_a_message_with_a_wrong_token_is_refused(service):
    number = service.submit(["sleep", "600"], 1)
    with pytest.raises(ReshapeError, match=f"not from a process of job {number}"):
        service.ask(m.Facts(job=number, token="guessed", facts={"verified": True}))
    assert service.job(number).facts == {}


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        ([b"reshape/99", b""], "the peer speaks 'reshape/99', this side speaks 'reshape/2'"),
        ([b"reshape/2", b"\xc1"], "malformed message"),
        ([b"reshape/2", b"\x81\xa4type\xa4Nope"], "malformed message"),
        ([b"hello"], "not a message of this protocol"),
    ],
)
def test_a_malformed_message_gets_one_clear_answer(service, frames, words):
    context = zmq.Context()
    socket = context.socket(zmq.DEALER)
    socket.connect(service.place.endpoint)
    socket.send_multipart(frames)
    assert socket.poll(round(1000 * LIMIT_S))
    answer = decode(socket.recv_multipart())
    assert isinstance(answer, m.Failure)
    assert words in answer.message
    socket.close(linger=0)
    context.term()
    with ServiceConnection(service.place.endpoint) as client:
        assert isinstance(client.request(m.ServerInfo(), LIMIT_S), m.Info)


def test_stopping_refuses_while_jobs_run(service):
    number = service.submit(["sleep", "600"], 1)
    service.until(number, "RUNNING")
    with pytest.raises(ReshapeError, match="1 job queued or running"):
        service.ask(m.Stop())
    background.stop(service.directory, kill=True)
    assert not service.processes()


def test_the_folder_of_a_socket_with_a_long_path_is_removed(
    new_served: Any, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    long = tmp_path / ("long" * 20)
    long.mkdir()
    served = new_served(long / "service")
    for _ in range(2):  # the second service draws a new name
        served.start("--processors", "1")
        (folder,) = temporary.glob("reshape-*")
        assert served.endpoint == f"ipc://{folder}/socket"
        background.stop(served.directory, kill=False)
        served.process.wait(LIMIT_S)
        assert list(temporary.glob("reshape-*")) == []
