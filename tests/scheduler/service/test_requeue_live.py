"""Jobs that are queued again after a death, and restart from their checkpoints."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner
from paths import SUPPORT
from told import ENDLESS, WAITS
from waiting import wait_until

from reshape.__main__ import main
from scheduler.protocol import messages as m

PROGRAM = [sys.executable, str(SUPPORT / "resizable.py")]
#: It iterates until the test tells it to end.
ENDLESS_PROGRAM = [*PROGRAM, str(ENDLESS), "0.05"]
SUICIDE = ["python", "-c", "import os; os.kill(os.getpid(), 9)"]


@pytest.fixture
def checkpointed(served: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Directory in which the submitted programs write a checkpoint in each tenth iteration."""
    path = served.work / "checkpoints"
    monkeypatch.setenv("CHECKPOINT", f"10:{path}")
    return Path(path)


def kill_rank(served: Any, job: int) -> None:
    """Kill the last rank of the oldest group of a job within an iteration."""

    def ranks() -> list[tuple[int, int]]:
        found = []
        for process in served.processes(agents=False):
            with contextlib.suppress(psutil.Error):
                of = process.environ()
                if process.name().startswith("python") and of.get("RESHAPE_JOB") == str(job):
                    found.append((int(of["RESHAPE_GROUP"]), -process.pid))
        return found

    os.kill(-min(wait_until(ranks))[1], signal.SIGKILL)


def has_checkpoint(job: m.JobInfo) -> bool:
    return int(job.facts.get("checkpoint_iteration", 0)) >= 10


def assert_completed_from_checkpoint(served: Any, job: m.JobInfo, deaths: int = 1) -> None:
    """The result is right, and the first iterations were not computed again."""
    assert job.state == "COMPLETED", f"{job}\n{served.output(job.job)}"
    assert job.facts["verified"] is True
    restarted_from = str(job.facts["restarted_from"])
    assert int(restarted_from.rpartition("-")[2]) >= 10
    assert job.requeues == deaths
    assert job.reason.startswith("requeued: ")
    story = served.story(job.job)
    assert story.count("goes back to the queue: ") == deaths
    assert story.count("starts on processors") == deaths + 1
    assert "restarts from its checkpoint of iteration" in story


def test_a_job_with_a_killed_rank_restarts_from_its_checkpoint(
    served: Any, checkpointed: Path
) -> None:
    """The job has been resized when it dies; it starts again on the processors it requested."""
    served.start("--processors", "4", "--scenario", "fcfs-pr")
    number = served.submit(ENDLESS_PROGRAM, 2, max_processors=4, requeue=True)
    served.when(number, lambda job: has_checkpoint(job) and job.resize_count > 0)
    while served.job(number).requeues == 0:  # within a resize it restarts from its restart point
        restarts = served.until(number, "RUNNING").restarts
        kill_rank(served, number)
        served.when(number, lambda job, n=restarts: job.requeues > 0 or job.restarts > n)
    job = served.finish(number)
    assert_completed_from_checkpoint(served, job)
    assert sum(seconds for _, seconds in job.processor_seconds_by_size) == pytest.approx(
        job.processor_seconds
    )
    assert job.started_at > job.sizes[0][0]  # of the last start
    assert [size for _, size in job.sizes].count(0) == 1  # while it was queued again
    wait_until(lambda: served.free() == 4)
    assert checkpointed.is_dir()
    listing = CliRunner().invoke(main, ["history", "--dir", str(served.directory)])
    assert "requeued: group" in listing.output
    shown = CliRunner().invoke(main, ["info", str(number), "--dir", str(served.directory)])
    assert "requeued 1 time" in shown.output


def test_a_job_without_checkpoints_begins_anew(served: Any, tmp_path: Path) -> None:
    served.start("--processors", "2", "--scenario", "easy")
    once = f"test -e {tmp_path}/mark || {{ touch {tmp_path}/mark; kill -9 $$; }}; echo survived"
    number = served.submit(["sh", "-c", once], requeue=True)
    job = served.wait(number)
    assert (job.state, job.requeues) == ("COMPLETED", 1)
    assert "it starts from the beginning, as it has no checkpoint" in job.reason
    assert served.output(number).count("survived") == 1


def test_the_number_of_attempts_is_limited(served: Any) -> None:
    served.start("--processors", "2", "--scenario", "easy")
    number = served.submit(SUICIDE, requeue=True)
    job = served.wait(number)
    assert (job.state, job.requeues) == ("FAILED", 3)
    assert job.reason.endswith("already requeued 3 times of 3 without a new checkpoint")
    for argv, more in (
        (SUICIDE, {}),
        (["python", "-c", "raise SystemExit(11)"], {"requeue": True}),
    ):
        job = served.wait(served.submit(argv, **more))
        assert (job.state, job.requeues) == ("FAILED", 0)


