"""Programs with several loops, one after another."""

from __future__ import annotations

from pathlib import Path

import pytest
from application_scripts import script
from driver import Driver, run

from reshape.files.job_folder import RESTART_FILE
from scheduler.protocol import messages as m

#: 20 iterations, one that must happen once, and 20 more. Each element ends as (0 + 20) * 2 + 60.
PROGRAM = """
    import os, signal
    if os.environ.get("CHECKPOINTS"):
        app.checkpoint(every=4, dir=os.environ["CHECKPOINTS"])
    a = app.rows("a", (12,))
    built = []
    @app.each_size
    def build(comm):
        built.append(comm.allreduce(1))
        yield
    start = app.is_fresh_start
    for step in app.iterations(20):
        a.local[:] += 1
    for _ in app.iterations(1):
        app.state["between"] = app.state.get("between", 0) + 1
        a.local[:] *= 2
    for step in app.iterations(20):
        a.local[:] += 3
        if start and os.environ.get("DIE_AT") == str(step) and app.comm.rank == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    whole = a.gather()
    if app.comm.rank == 0:
        print("elements", set(whole.tolist()), "between", app.state["between"])
    print("built", *built)
"""
RIGHT = "elements {100.0} between 1\n"


def at(driver: Driver, iteration: int) -> None:
    """Answer the job until it has finished this many iterations."""
    driver.serve(lambda: driver.latest is not None and driver.latest.iteration >= iteration)


def test_groups_join_in_the_loop_that_the_job_is_in(tmp_path: Path) -> None:
    """In the first loop, between two loops, and in the last one, when the first group has left."""
    points: list[tuple[int, int]] = []
    with Driver(tmp_path, [script(tmp_path, PROGRAM)]) as driver:
        first = driver.start(1, "first")
        at(driver, 5)
        assert driver.expand(2).ok
        early, late = driver.ready(1), driver.ready(2)
        at(driver, 20)
        assert driver.join(early).ok
        assert driver.latest is not None
        assert driver.latest.iteration == 20  # between the first loop and the second
        at(driver, 25)
        assert driver.join(late).ok
        assert driver.contract(0, 1).ok

        def decide(point: m.AtResizePoint) -> m.Message:
            points.append((point.iteration, point.iterations))
            return m.Proceed()

        driver.decide = decide
        text = driver.finish()
    assert text.count(RIGHT) == 1
    assert first.text == ""  # it left in the loop
    assert early.text.count("built 4 6 3\n") == 1
    assert late.text.count("built 6 3\n") == 2
    assert points[-1] == (40, 41)
    assert [at for at, _ in points] == list(range(points[0][0], 41))


@pytest.mark.parametrize("iteration", [20, pytest.param(30, marks=pytest.mark.long)])
def test_a_job_restarts_in_the_loop_that_it_was_in(tmp_path: Path, iteration: int) -> None:
    with Driver(tmp_path, [script(tmp_path, PROGRAM)]) as driver:
        driver.start(2, "first")
        group = driver.ready(1)
        at(driver, iteration)
        driver.order_join(group)
        assert driver.latest is not None
        assert driver.latest.iteration == iteration
        driver.kill(group)
        assert RESTART_FILE in driver.segments
        driver.kill(driver.groups[0])
        again = driver.start(2, "restart")
        driver.serve(lambda: RESTART_FILE not in driver.segments, still=True)
        at(driver, iteration + 1)
        assert driver.expand(1).ok
        driver.serve(lambda: again.process.poll() is not None)
        assert again.text.count(RIGHT) == 1
        assert again.text.count("built 2 3\n") == 2


def test_a_checkpoint_of_a_later_loop(tmp_path: Path) -> None:
    """The run dies in iteration 31 of 41, and continues on another size from iteration 28."""
    program, folder = script(tmp_path, PROGRAM), str(tmp_path / "run")
    assert run(2, program, CHECKPOINTS=folder, DIE_AT="10").returncode != 0
    names = [path.name for path in (tmp_path / "run").glob("iteration-*")]
    assert max(names) == "iteration-28"  # an earlier one may still be removed
    done = run(3, program, CHECKPOINTS=folder, RESHAPE_RESTART_FROM=folder)
    assert done.stdout.count(RIGHT) == 1, done.stderr


