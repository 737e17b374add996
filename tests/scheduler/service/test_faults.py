"""Deaths, stalls and damage that a live service must survive without losing a job."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
import zmq
from paths import SUPPORT
from stopped import stopped
from told import WAITS
from waiting import LIMIT_S, wait_until

from reshape.errors import ReshapeError, ServiceUnavailable
from reshape.topology import Topology
from reshape.wire.codec import PROTOCOL
from scheduler.protocol import messages as m
from scheduler.protocol.messages import decode

#: Sizes of which each step is a single group.
BY_TWO = Topology.parse("arbitrary:step=2")
FAULTY = ["python", str(SUPPORT / "faulty.py")]
SCRIPTED = """
processors: 8
scenario: scripted:Scripted
verify: true
deadlines: {start_s: 200, ready_s: 200, join_s: 200}
"""


#: Seconds after which a silent node is lost, where a test waits for this. With nine processes for
#: each core an agent was silent for two.
LOST_S = 6.0
#: Runs `reshape serve` with a decision that fails the first time a job is cancelled.
FAILING_ONCE = """
import runpy, sys
from scheduler.model.events import JobCancelled
from scheduler.service.driver import Driver

decide, failures = Driver.decide, []

def failing(self, events):
    if not failures and any(isinstance(event, JobCancelled) for event in events):
        failures.append(1)
        raise RuntimeError("injected")
    return decide(self, events)

