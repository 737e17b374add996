"""Jobs that expand and contract under the live service, also when processes are killed."""

from __future__ import annotations

import signal
import time

import psutil
import pytest
from paths import SUPPORT

from reshape.topology import Topology
from reshape.wire import messages as m
from scheduler.model.events import ResizePoint
from scheduler.replay.journal_reader import reading

HERE = SUPPORT
FAULTY = ["python", str(HERE / "faulty.py")]
PACED = ["python", str(HERE / "paced.py")]

DEADLINES = """
processors: 8
scenario: scripted:Scripted
verify: true
deadlines:
  start_s: 6
  ready_s: 6
  join_s: 4
"""


@pytest.fixture
def scripted(served, monkeypatch, tmp_path):
    """A service whose resizes follow a script; call it with the steps."""
    monkeypatch.setenv("PYTHONPATH", str(HERE), prepend=":")
    config = tmp_path / "service.yaml"
    config.write_text(DEADLINES)

    def start(steps: str, hold: int = 1) -> None:
        served.start(
            *("--config", str(config)),
            *("--set", f"resizing.steps='{steps}'", "--set", f"resizing.hold={hold}"),
        )

    return start


def sizes(job: m.JobInfo) -> list[int]:
    return [size for _, size in job.sizes]


def test_a_job_contracts_to_its_last_group(served, scripted):
    scripted("4 6 2/1+2")
    number = served.submit([*FAULTY, "none", "job", "36"], 2, max_processors=8)
    served.when(number, lambda job: len(job.sizes) == 3)
    before = {process.pid for process in served.processes(agents=False)}
    job = served.when(number, lambda job: len(job.sizes) == 4)
    assert sizes(job) == [2, 4, 6, 2]
    assert job.processors == "4-5"  # those of the last group; the first two are gone
    left = {process.pid for process in served.processes(agents=False)}
    assert len(before - left) == 2 * (2 + 2 * 2)  # mpiexec, its proxy, two ranks and their parents
    assert served.free() == 6
    job = served.wait(number)
    assert (job.state, job.facts) == ("COMPLETED", {"verified": True, "size": 2})
    assert [part for _, part in job.allocation] == ["0-1", "0-3", "0-5", "4-5", ""]


def test_a_restarted_job_contracts_by_the_group_that_it_began_with(served, scripted):
    """A rank dies while the job of two groups expands; after the restart its first group leaves."""
    scripted("4 6 2/4")
    number = served.submit([*FAULTY, "relay", "joining", "16", "4"], 2, max_processors=8)
    job = served.wait(number)
    assert (job.state, job.restarts) == ("COMPLETED", 1), served.output(number)
    assert job.facts == {"verified": True, "size": 2}
    assert sizes(job) == [2, 4, 2]
    assert [part for _, part in job.allocation] == ["0-1", "0-3", "0-5", "0-3", "2-3", ""]


def test_an_interior_group_leaves(served, scripted):
    scripted("3 5 7 4/2+3 2/1 6")
    job = served.wait(served.submit([*FAULTY, "none", "job", "48"], 2, max_processors=8))
    assert job.state == "COMPLETED", served.output(job.job)
    assert sizes(job)[:4] == [2, 3, 5, 7]
    assert job.facts["verified"] is True


@pytest.mark.parametrize("program", ["apps.lu", "apps.jacobi", "apps.synthetic"])
def test_every_application_is_right_at_every_size(served, scripted, program):
    scripted("4 6 2/1+2 4")
    arguments = {
        "apps.lu": ["--n", "384", "--block", "16", "--repeat", "8"],  # 24 iterations each
        "apps.jacobi": ["--n", "256", "--iterations", "190"],
        "apps.synthetic": ["--iterations", "190", "--seconds", "0.01", "--mib", "4"],
    }[program]
    number = served.submit([*PACED, "0.05", program, *arguments], 2, max_processors=8)
    job = served.wait(number, 100)
    assert job.state == "COMPLETED", served.output(number)
    assert job.facts["verified"] is True
    assert sizes(job)[:3] == [2, 4, 6]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("start", "the new group ended (exit code 7:0)"),
        ("hang:start", "no group came up within 6 s"),
        ("await_port", "the new group ended (exit code 0:9)"),
    ],
)
def test_a_group_that_fails_before_the_join_costs_nothing(served, scripted, fault, words):
    scripted("4 4 4")
    number = served.submit([*FAULTY, fault, "joining", "40"], 2, max_processors=4)
    job = served.when(number, lambda job: bool(job.resizes) and "rolled" in job.resizes[0].outcome)
    assert words in job.resizes[0].outcome
    job = served.wait(number)
    assert job.state == "COMPLETED", served.output(number)
    assert (job.restarts, job.facts["verified"]) == (0, True)
    assert served.free() == 8


