"""What depends on the size: opened and closed with the processes of each size."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from textwrap import dedent

import pytest
from application_scripts import check_wrong_use, script
from driver import Driver, Group, run
from mpi4py import MPI
from paths import ROOT, SUPPORT

from reshape.app import Application
from reshape.data.each_size import ClosingError, EachSize
from reshape.errors import ReshapeError
from reshape.files.job_folder import RESTART_FILE
from scheduler.protocol import messages as m

#: Two functions, whose parts wait for all ranks of their size. Each element ends as 40.
PROGRAM = """
    import os
    sys.path.insert(0, os.environ["SUPPORT"])
    from mpi4py import MPI
    import resizable
    rank = int(os.environ["PMI_RANK"])
    resizable.inject_faults(app.state, rank)
    a = app.rows("a", (12, 2))
    def say(*words):
        print(*words, flush=True)
    @app.each_size
    def first(comm):
        say("open first", comm.allreduce(1))
        yield comm.Create_cart([comm.size], [True])
        say("close first", app.comm.allreduce(1))
    def second(comm):
        say("open second", first().allreduce(1))
        try:
            yield first().size
        finally:
            say("close second", first().allreduce(1))
    steps = 40 + int(os.environ.get("MORE", "0"))
    if "FEWER" not in os.environ:
        second = app.each_size(second)
    for step in app.iterations(steps):
        if step == 0:
            say("first step")
        assert second() == first().size == app.comm.size == first().allreduce(1)
        a.local[:] += 1
        if os.environ.get("FAIL_AT") == f"{app.comm.rank}:{step}":
            raise ValueError("injected")
    whole = a.gather()
    if app.comm.rank == 0:
        say("elements", *set(whole.ravel()))
"""
OPEN, CLOSE = ("open first", "open second"), ("close second", "close first")


def program(folder: Path, body: str = PROGRAM) -> str:
    return script(folder, body)


def job(folder: Path, body: str = PROGRAM, **environment: str) -> Driver:
    return Driver(folder, [program(folder, body)], SUPPORT=str(SUPPORT), **environment)


def lines(group: Group) -> Counter[str]:
    """Count the lines of a group about opening and closing."""
    return Counter(line for line in group.text.splitlines() if line.startswith(("open", "close")))


def changes(ranks: int, *sizes: int | tuple[int, ...]) -> Counter[str]:
    """Lines of so many ranks that open and close at each size; those of (size,) open alone."""
    expected: Counter[str] = Counter()
    for size in sizes:
        number = size if isinstance(size, int) else size[0]
        words = OPEN + CLOSE if isinstance(size, int) else OPEN
        expected.update({f"{word} {number}": ranks for word in words})
    return expected


# ---------------------------------------------------------------- when it opens and closes


def test_it_opens_in_the_loop_and_closes_in_reverse_order(tmp_path: Path) -> None:
    done = run(1, program(tmp_path), SUPPORT=str(SUPPORT))
    assert done.stdout.splitlines() == [
        "open first 1",
        "open second 1",
        "first step",
        "elements 40.0",
        "close second 1",
        "close first 1",
    ], done.stderr


def test_all_ranks_of_the_old_size_close_and_all_of_the_new_one_open(tmp_path: Path) -> None:
    """The first group leaves: it closes with the others and opens nothing."""
    with job(tmp_path) as driver:
        first = driver.start(1, "first")
        assert driver.expand(2).ok
        assert driver.contract(0).ok
        assert driver.expand(1).ok
        text = driver.finish()
        assert text.count("elements 40.0\n") == 1
        assert lines(first) == changes(1, 1, 3)
        assert lines(driver.groups[1]) == changes(2, 3, 2, 3)
        assert lines(driver.groups[2]) == changes(1, 3)
        assert first.text.splitlines()[-4:-2] == ["open first 3", "open second 3"]
        assert first.text.splitlines()[-2:] == ["close second 3", "close first 3"]


def test_it_is_closed_before_the_restart_point_and_open_after_the_commit(tmp_path: Path) -> None:
    """The closing part may still change registered data and `app.state`."""
    body = """
        import os
        restart = os.path.join(os.environ["RESHAPE_SHM"], "restart.msgpack")
        a = app.rows("a", (4,))
        if app.is_fresh_start:
            app.state["closed"] = 0
        @app.each_size
        def each(comm):
            assert not os.path.exists(restart)
            yield
            assert not os.path.exists(restart)
            a.local[:] += 1
            app.state["closed"] += 1
        for step in app.iterations(20):
            each()
        print(app.state["closed"], *a.gather() if app.comm.rank == 0 else "")
    """
    with Driver(tmp_path, [script(tmp_path, body)]) as driver:
        driver.start(1, "first")
        assert driver.expand(1).ok
        assert driver.contract(0).ok
        assert driver.finish() == "2 2.0 2.0 2.0 2.0\n"


BETWEEN = """
    a = app.rows("a", (4,))
    @app.each_size
    def early(comm):
        yield comm.allreduce(1)
    for step in app.iterations(10):
        early()
    opened = []
    @app.each_size
    def late(comm):
        opened.append(early())
        yield comm.allreduce(1)
    assert not opened
    for step in app.iterations(0):
        pass
    for step in app.iterations(10):
        assert late() == early() == app.comm.size
    print(*opened)