Driver.decide = failing
sys.argv[0] = "reshape"
runpy.run_module("reshape", run_name="__main__")
"""


@pytest.fixture
def patience(served: Any, tmp_path: Path) -> Any:
    """Start a service that gives a silent agent this many seconds."""

    def start(node_lost_s: float) -> None:
        config = tmp_path / "service.yaml"
        config.write_text(f"processors: 8\ndeadlines: {{node_lost_s: {node_lost_s}}}\n")
        served.start("--config", str(config))

    return start


def copy_journal(served: Any, copy: Path) -> None:
    """Copy the journal of a running service as it is now."""
    with (
        contextlib.closing(sqlite3.connect(served.place.journal)) as journal,
        contextlib.closing(sqlite3.connect(copy)) as target,
    ):
        journal.backup(target)


def log_of(served: Any) -> str:
    return served.place.log("serve").read_text()


def answers(served: Any) -> bool:
    """Whether the service answers."""
    try:
        served.ask(m.ServerInfo(), 1.0)
    except ServiceUnavailable:
        return False
    return True


def ranks_of(served: Any, group: int) -> list[psutil.Process]:
    """Return the processes of a group that run Python, without the parents of its programs."""
    ranks = []
    for process in served.processes(agents=False):
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            in_group = process.environ().get("RESHAPE_GROUP") == str(group)
            if in_group and process.name().startswith("python") and not process.children():
                ranks.append(process)
    return ranks


@pytest.mark.parametrize("place", ["connect", pytest.param("introduce", marks=pytest.mark.long)])
def test_service_and_joining_group_die_within_the_join(
    served: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str
) -> None:
    """The job waits for a group that ended while there was no service."""
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT), prepend=":")
    config = tmp_path / "service.yaml"
    config.write_text(SCRIPTED)
    served.start("--config", str(config), "--set", "resizing.steps='4'")
    number = served.submit(
        [*FAULTY, f"hang:{place}", "joining"], 2, max_processors=4, topology=BY_TWO
    )
    wait_until((served.work / f"struck-{number}").exists)
    served.kill()
    for rank in ranks_of(served, 2):
        with contextlib.suppress(psutil.NoSuchProcess):  # hydra ends it when another one is killed
            rank.kill()
    wait_until(lambda: not ranks_of(served, 2))
    served.start()
    served.when(number, lambda job: job.resizes[0].outcome != "under way")
    job = served.finish(number)
    assert job.state == "COMPLETED", served.output(number) + served.story(number)
    assert job.facts["verified"] is True
    assert job.restarts <= 1
    assert served.free() == 8


def test_a_stall_of_the_service_loses_no_node(served: Any, patience: Any) -> None:
    patience(LOST_S)
    number = served.submit(WAITS, 4)
    served.until(number, "RUNNING")
    with stopped(served.process.pid):
        time.sleep(LOST_S + 1.0)
    assert served.job(number).state == "RUNNING"
    assert served.finish(number).state == "COMPLETED"
    assert "node lost" not in log_of(served)


def test_what_a_job_reaches_while_its_agent_is_silent_counts(served: Any, patience: Any) -> None:
    patience(LIMIT_S)
    number = served.submit(WAITS, 2)
    served.until(number, "RUNNING")
    with stopped(served.agent_pid()):
        served.let_end(number)
        wait_until(lambda: not served.processes(agents=False))
        assert served.job(number).state == "RUNNING"
    job = served.wait(number)
    assert (job.state, job.exit_code) == ("COMPLETED", 0)


def test_an_agent_that_returns_to_a_lost_node_ends_the_jobs_it_lost(
    served: Any, patience: Any
) -> None:
    patience(LOST_S)
    number = served.submit(["sleep", "600"], 8)
    served.until(number, "RUNNING")
    agent = served.agent_pid()
    with stopped(agent):
        assert served.wait(number).state == "NODE_FAIL"
        after = served.submit(["true"], 8)
        assert served.free() == 0
    assert served.wait(after).state == "COMPLETED"
    assert served.agent_pid() == agent
    assert served.free() == 8
    wait_until(lambda: not served.processes(agents=False))


@pytest.mark.parametrize("first", ["agent", "service"])
def test_the_loss_of_an_agent_has_one_final_state_and_reason(served: Any, first: str) -> None:
    served.start("--processors", "4")
    number = served.submit(["sleep", "600"], 2)
    served.until(number, "RUNNING")
    agent = served.agent_pid()
    if first == "agent":
        os.kill(agent, signal.SIGKILL)
        served.wait(number)
        served.kill()
    else:
        served.kill()
        os.kill(agent, signal.SIGKILL)
    served.start()
    job = served.wait(number)
    assert (job.state, job.reason) == ("NODE_FAIL", "node local is gone")


def restart_with(served: Any, journal: Path) -> None:
    """Kill the service, and start it with an earlier copy of its journal."""
    served.kill()
    for path in served.directory.glob("journal.db*"):
        path.unlink()
    journal.rename(served.place.journal)
    served.start(*served.options, "--accept-loss")


def token_of(served: Any, number: int) -> str:
    with contextlib.closing(sqlite3.connect(served.place.journal)) as journal:
        ((token,),) = journal.execute("SELECT token FROM jobs WHERE job=?", (number,))
    return str(token)


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        pytest.param(float("inf"), marks=pytest.mark.long),
        pytest.param(-1.0, marks=pytest.mark.long),
    ],
)
def test_a_resize_point_with_an_impossible_time_is_refused(served: Any, value: float) -> None:
    served.start("--processors", "4")
    number = served.submit(["sleep", "600"], 1, max_processors=2)
    served.until(number, "RUNNING")
    point = m.AtResizePoint(
        job=number,
        token=token_of(served, number),
        epoch=0,
        size=1,
        registered_bytes=0,
        iteration=1,
        iteration_s=value,
    )
    with pytest.raises(ReshapeError, match=r"iteration_s|finite"):
        served.ask(point)
    served.kill()
    served.start()
    assert served.job(number).state == "RUNNING"


def test_damaged_records_do_not_end_the_service(served: Any) -> None:
    served.start("--processors", "4")
    number = served.submit(["true"], 1)
    assert served.wait(number).state == "COMPLETED"
    running = served.submit(["sleep", "600"], 1)
    served.until(running, "RUNNING")
    served.kill()
    with contextlib.closing(sqlite3.connect(served.place.journal)) as journal, journal:
        journal.execute(
            "UPDATE events SET event=CAST('{' AS BLOB) WHERE job=2 AND kind='JobStarted'"
        )
        journal.execute("INSERT INTO facts VALUES (2, CAST('{\"residual\":null}' AS BLOB))")
        journal.execute("UPDATE jobs SET submission=CAST('' AS BLOB) WHERE job=2")
    with pytest.raises(ReshapeError, match="the submission of job 2 was left out"):
        served.start()
    served.start(*served.options, "--accept-loss")
    assert served.job(running).state == "RUNNING"
    assert served.job(running).facts == {}
    assert served.job(number).state == "COMPLETED"
    info = subprocess.run(
        [sys.executable, "-m", "reshape", "info", "--dir", str(served.directory)],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=True,
    )
    assert "Unreadable:" in info.stdout
    assert "the submission of job 2 was left out" in info.stdout
    assert "journal record unreadable" in log_of(served)


def test_the_service_recovers_from_an_unexpected_exception(served: Any) -> None:
    served.start("--processors", "4")
    number = served.submit(["sleep", "600"], 2)
    served.until(number, "RUNNING")
    served.kill()
    command = ["-c", FAILING_ONCE, "serve", "--dir", str(served.directory), "--processors", "4"]
    with served.place.log("serve").open("ab") as log:
        served.process = subprocess.Popen([sys.executable, *command], stdout=log, stderr=log)
    wait_until(lambda: answers(served))
    with pytest.raises(ServiceUnavailable):
        served.ask(m.ChangeJobs.one(number, m.CancelJob()), 5.0)
    assert served.job(number).state == "RUNNING"
    served.ask(m.ChangeJobs.one(number, m.CancelJob()))
    assert served.wait(number).state == "CANCELLED"
    assert "recovers from its journal" in log_of(served)
    assert served.free() == 4


def test_a_flood_of_malformed_messages_is_refused_and_logged_at_a_bounded_rate(
    served: Any,
) -> None:
    served.start("--processors", "4")
    with zmq.Context() as context:
        socket = context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(served.place.endpoint)
        for _ in range(500):
            socket.send_multipart([PROTOCOL, msgspec.msgpack.encode({"type": "Submit"})])
        for _ in range(500):
            assert socket.poll(round(1000 * LIMIT_S))
            assert isinstance(decode(socket.recv_multipart()), m.Failure)
        socket.close()
    assert served.free() == 4
    assert log_of(served).count("refused a message") < 100


def test_a_huge_maximum_does_not_block_the_service(served: Any) -> None:
    served.start("--processors", "4")
    words = ["submit", "-n", "1", "--max", "1000000000", "--topology", "arbitrary:divides=12"]
    words.append("--wait")
    done = subprocess.run(
        [sys.executable, "-m", "reshape", *words, "--dir", str(served.directory), "--", "true"],
        cwd=served.work,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert served.job(1).max_processors == 4


def test_a_job_that_dies_with_its_agent_within_a_resize_restarts(
    served: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The next agent of the node reports the restart point; a job without one has failed."""
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT), prepend=":")
    config = tmp_path / "service.yaml"
    config.write_text(SCRIPTED)
    served.start("--config", str(config), "--set", "resizing.steps='4'")
    number = served.submit([*FAULTY, "hang:relay", "job"], 2, max_processors=4, topology=BY_TWO)
    other = served.submit(["sleep", "600"], 1)
    wait_until((served.work / f"struck-{number}").exists)
    os.kill(served.agent_pid(), signal.SIGKILL)
    assert served.wait(other).state == "NODE_FAIL"
    served.when(number, lambda job: job.restarts == 1)
    job = served.finish(number)
    assert (job.state, job.restarts) == ("COMPLETED", 1), served.output(number)
    assert job.facts["verified"] is True
    assert served.free() == 8