def test_a_group_that_waits_too_long_is_released(served, scripted):
    """The job is in one long iteration: the processors of the new group are released."""
    scripted("4")
    program = (
        "import time, reshape\n"
        "with reshape.application() as app:\n"
        "    for step in app.iterations(3):\n"
        "        time.sleep(0.2 if step == 0 else 12 if step == 1 else 0)\n"
    )
    number = served.submit(["python", "-c", program], 2, max_processors=4)
    job = served.when(number, lambda job: bool(job.resizes) and "rolled" in job.resizes[0].outcome)
    assert "the job reached no resize point within 6 s" in job.resizes[0].outcome
    served.when(number, lambda job: served.free() == 6)
    assert served.wait(number).state == "COMPLETED"


@pytest.mark.parametrize(
    ("fault", "side"),
    [
        ("connect", "joining"),
        ("merge", "joining"),
        ("introduce", "joining"),
        ("run", "joining"),
        ("commit", "joining"),
        ("accept", "job"),
        ("run", "job"),
        ("commit", "job"),
        ("hang:run", "job"),
        ("hang:merge", "joining"),
    ],
)
def test_a_death_within_the_join_costs_at_most_a_restart(served, scripted, fault, side):
    scripted("4")
    number = served.submit([*FAULTY, fault, side, "12"], 2, max_processors=4)
    job = served.wait(number, 100)
    assert job.state == "COMPLETED", served.output(number) + served.story(number)
    assert job.facts == {"verified": True, "size": 2}
    assert job.resizes[0].outcome.startswith(("restarted", "rolled back"))
    assert job.restarts <= 1
    assert served.free() == 8


def test_a_death_while_leaving_costs_at_most_a_restart(served, scripted):
    scripted("4 2/1")
    program = [*FAULTY, "check_leave", "job", "16"]
    job = served.wait(served.submit(program, 2, max_processors=4), 100)
    assert job.state == "COMPLETED", served.output(job.job) + served.story(job.job)
    assert job.facts["verified"] is True


def test_a_rank_that_dies_while_computing_fails_the_job(served, scripted):
    scripted("4")
    number = served.submit([*FAULTY, "none", "job", "60"], 2, max_processors=4)
    served.when(number, lambda job: job.size == 4)
    rank = next(
        process
        for process in served.processes(agents=False)
        if process.environ()["RESHAPE_GROUP"] == "2"
        and "faulty.py" in " ".join(process.cmdline())
        and process.name().startswith("python")
        and not process.children()
    )
    segments = served.mpi_segments()
    assert segments
    rank.kill()
    job = served.wait(number)
    assert (job.state, job.exit_code, job.signal) == ("FAILED", 0, signal.SIGKILL)
    assert "group 2 ended with exit code 0:9" in job.reason
    assert served.free() == 8
    end = time.monotonic() + 10
    while any(path.exists() for path in segments):
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.mark.parametrize("moment", ["starting", "ready", "later"])
def test_a_service_that_dies_within_an_expansion_finishes_it(served, scripted, moment):
    scripted("4 2/1")
    number = served.submit([*FAULTY, "none", "job", "40"], 2, max_processors=4)
    words = {"starting": "is to expand", "ready": "waits for the next", "later": "is done"}[moment]
    end = time.monotonic() + 20
    while words not in served.story(number):
        assert time.monotonic() < end
        time.sleep(0.01)
    served.kill()
    time.sleep(1.0)  # some resize points pass without a service
    served.start()
    job = served.wait(number)
    assert job.state == "COMPLETED", served.output(number) + served.story(number)
    assert job.facts["verified"] is True
    assert sizes(job) == [2, 4, 2]
    assert served.free() == 8


def test_a_job_that_ends_before_its_new_group_joins(served, scripted):
    scripted("4")
    program = (
        "import os, time, reshape\n"
        "if os.environ['RESHAPE_ROLE'] == 'join':\n"
        "    time.sleep(60)\n"
        "with reshape.application() as app:\n"
        "    for step in app.iterations(3):\n"
        "        time.sleep(0.2)\n"
    )
    job = served.wait(served.submit(["python", "-c", program], 2, max_processors=4))
    assert job.state == "COMPLETED", served.output(job.job) + served.story(job.job)
    assert "BAD TERMINATION" not in served.output(job.job), "it ends without an error message"
    assert served.free() == 8