"""


def test_a_function_between_two_loops_opens_in_the_second(tmp_path: Path) -> None:
    """A group joins at the resize point between the loops, and another one in the last loop."""
    with Driver(tmp_path, [script(tmp_path, BETWEEN)]) as driver:
        driver.start(1, "first")
        groups = driver.ready(1), driver.ready(1)
        driver.serve(lambda: driver.latest is not None and driver.latest.iteration >= 10)
        assert driver.join(groups[0]).ok
        driver.serve(lambda: driver.latest is not None and driver.latest.iteration >= 15)
        assert driver.join(groups[1]).ok
        driver.finish()
        outputs = [group.text for group in driver.groups.values()]
    assert outputs[1:] == ["2 3\n", "3\n"]
    assert outputs[0] in ("2 3\n", "1 2 3\n")  # opened alone before the resize point, or not


# ---------------------------------------------------------------- resizes that are rolled back


def test_the_job_opens_again_when_it_refuses_a_group(tmp_path: Path) -> None:
    with job(tmp_path) as driver:
        first = driver.start(2, "first")
        refused = driver.ready(1, MORE="1")
        report = driver.join(refused)
        assert "the job has app.iterations(40) where the group that joins has" in report.why
        other = driver.ready(1, FEWER="1")
        report = driver.join(other)
        assert report.why == (
            "the job has second of app.each_size where the group that joins has app.iterations(40):"
            " all processes make the same registrations, functions of app.each_size and loops, in "
            "the same order"
        )
        driver.finish()
        assert lines(first) == changes(2, 2, 2, 2)
        assert not lines(refused) + lines(other)
        assert refused.process.returncode == 0


def test_the_job_opens_again_when_a_move_is_abandoned(tmp_path: Path) -> None:
    """The group that joins has merged and received data already."""
    with job(tmp_path) as driver:
        driver.welcome.verify = True
        first = driver.start(2, "first")
        group = driver.ready(1, FAULT="corrupt")
        assert "the checksum of a has changed" in driver.join(group).why
        assert driver.expand(1).ok
        assert "elements 40.0\n" in driver.finish()
        assert lines(first) == changes(2, 2, 2, 3)
        assert not lines(group)


def test_the_job_opens_again_when_a_stand_in_releases_it(tmp_path: Path) -> None:
    with job(tmp_path) as driver:
        first = driver.start(2, "first")
        group = driver.ready(1, KILL="1:0:before:connect")
        serial = driver.order_join(group)
        driver.send_to(group, m.Connect(port=driver.ports[-1].port))
        driver.serve(lambda: group.process.poll() is not None, still=True)
        driver.cancel(driver.ports[-1].port)
        assert driver.await_report(serial).why == "the group that was to join is gone"
        driver.serve(lambda: first.process.poll() is not None)
        assert lines(first) == changes(2, 2, 2)


def test_nothing_is_closed_for_groups_that_are_unknown(tmp_path: Path) -> None:
    with job(tmp_path) as driver:
        first = driver.start(2, "first")
        assert "groups [5] are not part of it" in driver.contract(5).why
        assert "no group would be left" in driver.contract(0).why
        driver.finish()
        assert lines(first) == changes(2, 2)


# ---------------------------------------------------------------- deaths

#: Processes that die in an expansion from 2 to 4, between closing and commit.
IN_EXPANSIONS = ("0:1:after:stop", "1:0:before:merge", "1:1:after:run", "0:0:before:commit")
#: The same in a contraction from 3 to 2: the first process leaves.
IN_CONTRACTIONS = ("0:0:before:run", "1:0:after:run", "1:1:before:commit")


def long_but(victims: tuple[str, ...], *short: str) -> list[object]:
    return [pytest.param(v, marks=() if v in short else pytest.mark.long) for v in victims]


def restarted(driver: Driver, size: int) -> Group:
    """Kill what is left of the job and restart it, as its agents and the service do."""
    driver.serve(lambda: RESTART_FILE in driver.segments, still=True)
    for group in driver.groups.values():
        driver.kill(group)
    again = driver.start(size, "restart")
    driver.serve(lambda: RESTART_FILE not in driver.segments, still=True)
    return again


@pytest.mark.parametrize("victim", long_but(IN_EXPANSIONS, "0:0:before:commit"))
def test_a_death_after_closing_in_an_expansion(tmp_path: Path, victim: str) -> None:
    """The job restarts and opens anew; a group that has not joined opens nothing.

    Nobody dies before rank 0 has sent the port: a world ends as soon as one of its ranks dies.
    """
    sent = tmp_path / "sent"
    fault = {"KILL": victim, "KILL_WHEN": str(sent)}
    with job(tmp_path) as driver:
        first = driver.start(2, "first", **fault)
        group = driver.ready(2, **fault)
        driver.order_join(group)
        sent.touch()
        driver.send_to(group, m.Connect(port=driver.ports[-1].port))
        dead = driver.groups[int(victim[0])]
        driver.serve(lambda: dead.process.poll() is not None, still=True)
        again = restarted(driver, 2)
        assert lines(first) == changes(2, 2)
        assert not lines(group)
        assert driver.expand(1).ok
        driver.serve(lambda: again.process.poll() is not None)
        assert again.process.returncode == 0, again.text
        assert lines(again) == changes(2, 2, 3)
        assert again.text.count("elements 40.0\n") == 1
        assert driver.segments == []


@pytest.mark.parametrize("victim", long_but(IN_CONTRACTIONS, "0:0:before:run"))
def test_a_death_after_closing_in_a_contraction(tmp_path: Path, victim: str) -> None:
    kill = tmp_path / "kill"
    with job(tmp_path, KILL_FILE=str(kill)) as driver:
        driver.start(1, "first")
        assert driver.expand(2).ok
        kill.write_text(victim)
        driver.decide = lambda _: m.Leave(serial=2, groups=[0])
        dead = driver.groups[int(victim[0])]
        driver.serve(lambda: dead.process.poll() is not None)
        driver.decide = lambda _: m.Proceed()
        kill.unlink()
        again = restarted(driver, 3)
        assert lines(driver.groups[0]) == changes(1, 1, 3)
        assert lines(driver.groups[1]) == changes(2, 3)
        driver.serve(lambda: again.process.poll() is not None)
        assert lines(again) == changes(3, 3)
        assert again.text.count("elements 40.0\n") == 1


def test_a_death_within_closing_leaves_no_restart_point(tmp_path: Path) -> None:
    """It is one of an iteration: other ranks may have changed what belongs to the job."""
    with job(tmp_path) as driver:
        driver.start(2, "first", KILL="0:1:before:stop")
        group = driver.ready(1)
        driver.decide = lambda _: m.Join(serial=1, group=1, size=1)
        driver.serve(lambda: driver.groups[0].process.poll() is not None)
        assert RESTART_FILE not in driver.segments
        assert not lines(group)


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize("size", [1, 2])
def test_after_an_error_nothing_is_closed_or_finalised(tmp_path: Path, size: int) -> None:
    done = run(size, program(tmp_path), SUPPORT=str(SUPPORT), FAIL_AT="0:3")
    assert done.returncode != 0
    assert "ValueError: injected" in done.stderr
    assert "open second" in done.stdout
    assert "close" not in done.stdout
    assert "raised" not in done.stderr


#: The last rank fails while it closes, and catches what the loop raises.
FAILS = """
    import os
    a = app.rows("a", (4,))
    @app.each_size
    def outer(comm):
        try:
            yield
        finally:
            print("outer is closed")
    @app.each_size
    def inner(comm):
        try:
            yield
        finally:
            if comm.rank == comm.size - 1:
                {fault}
            comm.Barrier()
    try:
        for step in app.iterations(10):
            inner()
    except Exception as error:
        print("caught", error)
    print("behind the loop", flush=True)
