"""Jobs that start with several groups and expand by several, under a live service."""

from __future__ import annotations

import json
import os
import signal
import sys

import pytest
from paths import SUPPORT
from waiting import wait_until

from reshape.topology import Topology
from scheduler.protocol import messages as m

FAULTY = [sys.executable, str(SUPPORT / "faulty.py")]
PACED = [sys.executable, str(SUPPORT / "paced.py")]

CONFIG = """
processors: 8
scenario: scripted:Scripted
verify: true
deadlines: {}
"""
#: Deadlines that no load of the machine reaches; a test shortens the one that it waits for.
PATIENT = {"start_s": 200, "ready_s": 200, "join_s": 200}
ANY = Topology()

#: Group 2 waits for a file before the block, in which the groups assemble.
AWAITS_FILE = """
import os
import time
while os.environ["RESHAPE_GROUP"] == "2" and not os.path.exists("come"):
    time.sleep(0.05)
import reshape
with reshape.application() as app:
    u = app.blocks("u", (64,))
    for step in app.iterations(20):
        u.local[...] += 1
    app.report(size=app.comm.size, verified=bool((u.local == 20).all()))
"""

#: Writes a checkpoint in each iteration. In the first run of the job one rank can kill itself.
CHECKPOINTED = """
import os
import signal
import sys
import time
sys.path.insert(0, {support!r})
import reshape
from told import ENDLESS, may_end
with reshape.application() as app:
    app.checkpoint(every=1)
    u = app.blocks("u", (64,))
    for step in app.iterations(ENDLESS):
        u.local[...] += 1
        time.sleep(0.05)
        if os.environ["RESHAPE_REQUEUES"] == "0" and os.path.exists("die") and app.comm.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if may_end(app.comm):
            break
    app.report(size=app.comm.size, verified=bool((u.local == step + 1).all()))
"""


@pytest.fixture
def scripted(served, monkeypatch, tmp_path):
    """A service whose resizes follow a script, and whose jobs may start on a share of a request."""
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT), prepend=":")
    config = tmp_path / "service.yaml"

    def start(steps: str, share: float = 0.25, **deadlines: float) -> None:
        config.write_text(CONFIG.format(json.dumps(PATIENT | deadlines)))
        options = [f"resizing.steps='{steps}'", f"backfill.adaptive_start={share}"]
        served.start("--config", str(config), *(f"--set={option}" for option in options))

    return start


def sizes(job: m.JobInfo) -> list[int]:
    return [size for _, size in job.sizes]


def groups_of(job: m.JobInfo) -> dict[int, int]:
    """Number of ranks of each group."""
    count: dict[int, int] = {}
    for place in job.ranks:
        count[place.group] = count.get(place.group, 0) + 1
    return count


def test_a_job_reaches_every_size_by_its_groups(served, scripted):
    """It starts on 2 and 1, 2 and 1 more; it contracts by each, and expands by several."""
    scripted("5 3 2 7 4")
    number = served.submit([*FAULTY, "none", "job"], 6, max_processors=8, topology=ANY)
    job = served.until(number, "RUNNING")
    assert groups_of(job) == {1: 2, 2: 1, 3: 2, 4: 1}
    served.when(number, lambda job: len(job.sizes) == 6)
    job = served.finish(number)
    assert (job.state, job.facts) == ("COMPLETED", {"verified": True, "size": 4})
    assert sizes(job) == [6, 5, 3, 2, 7, 4]
    assert job.restarts == 0
    assert [resize.outcome for resize in job.resizes] == ["done"] * 5
    assert served.free() == 8
    served.check_replay()


@pytest.mark.long
@pytest.mark.parametrize("program", ["apps.lu", "apps.jacobi", "apps.synthetic"])
def test_every_application_is_right_on_several_groups(served, scripted, program):
    scripted("3 1 7 2", share=0.1)
    arguments = {
        "apps.lu": ["--n", "384", "--block", "16", "--repeat", "8"],  # 24 iterations each
        "apps.jacobi": ["--n", "256", "--iterations", "190"],
        "apps.synthetic": ["--iterations", "190", "--seconds", "0.01", "--mib", "4"],
    }[program]
    command = [*PACED, "0.2", program, *arguments]
    number = served.submit(command, 5, max_processors=8, topology=ANY)
    served.when(number, lambda job: len(job.sizes) == 5)
    job = served.finish(number)
    assert job.state == "COMPLETED", served.output(number)
    assert job.facts["verified"] is True
    assert sizes(job) == [5, 3, 1, 7, 2]


