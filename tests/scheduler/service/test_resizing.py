"""Jobs that expand and contract under the live service, also when processes are killed."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Mapping

import psutil
import pytest
from command_line import invoke
from paths import SUPPORT
from process_words import words_of
from waiting import wait_until

from reshape.topology import Topology
from reshape.wire.identity import ASK_EVERY_S
from scheduler.client.columns import HISTORY, ListingFormat
from scheduler.client.tables import job_text
from scheduler.journal.journal_reader import reading
from scheduler.model.events import ResizePoint
from scheduler.protocol import messages as m
from simulator import live_runs

HERE = SUPPORT
FAULTY = ["python", str(HERE / "faulty.py")]
PACED = ["python", str(HERE / "paced.py")]

CONFIG = """
processors: 8
scenario: scripted:Scripted
verify: true
deadlines: {}
"""
#: Sizes of which each step is a single group; test_groups_live.py has steps of several.
BY_TWO = Topology.parse("arbitrary:step=2")
#: Deadlines that no load of the machine reaches; a test shortens the one that it waits for.
PATIENT = {"start_s": 200, "ready_s": 200, "join_s": 200}


#: The second iteration lasts until the test tells the job to end. With an argument, a group that
#: joins does not come up.
LONG_ITERATION = f"""
import os
import sys
import time
if sys.argv[1:] and os.environ["RESHAPE_ROLE"] == "join":
    time.sleep(600)
sys.path.insert(0, {str(HERE)!r})
import reshape
from told import may_end
with reshape.application() as app:
    for step in app.iterations(3):
        while step == 1 and not may_end(app.comm):
            time.sleep(0.05)
"""


#: The program requests four processes, then two, and goes on until the test tells it to end.
ASKING = f"""
import sys
import time
sys.path.insert(0, {str(HERE)!r})
import reshape
from told import may_end
with reshape.application() as app:
    u = app.blocks("u", (8, 8))
    for step in app.iterations(10**6):
        if step == 1:
            app.request(minimum=4)
        if app.comm.size == 4 and "had four" not in app.state:
            app.state["had four"] = True
            app.request(maximum=2)
        if may_end(app.comm):
            break
        app.progress(1, 4)
        time.sleep(0.02)
"""


#: Unpickling the state takes the seconds of the argument where a group joins.
SLOW_STATE = f"""
import os
import sys
import time
sys.path.insert(0, {str(HERE)!r})
import reshape
from told import ENDLESS, may_end

class Slow:
    def __init__(self):
        self.data = os.urandom(10**6)

    def __setstate__(self, state):
        if os.environ["RESHAPE_ROLE"] == "join":
            time.sleep(float(sys.argv[1]))
        self.__dict__ = state

with reshape.application("arbitrary") as app:
    u = app.rows("u", (8,))
    if app.is_fresh_start:
        app.state["slow"] = Slow()
    for step in app.iterations(ENDLESS):
        u.local[...] += 1
        time.sleep(0.02)
        if may_end(app.comm):
            break
    app.report(verified=bool((u.local == step + 1).all()), size=app.comm.size)