#: A loop of unknown length that ends by break, and 10 more iterations.
UNTIL = """
    a = app.rows("a", (12,))
    for step in app.iterations(None):
        a.local[:] += 1
        if app.comm.allreduce(a.local.sum()) >= 12 * 30:
            break
    for step in app.iterations(10):
        a.local[:] += 3
    whole = a.gather()
    if app.comm.rank == 0:
        print("elements", set(whole.tolist()))
"""


def test_groups_join_a_loop_of_unknown_length_and_one_after_it(tmp_path: Path) -> None:
    with Driver(tmp_path, [script(tmp_path, UNTIL)]) as driver:
        driver.start(1, "first")
        at(driver, 3)
        assert driver.latest is not None
        assert driver.latest.iterations == 0
        group = driver.ready(2)
        assert driver.join(group).ok
        at(driver, 31)
        assert driver.latest.iterations == 29 + 10  # the iteration with the break has not ended
        assert driver.expand(1).ok
        assert driver.contract(0).ok
        assert driver.finish() == "elements {60.0}\n"


def test_a_loop_of_unknown_length_without_a_service(tmp_path: Path) -> None:
    assert run(2, script(tmp_path, UNTIL)).stdout == "elements {60.0}\n"


def test_a_program_with_fewer_loops_cannot_join(tmp_path: Path) -> None:
    """The job is released from waiting for it, and goes on."""
    fewer = "\n".join(
        [
            "    a = app.rows('a', (12,))",
            "    start = app.is_fresh_start",
            "    for step in app.iterations(5): pass",
            "    if start:",
            "        for step in app.iterations(5): pass",
            "        print('end')",
        ]
    )
    with Driver(tmp_path, [script(tmp_path, fewer)]) as driver:
        first = driver.start(1, "first")
        group = driver.ready(1)
        at(driver, 7)
        serial = driver.order_join(group)
        driver.send_to(group, m.Connect(port=driver.ports[-1].port))
        driver.serve(lambda: group.process.poll() is not None, still=True)
        assert group.process.returncode != 0
        assert "the job is in loop 2 of app.iterations(), but the program of" in group.text
        driver.cancel(driver.ports[-1].port)
        assert driver.await_report(serial).why == "the group that was to join is gone"
        driver.serve(lambda: first.process.poll() is not None)
        assert first.text == "end\n"


@pytest.mark.parametrize("use", ["app.comm.rank", "a.gather()", "app.iterations(3)"])
def test_a_program_that_catches_the_end_of_a_process(tmp_path: Path, use: str) -> None:
    """As by `except:` around the loop, which is meant for errors."""
    body = f"""
        a = app.rows("a", (12,))
        try:
            for step in app.iterations(100):
                pass
        except:
            {use}
    """
    with Driver(tmp_path, [script(tmp_path, body)]) as driver:
        first = driver.start(1, "first")
        assert driver.expand(1).ok
        driver.decide = lambda _: m.Leave(serial=2, groups=[0])
        driver.serve(lambda: first.process.poll() is not None)
        assert first.process.returncode == 1
        (why,) = (fault.why for fault in driver.faults)
        assert "this process has left the job by the SystemExit of app.iterations()" in why
        assert first.text.count("write 'except Exception:'") == 1


def test_ranks_that_make_different_collective_calls(tmp_path: Path) -> None:
    """The resize point of one rank meets the barrier of the other one."""
    body = """
        for step in app.iterations(100):
            if step == 11 and app.comm.rank == 1: break
        app.comm.Barrier()
    """
    with Driver(tmp_path, [script(tmp_path, body)]) as driver:
        group = driver.start(2, "first")
        driver.serve(lambda: group.process.poll() is not None)
        assert "all ranks make the same collective calls in the same order" in driver.faults[0].why