@pytest.mark.parametrize(
    ("fault", "group"),
    [
        pytest.param("assemble", 3, marks=pytest.mark.long),
        pytest.param("assemble", 1, marks=pytest.mark.long),
        pytest.param("accept", 1, marks=pytest.mark.long),
        ("connect", 3),
        pytest.param("connect", 2, marks=pytest.mark.long),
        pytest.param("merge", 2, marks=pytest.mark.long),
        pytest.param("greet", 4, marks=pytest.mark.long),
        # At the first resize point, before the first contraction or within it.
        pytest.param("resize_point", 2, marks=pytest.mark.long),
        pytest.param("contract", 3, marks=pytest.mark.long),
    ],
)
def test_a_group_that_dies_at_the_start_costs_another_start(served, scripted, fault, group):
    scripted("2 2")  # the first start may have come to a decision before the death was noticed
    number = served.submit(
        [*FAULTY, fault, f"group{group}"], 6, max_processors=8, topology=ANY, requeue=True
    )
    served.when(number, lambda job: job.size == 2)
    job = served.finish(number)
    assert job.state == "COMPLETED", served.output(number) + served.story(number)
    assert job.facts == {"verified": True, "size": 2}
    assert job.requeues == 1
    assert f"group {group} ended with exit code 0:9" in served.story(number)
    assert served.free() == 8


def test_without_requeue_a_group_that_dies_at_the_start_fails_the_job(served, scripted):
    scripted("")
    command = [*FAULTY, "accept", "group2"]  # it has connected, and is to accept the next one
    number = served.submit(command, 6, max_processors=8, topology=ANY)
    job = served.wait(number)
    assert (job.state, job.signal) == ("FAILED", signal.SIGKILL), served.story(number)
    assert job.reason.startswith("group 2 ended with exit code 0:9")
    assert served.free() == 8
    assert not served.processes(agents=False)


def test_a_group_that_does_not_come_ends_the_start(served, scripted):
    scripted("", start_s=3)
    command = [*FAULTY, "hang:assemble", "group3"]
    number = served.submit(command, 6, max_processors=8, topology=ANY, requeue=True)
    served.when(number, lambda job: job.requeues == 1 and job.state == "RUNNING")
    job = served.finish(number)
    assert (job.state, job.facts) == ("COMPLETED", {"verified": True, "size": 6})
    assert "the groups of the job were not together within 3 s" in served.story(number)


def test_a_program_without_an_application_fails(served, scripted):
    """Each of its worlds would do the whole work alone, and all would end with success."""
    scripted("")
    number = served.submit([sys.executable, "-c", "print(1)"], 6, max_processors=8, topology=ANY)
    job = served.wait(number)
    assert (job.state, job.exit_code) == ("FAILED", 1)
    assert "its program has to use reshape.application()" in job.reason
    assert served.free() == 8


def test_an_output_that_is_emptied_keeps_what_each_group_writes(served, scripted):
    """The first group empties the file, also if it comes last."""
    scripted("")
    (served.work / "out").write_text("of an earlier job\n")
    program = "import os; print('group', os.environ['RESHAPE_GROUP'], flush=True); 1 / 0"
    number = served.submit(
        [sys.executable, "-c", program], 3, max_processors=4, topology=ANY, output="out"
    )
    assert served.wait(number).state == "FAILED"
    text = (served.work / "out").read_text()
    assert "earlier" not in text
    assert "group 1\n" in text


def test_a_service_that_dies_while_groups_assemble_finishes_the_start(served, scripted):
    scripted("")
    number = served.submit([sys.executable, "-c", AWAITS_FILE], 4, max_processors=8, topology=ANY)
    wait_until(lambda: len(groups_of(served.job(number))) == 3)
    served.kill()
    served.start()
    (served.work / "come").touch()
    job = served.wait(number)
    assert (job.state, job.facts) == ("COMPLETED", {"verified": True, "size": 4})