"""


@pytest.fixture
def scripted(served, monkeypatch, tmp_path):
    """A service whose resizes follow a script; call it with the steps."""
    monkeypatch.setenv("PYTHONPATH", str(HERE), prepend=":")
    config = tmp_path / "service.yaml"

    def start(steps: str, **deadlines: float) -> None:
        config.write_text(CONFIG.format(json.dumps(PATIENT | deadlines)))
        served.start("--config", str(config), "--set", f"resizing.steps='{steps}'")

    return start


def sizes(job: m.JobInfo) -> list[int]:
    return [size for _, size in job.sizes]


def test_a_program_requests_sizes(served, scripted):
    """The policy resizes nothing. A replay of the journal decides the same."""
    scripted("")
    number = served.submit(["python", "-c", ASKING], 2, max_processors=6, topology=BY_TWO)
    served.when(number, lambda job: len(job.sizes) == 3)
    job = served.finish(number)
    assert (job.state, sizes(job)) == ("COMPLETED", [2, 4, 2]), served.output(number)
    assert 0 < job.iteration < job.iterations < 10**6
    story = served.ask(m.Explain(job=number))
    texts = " ".join(line.text for line in story.lines)
    assert "other bounds: its program requests 4 processors or more" in texts
    assert "is to contract to 2, groups 2 leave: from 4 to 2: its program requests 2" in texts
    assert "identical" in invoke("replay", served.directory).stdout
    with reading(served.directory) as records:
        (measured,) = live_runs.measured(live_runs.RecordedRun.of(records.batches()))
    assert [(phase.minimum, phase.maximum) for phase in measured.phases] == [(4, 0), (0, 2)]


def test_a_job_contracts_to_its_last_group(served, scripted):
    scripted("4 6 2/1+2")
    number = served.submit([*FAULTY, "none", "job"], 2, max_processors=8, topology=BY_TWO)
    job = served.when(number, lambda job: len(job.sizes) == 4)
    assert sizes(job) == [2, 4, 6, 2]
    assert job.processors == "4-5"  # those of the last group; the first two are gone
    left = [process.environ()["RESHAPE_GROUP"] for process in served.processes(agents=False)]
    assert left == ["3"] * 6  # mpiexec, its proxy, two ranks and their parents
    assert served.free() == 6
    job = served.finish(number)
    assert (job.state, job.facts) == ("COMPLETED", {"verified": True, "size": 2})
    assert [part for _, part in job.allocation] == ["0-1", "0-3", "0-5", "4-5", ""]


def test_a_restarted_job_contracts_by_the_group_that_it_began_with(served, scripted):
    """A rank dies while the job of two groups expands; after the restart its first group leaves."""
    scripted("4 6 2/4")
    number = served.submit([*FAULTY, "relay", "joining", "4"], 2, max_processors=8, topology=BY_TWO)
    served.when(number, lambda job: job.restarts == 1 and job.size == 2)
    job = served.finish(number)
    assert (job.state, job.restarts) == ("COMPLETED", 1), served.output(number)
    assert job.facts == {"verified": True, "size": 2}
    assert sizes(job) == [2, 4, 2]
    assert [part for _, part in job.allocation] == ["0-1", "0-3", "0-5", "0-3", "2-3", ""]


@pytest.mark.long
def test_an_interior_group_leaves(served, scripted):
    scripted("3 5 7 5/3 3/1 6")
    sizes_of_steps = Topology.parse("list:2,3,5,6,7")
    program = [*FAULTY, "none", "job"]
    number = served.submit(program, 2, max_processors=8, topology=sizes_of_steps)
    served.when(number, lambda job: len(job.sizes) == 7)
    job = served.finish(number)
    assert job.state == "COMPLETED", served.output(number)
    assert sizes(job) == [2, 3, 5, 7, 5, 3, 6]
    assert job.facts["verified"] is True


@pytest.mark.long
@pytest.mark.parametrize("program", ["apps.lu", "apps.jacobi", "apps.synthetic"])
def test_every_application_is_right_at_every_size(served, scripted, program):
    scripted("4 6 2 4")
    arguments = {
        "apps.lu": ["--n", "384", "--block", "16", "--repeat", "8"],  # 24 iterations each
        "apps.jacobi": ["--n", "256", "--iterations", "190"],
        "apps.synthetic": ["--iterations", "190", "--seconds", "0.01", "--mib", "4"],
    }[program]
    number = served.submit([*PACED, "0.2", program, *arguments], 2, max_processors=8)
    served.when(number, lambda job: len(job.sizes) == 5)
    job = served.finish(number)
    assert job.state == "COMPLETED", served.output(number)
    assert job.facts["verified"] is True
    assert sizes(job) == [2, 4, 6, 2, 4]


@pytest.mark.parametrize(
    ("fault", "deadlines", "words"),
    [
        ("start", {}, "the new group ended .exit code 7:0."),
        pytest.param(
            *("hang:start", {"start_s": 2}, "no group came up within 2 s"), marks=pytest.mark.long
        ),
        # The job may notice first that the group has gone.
        pytest.param(
            *("await_port", {}, "the new group ended .exit code 0:9.|the group .* is gone"),
            marks=pytest.mark.long,
        ),
    ],
)
def test_a_group_that_fails_before_the_join_costs_nothing(
    served, scripted, fault: str, deadlines: Mapping[str, float], words: str
):
    scripted("4", **deadlines)
    number = served.submit([*FAULTY, fault, "joining"], 2, max_processors=4, topology=BY_TWO)
    job = served.when(number, lambda job: bool(job.resizes) and "rolled" in job.resizes[0].outcome)
    assert re.search(words, job.resizes[0].outcome)
    job = served.finish(number)
    assert job.state == "COMPLETED", served.output(number)
    assert (job.restarts, job.facts["verified"]) == (0, True)
    assert served.free() == 8


def test_a_group_that_waits_too_long_is_released(served, scripted):
    """The job is in one long iteration: the processors of the new group are released."""
    scripted("4", ready_s=1)
    number = served.submit(["python", "-c", LONG_ITERATION], 2, max_processors=4, topology=BY_TWO)
    job = served.when(number, lambda job: bool(job.resizes) and "rolled" in job.resizes[0].outcome)
    assert "the job reached no resize point within" in job.resizes[0].outcome
    wait_until(lambda: served.free() == 6)
    assert served.finish(number).state == "COMPLETED"


@pytest.mark.parametrize(
    ("fault", "side"),
    [
        ("run", "joining"),
        # Other steps; tests/reshape/resizing/test_resize_failures.py kills at more of them.
        pytest.param("connect", "joining", marks=pytest.mark.long),
        pytest.param("accept", "job", marks=pytest.mark.long),
        pytest.param("hang:merge", "joining", marks=pytest.mark.long),
        pytest.param("merge", "joining", marks=pytest.mark.long),
        pytest.param("introduce", "joining", marks=pytest.mark.long),
        pytest.param("commit", "joining", marks=pytest.mark.long),
        pytest.param("commit", "job", marks=pytest.mark.long),
        pytest.param("run", "job", marks=pytest.mark.long),
        pytest.param("hang:run", "job", marks=pytest.mark.long),
    ],
)
def test_a_death_within_the_join_costs_at_most_a_restart(served, scripted, fault, side):
    scripted("4", **({"join_s": 4} if fault.startswith("hang:") else {}))
    number = served.submit([*FAULTY, fault, side], 2, max_processors=4, topology=BY_TWO)
    served.when(number, lambda job: job.resizes and job.resizes[0].outcome != "under way")
    job = served.finish(number)
    assert job.state == "COMPLETED", served.output(number) + served.story(number)
    assert job.facts == {"verified": True, "size": 2}
    assert job.resizes[0].outcome.startswith(("restarted", "rolled back"))
    assert job.restarts <= 1
    assert served.free() == 8


def test_a_death_while_leaving_costs_at_most_a_restart(served, scripted):
    scripted("4 2/1")
    number = served.submit([*FAULTY, "check_leave", "job"], 2, max_processors=4, topology=BY_TWO)
    served.when(number, lambda job: len(job.resizes) == 2 and job.resizes[1].outcome != "under way")
    job = served.finish(number)
    assert job.state == "COMPLETED", served.output(number) + served.story(number)
    assert job.facts["verified"] is True
    assert job.restarts <= 1


def test_a_join_may_take_as_long_as_the_size_of_the_state_allows(served, scripted):
    scripted("2", join_s=1, move_bytes_per_s=1e4)
    number = served.submit(["python", "-c", SLOW_STATE, "3"], 1, max_processors=2)
    served.when(number, lambda job: job.resizes and job.resizes[0].outcome != "under way")
    job = served.finish(number)
    assert job.state == "COMPLETED", served.output(number) + served.story(number)
    assert (sizes(job), job.restarts) == ([1, 2], 0)
    assert job.facts == {"verified": True, "size": 2}


def test_joins_that_restart_a_job_are_given_up_before_they_end_it(served, tmp_path):
    config = tmp_path / "service.yaml"
    config.write_text("processors: 2\nscenario: fcfs-pr\ndeadlines: {join_s: 1}\n")
    served.start("--config", str(config), "--set", "max_restarts=2", "--set", "retry_after=1")
    number = served.submit(["python", "-c", SLOW_STATE, "600"], 1, max_processors=2)
    given_up = "is not resized any more: after restart 2 of 2, another failed resize would end it"
    served.when(number, lambda _: given_up in served.story(number))
    done = served.until(number, "RUNNING").iteration
    job = served.when(number, lambda job: job.iteration > done + 10)
    assert "2 expansions failed in succession, and no other is tried" in job.failed_resizes
    job = served.finish(number)
    assert (job.state, job.restarts) == ("COMPLETED", 2), served.story(number)
    assert job.facts == {"verified": True, "size": 1}


def test_a_rank_that_dies_while_computing_fails_the_job(served, scripted):
    scripted("4")
    number = served.submit([*FAULTY, "none", "job"], 2, max_processors=4, topology=BY_TWO)
    served.when(number, lambda job: job.size == 4)
    rank = next(
        process
        for process in served.processes(agents=False)
        if "faulty.py" in " ".join(words_of(process))
        and process.environ()["RESHAPE_GROUP"] == "2"
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
    wait_until(lambda: not any(path.exists() for path in segments))


@pytest.mark.parametrize(
    "moment",
    [
        pytest.param("starting", marks=pytest.mark.long),
        "ready",
        pytest.param("later", marks=pytest.mark.long),
    ],
)
def test_a_service_that_dies_within_an_expansion_finishes_it(served, scripted, moment):
    scripted("4 2/1")
    number = served.submit([*FAULTY, "none", "job"], 2, max_processors=4, topology=BY_TWO)
    words = {"starting": "is to expand", "ready": "wait for the next", "later": "is done"}[moment]
    wait_until(lambda: words in served.story(number))
    served.kill()
    served.start()

    def is_over(job: m.JobInfo) -> bool:
        """Whether it has resized; it gives up an expansion if the service is away for 2 s then."""
        return len(job.sizes) == 3 or "no answer" in job.resizes[0].outcome

    resized = len(served.when(number, is_over).sizes) == 3
    job = served.finish(number)
    assert job.state == "COMPLETED", served.output(number) + served.story(number)
    assert job.facts["verified"] is True
    assert sizes(job) == ([2, 4, 2] if resized else [2])
    assert served.free() == 8


def test_a_job_that_ends_before_its_new_group_joins(served, scripted):
    scripted("4")
    program = ["python", "-c", LONG_ITERATION, "no group comes up"]
    number = served.submit(program, 2, max_processors=4, topology=BY_TWO)
    served.until(number, "EXPANDING")
    job = served.finish(number)
    assert job.state == "COMPLETED", served.output(number) + served.story(number)
    assert "BAD TERMINATION" not in served.output(number), "it ends without an error message"
    assert served.free() == 8


def test_a_group_that_is_not_needed_ends_without_an_error_message(served, scripted):
    """It is asked to end by itself, so mpiexec writes no error to the job's output."""
    scripted("4")
    number = served.submit(["python", "-c", LONG_ITERATION], 2, max_processors=4, topology=BY_TWO)
    wait_until(lambda: "wait for the next resize point" in served.story(number))
    job = served.finish(number)
    assert job.state == "COMPLETED"
    says = "reshape: group 2 does not join: the job ended before this group joined\n"
    assert served.output(number) in (says, "")  # it is killed if it does not end for some seconds