def test_the_folder_of_a_job_that_the_journal_does_not_have_is_removed(served: Any) -> None:
    served.start("--processors", "4")
    served.place.make_job_folder(77)
    wait_until(lambda: not served.segments())


@pytest.fixture
def ahead(served: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[int, Path]:
    """A job that has expanded, and a copy of the journal from before its expansion."""
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT), prepend=":")
    config, earlier, gate = tmp_path / "service.yaml", tmp_path / "earlier.db", tmp_path / "step-"
    config.write_text(SCRIPTED)
    steps = ("--set", "resizing.steps='4'", "--set", f"resizing.gate={gate}")
    served.start("--config", str(config), *steps)
    number = served.submit([*FAULTY, "none", "job"], 2, max_processors=4, topology=BY_TWO)
    served.until(number, "RUNNING")
    copy_journal(served, earlier)
    Path(f"{gate}1").touch()
    served.when(number, lambda job: job.size == 4)
    return number, earlier


def test_a_job_that_is_ahead_of_its_journal_is_ended(served: Any, ahead: tuple[int, Path]) -> None:
    """A damaged journal may have lost its latest transactions."""
    number, earlier = ahead
    wait_until(lambda: len(ranks_of(served, 2)) == 2)
    restart_with(served, earlier)
    job = served.wait(number)
    assert job.state == "FAILED"
    assert "a part of the journal was lost" in job.reason
    assert served.free() == 8