def test_an_agent_that_dies_while_groups_assemble_costs_another_start(served, scripted):
    scripted("")
    command = [sys.executable, "-c", AWAITS_FILE]
    number = served.submit(command, 4, max_processors=8, topology=ANY, requeue=True)
    wait_until(lambda: len(served.processes(agents=False)) >= 10)  # mpiexec, proxy and ranks
    os.kill(served.agent_pid(), signal.SIGKILL)
    served.when(number, lambda job: job.requeues == 1)
    (served.work / "come").touch()
    job = served.wait(number)
    assert (job.state, job.facts) == ("COMPLETED", {"verified": True, "size": 4})
    assert served.free() == 8


def test_a_job_of_several_groups_continues_from_its_checkpoint(served, scripted):
    scripted("3 6")
    program = [sys.executable, "-c", CHECKPOINTED.format(support=str(SUPPORT))]
    number = served.submit(program, 4, max_processors=8, topology=ANY, requeue=True)
    served.when(number, lambda job: job.size == 6)
    (served.work / "die").touch()
    served.when(number, lambda job: job.requeues == 1 and job.state == "RUNNING")
    job = served.finish(number)
    assert job.state == "COMPLETED", served.output(number) + served.story(number)
    assert job.facts["verified"] is True
    assert "restarted_from" in job.facts


def test_a_job_of_several_groups_restarts_with_them(served, scripted):
    """A rank dies within a contraction; the groups connect again, and others can still leave."""
    scripted("5 2")
    command = [*FAULTY, "commit", "group2"]
    number = served.submit(command, 6, max_processors=8, topology=ANY)
    served.when(number, lambda job: job.restarts == 1 and job.size == 2)
    job = served.finish(number)
    assert (job.state, job.facts) == ("COMPLETED", {"verified": True, "size": 2})
    assert sizes(job) == [6, 2]
    assert served.free() == 8


@pytest.mark.parametrize(
    ("fault", "group", "deadlines"),
    [
        pytest.param("assemble", 3, {}, marks=pytest.mark.long),
        pytest.param("accept", 2, {}, marks=pytest.mark.long),
        ("connect", 3, {}),
        pytest.param("await_join", 4, {}, marks=pytest.mark.long),
        pytest.param("join_job", 2, {}, marks=pytest.mark.long),
        pytest.param("join", 3, {}, marks=pytest.mark.long),
        ("introduce", 4, {}),
        pytest.param("relay", 2, {}, marks=pytest.mark.long),
        pytest.param("commit", 3, {}, marks=pytest.mark.long),
        pytest.param("hang:assemble", 3, {"start_s": 3}, marks=pytest.mark.long),
        pytest.param("hang:join", 4, {"join_s": 4}, marks=pytest.mark.long),
    ],
)
def test_one_of_several_joining_groups_that_dies_costs_at_most_a_restart(
    served, scripted, fault, group, deadlines
):
    scripted("7", share=1, **deadlines)
    number = served.submit([*FAULTY, fault, f"group{group}"], 2, max_processors=8, topology=ANY)
    job = served.when(number, lambda job: job.resizes and job.resizes[0].outcome != "under way")
    assert job.resizes[0].outcome.startswith(("restarted", "rolled back"))
    job = served.finish(number)
    assert job.state == "COMPLETED", served.output(number) + served.story(number)
    assert job.facts == {"verified": True, "size": 2}
    assert job.restarts <= 1
    assert served.free() == 8
    assert not served.processes(agents=False)


def test_joining_groups_that_are_not_needed_end_without_an_error_message(served, scripted):
    """They are asked to end by themselves, as one, so mpiexec writes no error to the output."""
    scripted("5", share=1)
    program = [sys.executable, "-c", LONG_ITERATION]
    number = served.submit(program, 2, max_processors=8, topology=ANY)
    wait_until(lambda: "wait for the next resize point" in served.story(number))
    job = served.finish(number)
    assert job.state == "COMPLETED"
    says = "reshape: groups 2, 3 do not join: the job ended before this group joined\n"
    assert served.output(number) in (
        says,
        "",
    )  # they are killed if they do not end for some seconds


#: The second iteration lasts until the test tells the job to end.
LONG_ITERATION = f"""
import sys
import time
sys.path.insert(0, {str(SUPPORT)!r})
import reshape
from told import may_end
with reshape.application() as app:
    for step in app.iterations(3):
        while step == 1 and not may_end(app.comm):
            time.sleep(0.05)
"""