def test_cancelling_within_a_resize_leaves_nothing(served, scripted):
    scripted("4")
    number = served.submit([*FAULTY, "hang:start", "joining"], 2, max_processors=8, topology=BY_TWO)
    served.until(number, "EXPANDING")
    served.ask(m.ChangeJobs.one(number, m.CancelJob()))
    assert served.wait(number).state == "CANCELLED"
    assert served.free() == 8
    assert not served.processes(agents=False)


@pytest.mark.long
def test_many_cycles_leave_nothing_behind(served, scripted):
    """Expansions and contractions leak no descriptor, memory or shared memory."""
    cycles = 20
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
        "        if app.comm.bcast(os.path.exists('stop')): break\n"
    )
    number = served.submit(["python", "-c", program], 2, max_processors=3)
    for count in range(2 * cycles + 1):
        served.when(number, lambda job, count=count: len(job.sizes) > count)
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
        "import sys, time, reshape\n"
        f"sys.path.insert(0, {str(HERE)!r})\n"
        "from told import ENDLESS, may_end\n"
        "with reshape.application() as app:\n"
        "    for step in app.iterations(ENDLESS):\n"
        "        time.sleep(0.002)\n"
        "        if step % 100 == 0 and may_end(app.comm):\n"
        "            break\n"
        "    app.report(size=app.comm.size)\n"
    )
    number = served.submit(["python", "-c", program], 2, max_processors=4, topology=BY_TWO)
    served.when(number, lambda job: job.size == 4 and job.iteration > 1000)
    job = served.finish(number)
    assert (job.state, job.facts) == ("COMPLETED", {"size": 4}), served.output(number)
    with reading(served.directory) as records:
        events = [event for batch in records.batches() for event in batch.events]
    points = [event for event in events if isinstance(event, ResizePoint)]
    assert points[0].iteration == 1
    assert job.started_at is not None
    assert job.ended_at is not None
    configurations = 2  # the first request of each is not delayed
    assert 4 < len(points) <= (job.ended_at - job.started_at) / ASK_EVERY_S + 1 + configurations