def test_a_group_that_is_not_needed_ends_without_an_error_message(served, scripted):
    """It is asked to end by itself, so mpiexec writes no error to the job's output."""
    scripted("4")
    program = (
        "import time, reshape\n"
        "with reshape.application() as app:\n"
        "    for step in app.iterations(2):\n"
        "        time.sleep(0.2 if step == 0 else 3)\n"
    )
    number = served.submit(["python", "-c", program], 2, max_processors=4)
    job = served.wait(number)
    assert "waits for the next resize point" in served.story(number)
    assert job.state == "COMPLETED"
    assert served.output(number) == (
        "reshape: group 2 does not join: the job ended before this group joined\n"
    )


def test_cancelling_within_a_resize_leaves_nothing(served, scripted):
    scripted("4 6 8")
    number = served.submit([*FAULTY, "none", "job", "200"], 2, max_processors=8)
    served.when(number, lambda job: job.state == "EXPANDING")
    served.ask(m.Cancel(job=number))
    assert served.wait(number).state == "CANCELLED"
    assert served.free() == 8
    assert not served.processes(agents=False)


def test_many_cycles_leave_nothing_behind(served, scripted):
    """Thirty expansions and contractions leak no descriptor, memory or shared memory."""
    cycles = 30
    scripted(" ".join(["3 2"] * cycles))
    program = (
        "import os, time, psutil, reshape\n"
        "with reshape.application() as app:\n"
        "    A = app.block_cyclic('A', (500, 500), (8, 8))\n"
        "    me = psutil.Process()\n"
        "    for step in app.iterations(100000):\n"
        "        time.sleep(0.02)\n"
        "        if app.comm.rank == 0:\n"
        "            print(step, me.num_fds(), me.memory_info().rss >> 10, flush=True)\n"
        "        if os.path.exists('stop'): break\n"
    )
    number = served.submit(["python", "-c", program], 2, max_processors=3)
    job = served.when(number, lambda job: len(job.sizes) >= 2 * cycles + 1, timeout=100)
    (served.work / "stop").touch()
    job = served.wait(number)
    assert job.state == "COMPLETED", served.output(number)
    assert sizes(job)[: 2 * cycles + 1] == [2] + [3, 2] * cycles
    rows = [line.split() for line in served.output(number).splitlines()]
    usage = [(int(fds), int(kib)) for _, fds, kib in rows]
    early, late = usage[len(usage) // 5], usage[-1]
    assert late[0] <= early[0] + 2, "descriptors"
    assert late[1] <= early[1] * 1.1 + 4096, "memory in KiB"
    agent = psutil.Process(served.agent_pid())
    assert agent.num_fds() < 40


def test_short_iterations_ask_seldom_and_are_resized_all_the_same(served, scripted):
    scripted("4")
    program = (
        "import time, reshape\n"
        "with reshape.application() as app:\n"
        "    for step in app.iterations(4000):\n"
        "        time.sleep(0.002)\n"
        "    app.report(size=app.comm.size)\n"
    )
    number = served.submit(["python", "-c", program], 2, max_processors=4)
    job = served.wait(number, 100)
    assert (job.state, job.facts) == ("COMPLETED", {"size": 4}), served.output(number)
    with reading(served.directory) as records:
        events = [event for batch in records.batches() for event in batch.events]
    points = [event for event in events if isinstance(event, ResizePoint)]
    assert 4 < len(points) < 2000
    assert points[0].iteration == 1
    assert max(point.iteration for point in points) > 3000


def test_a_job_starts_on_fewer_processors_and_grows_after_a_restart_of_the_service(served):
    served.start(
        "--processors", "8", "--scenario", "max-b-pr", "--set", "backfill.adaptive_start=0.5"
    )
    rigid = served.submit(["sleep", "60"], 6)
    served.until(rigid, "RUNNING")
    program = [*PACED, "0.2", "apps.jacobi", "--n", "64", "--iterations", "40"]
    number = served.submit(
        program, 4, walltime_s=300.0, max_processors=8, topology=Topology("power-of-2")
    )
    served.until(number, "RUNNING")
    assert sizes(served.job(number)) == [2]
    served.kill()
    served.start()
    served.ask(m.Cancel(job=rigid))
    job = served.wait(number)
    assert (job.state, job.requested) == ("COMPLETED", 4)
    assert sizes(job)[:2] == [2, 4]