"""
FAULTS = {
    "raise OSError('disk full')": "OSError: disk full",
    "raise SystemExit(0)": "inner of app.each_size exits with 0 while it closes",
    "yield": "inner of app.each_size has a second yield",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_error_in_closing_before_a_resize_aborts_the_job(tmp_path: Path, fault: str) -> None:
    """At once, although the program catches errors of the loop."""
    with Driver(tmp_path, [script(tmp_path, FAILS.format(fault=fault))]) as driver:
        first = driver.start(2, "first")
        group = driver.ready(1)
        driver.decide = lambda _: m.Join(serial=1, group=1, size=1)
        driver.serve(lambda: first.process.poll() is not None)
        assert first.process.returncode == 1
        assert FAULTS[fault] in first.text
        assert not re.search("caught|behind the loop|outer is closed", first.text)
        assert RESTART_FILE not in driver.segments
        assert [FAULTS[fault] in each.why for each in driver.faults] == [True]
        driver.kill(group)


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("fault", FAULTS)
def test_an_error_in_closing_at_the_end_aborts_the_job(
    tmp_path: Path, fault: str, size: int
) -> None:
    done = run(size, script(tmp_path, FAILS.format(fault=fault)))
    assert done.returncode == 1
    assert FAULTS[fault] in done.stderr
    assert "behind the loop" in done.stdout
    assert "outer is closed" not in done.stdout


def test_an_error_in_closing_names_the_function(tmp_path: Path) -> None:
    done = run(1, script(tmp_path, FAILS.format(fault="raise OSError('disk full')")))
    assert "raised by inner of app.each_size while it closed" in done.stderr


def no_yield(comm: MPI.Intracomm) -> None:
    """A function that is no generator."""


def test_wrong_use_is_an_error() -> None:
    needs = "it needs one yield, with the code that opens above it"

    def call(app: Application) -> None:
        @app.each_size
        def each(comm: MPI.Intracomm):
            yield comm.size

        each()

    def ends(app: Application) -> None:
        @app.each_size
        def each(comm: MPI.Intracomm):
            if comm == MPI.COMM_NULL:
                yield comm.size

        list(app.iterations(1))

    def in_a_loop(app: Application) -> None:
        for _ in app.iterations(1):

            @app.each_size
            def each(comm: MPI.Intracomm):
                yield comm.size

    here = "test_wrong_use_is_an_error.<locals>"
    check_wrong_use(
        lambda app: app.each_size(no_yield), f"no_yield of app.each_size has no yield: {needs}"
    )
    check_wrong_use(call, f"{here}.call.<locals>.each() is called while")
    check_wrong_use(ends, f"{here}.ends.<locals>.each of app.each_size ends without a yield")
    check_wrong_use(in_a_loop, f"{here}.in_a_loop.<locals>.each is given to app.each_size within")


# ---------------------------------------------------------------- derived communicators


def derived(comm: MPI.Intracomm) -> list[MPI.Comm]:
    """Collective over comm. Derive communicators in all ways, of some of which a rank has none."""
    half = comm.rank % 2
    cart = comm.Create_cart([comm.size], [True])
    split = comm.Split(half)
    later, request = comm.Idup()
    request.Wait()
    inter = split.Create_intercomm(0, comm, 1 - half, 5) if comm.size > 1 else comm.Dup()
    merged = inter.Merge() if isinstance(inter, MPI.Intercomm) else comm.Clone()
    ring = [(comm.rank + 1) % comm.size]
    return [
        cart,
        split,
        later,
        inter,
        merged,
        cart.Sub([True]),
        cart.Dup(),
        comm.Dup_with_info(MPI.INFO_NULL),
        comm.Create(comm.group),
        comm.Create_group(comm.group),
        MPI.Intracomm.Create_from_group(comm.group),
        comm.Split_type(MPI.COMM_TYPE_SHARED),
        comm.Create_graph([1] * comm.size, [0] * comm.size),
        comm.Create_dist_graph_adjacent(ring, ring),
        comm.Split(MPI.UNDEFINED if comm.rank else 0),
    ]


@pytest.mark.mpi(min_size=2)
def test_derived_communicators_are_freed() -> None:
    """Of those that the function frees itself, by any handle, none is freed again."""
    comm = MPI.COMM_WORLD.Dup()
    made: list[MPI.Comm] = []
    before = comm.Dup()

    @EachSize
    def each(comm: MPI.Intracomm):
        MPI.Intracomm(comm.Dup()).Free()
        made[:] = derived(comm)
        mine = comm.Dup()
        copy = MPI.Intracomm(comm.Dup())
        yield mine
        mine.Free()
        copy.Free()
        made.append(comm.Dup())  # takes the context of the one before

    each.open(comm)
    assert each().allreduce(1) == comm.size
    outside = comm.Dup()
    each.close()
    assert all(other == MPI.COMM_NULL for other in made)
    assert before.allreduce(1) == outside.allreduce(1) == comm.allreduce(1)
    for own in (before, outside, comm):
        own.Free()


@pytest.mark.mpi(min_size=2)
def test_communicators_do_not_run_out() -> None:
    """MPICH has 2048 of them for a process."""

    @EachSize
    def each(comm: MPI.Intracomm):
        yield comm.Split(0).Dup(), comm.Create_cart([comm.size])

    for _ in range(1100):
        each.open(MPI.COMM_WORLD)
        each.close()


@pytest.mark.mpi(min_size=2)
def test_after_an_error_in_closing_others_free_their_own_alone() -> None:
    @EachSize
    def fails(comm: MPI.Intracomm):
        yield comm.Dup()
        raise ValueError("injected")

    @EachSize
    def other(comm: MPI.Intracomm):
        yield comm.Dup()

    comm = MPI.COMM_WORLD
    fails.open(comm)
    kept = fails()
    with pytest.raises(ClosingError):
        fails.close()
    with pytest.raises(ReshapeError, match="is closed"):
        fails()
    outside = comm.Dup()
    other.open(comm)
    freed = other()
    other.close()
    assert freed == MPI.COMM_NULL
    assert kept.allreduce(1) == outside.allreduce(1) == comm.size
    kept.Free()
    outside.Free()


# ---------------------------------------------------------------- the pause


def test_closing_is_a_phase_of_the_pause_outside_of_the_join(tmp_path: Path) -> None:
    """The join begins after the last line of the function and ends before the move."""
    body = """
        import time
        import reshape.resizing.transaction as transaction
        a, ended, relay = app.rows("a", (4,)), [], transaction.relay
        def measured(*arguments):
            if ended and app.comm.rank == 0:
                print(time.perf_counter() - ended[-1], flush=True)
            return relay(*arguments)
        transaction.relay = measured
        @app.each_size
        def slow(comm):
            yield
            time.sleep(0.3)
            ended.append(time.perf_counter())
        for step in app.iterations(10):
            slow()
    """
    with Driver(tmp_path, [script(tmp_path, body)]) as driver:
        first = driver.start(2, "first")
        assert driver.expand(1).ok
        report = driver.contract(1)
        driver.finish()
        between = float(first.text.split()[-1])
    assert report.ok
    assert report.times.close_s >= 0.3
    assert 0 < report.times.join_s <= between
    assert report.times.pause_s >= report.times.close_s + report.times.join_s


# ---------------------------------------------------------------- the page

#: What the example of a page needs: a solver that shows the size for which it was built.
SOLVER = """
    import os, signal
    if "CHECKPOINTS" in os.environ:
        app.checkpoint(every=400, dir=os.environ["CHECKPOINTS"])
    start, sizes = app.is_fresh_start, []
    class Solver:
        def __init__(self, comm, local):
            sizes.append(comm.allreduce(1))
            self.local = local
            self.steps = 0
        def step(self):
            self.local += 1
            self.steps += 1
            if start and str(self.steps) == os.environ.get("DIE_AT"):
                os.kill(os.getpid(), signal.SIGKILL)
    u = app.rows("u", (10,))