@pytest.mark.long
def test_a_new_checkpoint_gives_new_attempts(
    served: Any, checkpointed: Path, tmp_path: Path
) -> None:
    """The job dies five times, with new checkpoints between."""
    served.start("--processors", "2", "--scenario", "easy")
    number = served.submit(ENDLESS_PROGRAM, 2, requeue=True)
    for death in range(1, 6):
        reached = 10 * death

        def has_reached(job: m.JobInfo, reached: int = reached) -> bool:
            return int(job.facts.get("checkpoint_iteration", 0)) >= reached

        served.when(number, has_reached)
        kill_rank(served, number)
        served.when(number, lambda job, death=death: job.requeues == death)
    assert_completed_from_checkpoint(served, served.finish(number), deaths=5)


def test_a_job_of_a_killed_agent_restarts_from_its_checkpoint(
    served: Any, checkpointed: Path
) -> None:
    served.start("--processors", "2", "--scenario", "easy")
    number = served.submit(ENDLESS_PROGRAM, 2, requeue=True)
    served.when(number, has_checkpoint)
    os.kill(served.agent_pid(), signal.SIGKILL)
    served.when(number, lambda job: "restarted_from" in job.facts)
    assert_completed_from_checkpoint(served, served.finish(number))


def test_a_job_that_waits_to_restart_survives_its_service(served: Any, checkpointed: Path) -> None:
    """Without an agent the job has to wait; the next service starts it once."""
    served.start("--processors", "2", "--scenario", "easy")
    number = served.submit(ENDLESS_PROGRAM, 2, requeue=True)
    served.when(number, has_checkpoint)
    os.kill(served.agent_pid(), signal.SIGKILL)
    waiting = served.until(number, "PENDING")
    assert "requeued: node local is gone" in waiting.reason
    served.kill()
    served.start()
    served.when(number, lambda job: "restarted_from" in job.facts)
    assert_completed_from_checkpoint(served, served.finish(number))


def submitted(served: Any, *options: str, program: list[str]) -> int:
    argv = ["submit", "--dir", str(served.directory), "--json", *options, "--", *program]
    directory = os.getcwd()
    os.chdir(served.work)
    try:
        done = CliRunner().invoke(main, argv)
    finally:
        os.chdir(directory)
    assert done.exit_code == 0, done.output
    return int(done.output.partition(":")[2].strip(" }\n"))


def test_a_later_submission_restarts_from_the_checkpoints(
    served: Any, checkpointed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.start("--processors", "4", "--scenario", "easy")
    first = submitted(served, "-n", "2", program=[*PROGRAM, "20", "0"])
    assert served.wait(first).facts["verified"] is True
    # Another job may not use the directory, and is not queued again for that.
    other = submitted(served, "-n", "3", "--requeue", program=[*PROGRAM, "30", "0"])
    job = served.wait(other)
    assert (job.state, job.exit_code, job.requeues) == ("FAILED", 1, 0)
    assert f"{checkpointed} has the checkpoints of another run, job {first} of" in (
        served.output(other)
    )
    source = ("--restart-from", "checkpoints")
    later = submitted(served, "-n", "3", *source, program=[*PROGRAM, "30", "0"])
    job = served.wait(later)
    assert job.facts["verified"] is True, served.output(later)
    assert job.facts["restarted_from"] == f"{checkpointed}/iteration-20"
    assert "sizes 2 3 right" in served.output(later)


def test_a_restart_from_nothing_is_refused_at_once(served: Any, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    served.start("--processors", "2")
    for name, why in (("nothing", "there is no directory"), ("empty", "no complete checkpoint")):
        options = [
            "--dir",
            str(served.directory),
            "-n",
            "1",
            "--restart-from",
            str(tmp_path / name),
        ]
        done = CliRunner().invoke(main, ["submit", *options, "--", "true"])
        assert done.exit_code == 1
        assert why in done.output
        assert str(tmp_path / name) in done.output


def test_a_requeued_job_keeps_its_place_in_the_queue(served: Any) -> None:
    served.start("--processors", "1", "--scenario", "fcfs")
    mark = served.work / "mark"
    script = f"{WAITS[-1]}; test -e {mark} || {{ touch {mark}; kill -9 $$; }}"
    first = served.submit(["sh", "-c", script], requeue=True)
    second = served.submit(["true"])
    served.let_end(first)
    ended = served.wait(second)
    job = served.job(first)
    assert (job.state, job.requeues) == ("COMPLETED", 1)
    assert job.ended_at <= ended.started_at
