"""Redirection under a live service: a job is ended and starts again in the reserved group."""

from __future__ import annotations

import pytest
from waiting import wait_until

from reshape.errors import ReshapeError

SETTINGS = """
processors: 4
scenario: easy
verify: true
parameters:
  redirection.theta: 0
  redirection.processors: 2
"""
#: It sleeps in its first start and ends in its second; both write a line to the output.
TWO_LIVES = """
import pathlib, time
from mpi4py import MPI
comm = MPI.COMM_WORLD
mark = pathlib.Path("lived")
again = comm.bcast(mark.exists())
if comm.rank == 0:
    mark.touch()  # before the line, which may end this start
    print(f"life {1 + again} on {comm.size}", flush=True)
if not again:
    time.sleep(600)
"""
#: It counts in registered data until the file "go" exists.
COUNTING = """
import pathlib, time, reshape
with reshape.application() as app:
    A = app.block_cyclic("A", (64, 64), (8, 8))
    if app.is_fresh_start:
        A.local[...] = 0
    for step in app.iterations(100000):
        A.local[...] += 1
        time.sleep(0.05)
        if app.comm.bcast(pathlib.Path("go").exists()):
            break
    app.report(right=bool((A.local == step + 1).all()))
"""


@pytest.fixture
def redirecting(served, tmp_path):
    """A service of two processors, and two for redirected jobs."""
    config = tmp_path / "service.yaml"
    config.write_text(SETTINGS)
    served.start("--config", str(config))
    return served


def test_two_lives_of_a_job(redirecting):
    long = redirecting.submit(["python", "-c", TWO_LIVES], 2)
    redirecting.when(long, lambda job: "life 1 on 2" in redirecting.output(long))
    other = redirecting.submit(["true"], 2)
    job = redirecting.wait(long)
    assert (job.state, job.exit_code, job.signal) == ("COMPLETED", 0, 0)
    assert redirecting.output(long).split("\n")[0] == "life 1 on 2"
    assert "life 2 on 2" in redirecting.output(long), "it is appended"
    assert [part for _, part in job.allocation] == ["0-1", "", "2-3", ""]
    assert job.submitted_at < job.redirected_at <= job.started_at
    assert job.redirected_at - job.submitted_at < job.walltime_s
    assert redirecting.wait(other).state == "COMPLETED"
    assert redirecting.job(other).allocation[0][1] == "0-1"
    story = redirecting.story(long)
    lives = [
        "starts on processors 0-1",
        "is to be ended: 1 job came and had to wait while it ran, more than 0 [redirection]",
        "ended with exit code",
        "moves to the redirection group and starts from the beginning: 1 job came",
        "starts on processors 2-3",
        "ended with exit code 0:0",
    ]
    places = [story.find(words) for words in lives]
    assert -1 not in places
    assert places[:5] == sorted(places[:5])
    assert redirecting.free() == 4


def test_a_second_life_survives_the_service_and_has_none_of_the_first_ones_data(redirecting):
    long = redirecting.submit(["python", "-c", COUNTING], 2, max_processors=4)
    redirecting.when(long, lambda job: job.iteration >= 2)
    assert redirecting.segments()
    other = redirecting.submit(["true"], 2)
    redirecting.when(long, lambda job: job.redirected_at is not None and job.iteration >= 2)
    redirecting.kill()
    redirecting.start()
    third = redirecting.submit(["true"], 2)
    (redirecting.work / "go").touch()
    job = redirecting.wait(long)
    assert job.state == "COMPLETED", redirecting.output(long)
    assert (job.facts["right"], job.restarts) == (True, 0)
    assert [part for _, part in job.allocation] == ["0-1", "", "2-3", ""]
    for number in (other, third):
        job = redirecting.wait(number)
        assert job.state == "COMPLETED", redirecting.output(number)
    # The agent removes them after the end of the job.
    wait_until(lambda: not redirecting.segments())


def test_the_redirection_group_cannot_change_while_jobs_are_unfinished(redirecting, tmp_path):
    with pytest.raises(ReshapeError, match="2 of them are kept for redirected jobs"):
        redirecting.submit(["true"], 3)
    number = redirecting.submit(["sleep", "600"], 2)
    redirecting.until(number, "RUNNING")
    redirecting.kill()
    options = redirecting.options
    with pytest.raises(ReshapeError, match=f"would now give 1, but jobs {number} have not ended"):
        redirecting.start(*options, "--set", "redirection.processors=1")
    redirecting.start(*options)
    assert redirecting.job(number).state == "RUNNING"