"""


def block_of_the_page(word: str) -> str:
    """Return the block of the page that has this word."""
    text = (ROOT / "docs" / "make-it-resizable.md").read_text()
    blocks = [rest.split("```")[0] for rest in text.split("```python\n")[1:]]
    (found,) = (block for block in blocks if word in block)
    return found


def example_of_the_page(folder: Path) -> str:
    """Write a program with the solver of the page."""
    end = "whole = u.gather()\nprint('sizes', *sizes, whole)\n"
    return script(folder, dedent(SOLVER) + block_of_the_page("Solver(") + end)


def test_the_files_of_the_page_follow_the_size(tmp_path: Path) -> None:
    """All ranks write the size to one file, at each size."""
    begin = f"import os\nfrom mpi4py import MPI\nos.chdir({str(tmp_path)!r})\napp.rows('u', (9,))\n"
    write = "    out.Write_at(8 * step + cart.rank, b'%d' % cart.size)\n"
    with Driver(tmp_path, [script(tmp_path, begin + block_of_the_page("def files(") + write)]) as d:
        d.start(1, "first")
        assert d.expand(2).ok
        assert d.contract(0).ok
        d.finish()
    text = (tmp_path / "x.bin").read_bytes().replace(b"\0", b"").decode()
    assert re.fullmatch("1+(333)+(22)+", text)
    assert text.count("1") + text.count("333") + text.count("22") == 100


def test_the_example_of_the_page_is_resized(tmp_path: Path) -> None:
    with Driver(tmp_path, [example_of_the_page(tmp_path)]) as driver:
        driver.start(1, "first")
        assert driver.expand(2).ok
        assert driver.contract(0).ok
        assert driver.expand(1).ok
        text = driver.finish()
    assert text.splitlines().count(f"sizes 3 2 3 [{' '.join(['1000.'] * 10)}]") == 1


def test_the_example_of_the_page_restarts(tmp_path: Path) -> None:
    path, checkpoints = example_of_the_page(tmp_path), str(tmp_path / "checkpoints")
    assert run(2, path, CHECKPOINTS=checkpoints, DIE_AT="900").returncode != 0
    again = run(3, path, CHECKPOINTS=checkpoints, RESHAPE_RESTART_FROM=checkpoints)
    assert f"sizes 3 [{' '.join(['1000.'] * 10)}]" in again.stdout, again.stderr