def test_a_job_that_is_ahead_of_its_journal_is_not_resized_before_its_agent_reports(
    served: Any, ahead: tuple[int, Path]
) -> None:
    """The group of the lost resize has the number that the next group would get."""
    number, earlier = ahead
    start = threading.Thread(target=restart_with, args=(served, earlier))
    with stopped(served.agent_pid()):
        start.start()
        wait_until(lambda: "which the journal lacks" in log_of(served))
    start.join()
    job = served.wait(number)
    assert (job.state, job.resizes) == ("FAILED", [])
    assert "the journal does not have" in job.reason
    assert served.free() == 8


def test_a_job_does_not_run_again_if_the_journal_has_lost_its_start_and_end(
    served: Any, tmp_path: Path
) -> None:
    served.start("--processors", "4")
    agent = served.agent_pid()
    runs, earlier = tmp_path / "runs", tmp_path / "earlier.db"
    with stopped(agent):  # it does not start the job before the copy
        number = served.submit(["sh", "-c", f"echo run >> {runs}; exit 3"], 1)
        served.until(number, "STARTING")
        copy_journal(served, earlier)
    assert served.wait(number).exit_code == 3
    wait_until(lambda: not served.segments())  # the agent has dropped the job
    restart_with(served, earlier)
    job = served.wait(number)
    assert (job.state, job.exit_code) == ("FAILED", 3)
    assert runs.read_text() == "run\n"
    assert served.free() == 4


@pytest.mark.parametrize("exit_code", [pytest.param(0, marks=pytest.mark.long), 3])
def test_the_end_of_a_job_is_known_if_the_journal_has_lost_it(
    served: Any, tmp_path: Path, exit_code: int
) -> None:
    served.start("--processors", "4")
    earlier = tmp_path / "earlier.db"
    program = ["sh", "-c", f"{WAITS[-1]}; exit {exit_code}"]
    number = served.submit(program, 2, requeue=True)
    served.until(number, "RUNNING")
    copy_journal(served, earlier)
    assert served.finish(number).exit_code == exit_code
    wait_until(lambda: not served.segments())  # the agent has dropped the job
    restart_with(served, earlier)
    job = served.wait(number)
    assert (job.state, job.exit_code) == ("FAILED" if exit_code else "COMPLETED", exit_code)
    assert served.free() == 4


@pytest.mark.parametrize("steps", [pytest.param("4", marks=pytest.mark.long), "4 2/2"])
def test_the_end_of_a_resized_job_is_known_if_the_journal_has_lost_it(
    served: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, steps: str
) -> None:
    """The group that has joined may leave after the copy."""
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT), prepend=":")
    config, earlier, gate = tmp_path / "service.yaml", tmp_path / "earlier.db", tmp_path / "step-"
    config.write_text(SCRIPTED)
    gated = ("--set", f"resizing.steps='{steps}'", "--set", f"resizing.gate={gate}")
    served.start("--config", str(config), *gated)
    number = served.submit([*FAULTY, "none", "job"], 2, max_processors=4, topology=BY_TWO)
    Path(f"{gate}1").touch()
    served.when(number, lambda job: job.size == 4)
    copy_journal(served, earlier)
    Path(f"{gate}2").touch()
    served.when(number, lambda job: len(job.sizes) == 1 + len(steps.split()))
    job = served.finish(number)
    assert (job.state, len(job.resizes)) == ("COMPLETED", len(steps.split()))
    wait_until(lambda: not served.segments())
    restart_with(served, earlier)
    assert served.wait(number).state == "COMPLETED"
    assert served.free() == 8


def test_a_job_has_failed_if_nobody_knows_its_end(served: Any, tmp_path: Path) -> None:
    served.start("--processors", "4")
    earlier = tmp_path / "earlier.db"
    number = served.submit(WAITS, 1)
    served.until(number, "RUNNING")
    copy_journal(served, earlier)
    assert served.finish(number).state == "COMPLETED"
    wait_until(lambda: not served.segments())  # the agent has dropped the job
    with contextlib.closing(sqlite3.connect(earlier)) as copy, copy:
        copy.execute("UPDATE jobs SET token='another' WHERE job=?", (number,))
    restart_with(served, earlier)
    job = served.wait(number)
    assert (job.state, job.signal) == ("FAILED", signal.SIGKILL)
    assert "its agent does not know how" in job.reason