def test_a_job_starts_on_fewer_processors_and_grows_after_a_restart_of_the_service(served):
    served.start(
        "--processors", "8", "--scenario", "max-b-pr", "--set", "backfill.adaptive_start=0.5"
    )
    rigid = served.submit(["sleep", "600"], 6)
    served.until(rigid, "RUNNING")
    program = [*PACED, "0.4", "apps.jacobi", "--n", "64", "--iterations", "40"]
    number = served.submit(program, 4, max_processors=8, topology=Topology("power-of-2"))
    served.until(number, "RUNNING")
    assert sizes(served.job(number)) == [2]
    served.kill()
    served.start()
    served.ask(m.ChangeJobs.one(rigid, m.CancelJob()))
    served.when(number, lambda job: job.size == 4)
    job = served.finish(number)
    assert (job.state, job.requested) == ("COMPLETED", 4)
    assert sizes(job)[:2] == [2, 4]


def test_expansions_that_fail_are_tried_ever_more_rarely(served, tmp_path):
    """Each joining process raises an error, which the descriptions of the job name."""
    served.start("--processors", "4", "--scenario", "fcfs-pr")
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, time, reshape\n"
        f"sys.path.insert(0, {str(HERE)!r})\n"
        "from told import ENDLESS, may_end\n"
        "with reshape.application('arbitrary') as app:\n"
        "    app.rows('a', (10,))\n"
        "    if not app.is_fresh_start: undefined\n"
        "    for step in app.iterations(ENDLESS):\n"
        "        time.sleep(0.02)\n"
        "        if may_end(app.comm): break\n"
    )
    number = served.submit(["python", str(program)], 1, max_processors=4)
    served.when(number, lambda job: len(job.resizes) == 3 and "rolled" in job.resizes[2].outcome)
    job = served.finish(number)
    assert (job.state, job.exit_code, job.resize_count) == ("COMPLETED", 0, 0)
    times = [resize.at for resize in job.resizes]
    assert times[2] - times[1] >= 4.0
    why = "the new group ended (exit code 1:0): NameError: name 'undefined' is not defined"
    assert job.failed_resizes.endswith(f"failed in succession; the last: {why}")
    assert job.failed_resizes in job_text(job, 0.0)
    assert job.failed_resizes in ListingFormat.parse(HISTORY).table([job], 0.0).rows[0]
    assert served.story(number).count(f"failed, the job continues at its old size: {why}") >= 1
