"""Processes that die at each step of a resize: the job continues, or restarts correctly."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest
from driver import Driver, Group, processes
from paths import SUPPORT

from reshape.files.job_folder import RESTART_FILE
from scheduler.protocol import messages as m

PROGRAM = SUPPORT / "resizable.py"
#: Processor seconds, and waits, of a process that would have ended the resize meanwhile.
SETTLED_S, SETTLED_WAITS = 0.1, 50
#: Looks at a process that spends nothing.
IDLE = 5


def job(folder: Path, **environment: str) -> Driver:
    return Driver(folder, [str(PROGRAM), "60", "0"], **environment)


def await_failure(driver: Driver, group: Group, still: bool = True) -> None:
    driver.serve(lambda: group.process.poll() is not None, still=still)
    assert group.process.returncode != 0


def settle(driver: Driver) -> None:
    """Let each remaining process run on for as long as it would need to end the resize wrongly.

    One that spends nothing in several looks is blocked, until the driver or a process answers.
    """
    alive = (group for group in driver.groups.values() if group.process.poll() is None)
    ranks = [psutil.Process(pid) for group in alive for pid in processes(group)]
    begins = last = [spent(rank) for rank in ranks]
    idle = [0] * len(ranks)

    def is_settled() -> bool:
        nonlocal last
        now = [spent(rank) for rank in ranks]
        for i, (before, present) in enumerate(zip(last, now, strict=True)):
            idle[i] = idle[i] + 1 if before == present else 0
        last = now
        return all(
            end[0] - begin[0] >= SETTLED_S or end[1] - begin[1] >= SETTLED_WAITS or looks >= IDLE
            for begin, end, looks in zip(begins, now, idle, strict=True)
        )

    driver.serve(is_settled, still=True)


def spent(rank: psutil.Process) -> tuple[float, float]:
    """Processor seconds of a process, and how often it has waited; endless if it has ended."""
    try:
        times, switches = rank.cpu_times(), rank.num_ctx_switches()
    except psutil.Error:
        return float("inf"), float("inf")
    return times.user + times.system, switches.voluntary


def restart(driver: Driver, size: int, **environment: str) -> Group:
    """Kill the remaining processes and restart the job, as an agent does at the deadline."""
    assert RESTART_FILE in driver.segments
    for group in driver.groups.values():
        driver.kill(group)
    group = driver.start(size, "restart", **environment)
    driver.serve(lambda: RESTART_FILE not in driver.segments, still=True)
    return group


def finished(driver: Driver, group: Group) -> str:
    """Answer the job until this group has ended; return its line about sizes and data."""
    driver.serve(lambda: group.process.poll() is not None)
    assert group.process.returncode == 0, group.text
    line = next(line for line in group.text.splitlines() if line.startswith("sizes"))
    assert line.endswith(" right")
    return line


def test_a_joining_group_dies_before_it_is_ready(tmp_path: Path) -> None:
    with job(tmp_path) as driver:
        first = driver.start(2, "first")
        await_failure(driver, driver.start(2, "join", KILL="1:1:before:await_port"))
        assert finished(driver, first) == "sizes 2 right"


@pytest.mark.parametrize("size", [1, pytest.param(3, marks=pytest.mark.long)])
def test_a_joining_group_dies_before_it_connects(tmp_path: Path, size: int) -> None:
    """The job waits in Accept, and a stand-in releases it, twice."""
    with job(tmp_path) as driver:
        first = driver.start(2, "first")
        for attempt in (1, 2):
            group = driver.ready(size, KILL=f"{attempt}:0:before:connect")
            serial = driver.order_join(group)
            driver.send_to(group, m.Connect(port=driver.ports[-1].port))
            await_failure(driver, group)
            settle(driver)
            assert RESTART_FILE in driver.segments
            driver.cancel(driver.ports[-1].port)
            report = driver.await_report(serial)
            assert not report.ok
            assert report.why == "the group that was to join is gone"
            assert RESTART_FILE not in driver.segments
        assert driver.expand(1).ok
        assert finished(driver, first) == "sizes 2 3 right"


def test_the_service_ends_while_the_port_is_open(tmp_path: Path) -> None:
    """No service sends the group to the port, so the job must not wait in Accept."""
    with job(tmp_path) as driver:
        first = driver.start(2, "first")
        group = driver.ready(1)
        driver.answers_ports = False
        report = driver.await_report(driver.order_join(group))
        assert "no group can join: no answer from the scheduler service" in report.why
        driver.answers_ports = True
        assert driver.join(group).ok
        assert finished(driver, first) == "sizes 2 3 right"


#: Processes that die in an expansion and in a contraction: group, rank, when, step.
IN_EXPANSIONS = (
    "1:0:before:merge",
    "1:0:after:merge",
    "1:1:before:introduce",
    "1:0:before:allocate",
    "1:1:after:run",
    "1:0:before:run",
    "0:1:before:run",
    "0:0:after:relay",
    "1:0:before:commit",
    "0:0:before:commit",
)
IN_CONTRACTIONS = ("0:0:before:run", "1:0:after:run", "1:1:before:commit")


def each_victim(victims: Sequence[str], *not_long: str) -> pytest.MarkDecorator:
    """Run a test for each of these processes, all but some in long runs of the tests only."""
    marked = [pytest.param(v, marks=() if v in not_long else pytest.mark.long) for v in victims]
    return pytest.mark.parametrize("victim", marked)


@each_victim(IN_EXPANSIONS, "1:1:after:run")
def test_a_death_in_an_expansion_costs_at_most_a_restart(tmp_path: Path, victim: str) -> None:
    with job(tmp_path) as driver:
        driver.start(2, "first", KILL=victim)
        group = driver.ready(2, KILL=victim)
        driver.order_join(group)
        assert driver.latest is not None
        iteration = driver.latest.iteration
        driver.send_to(group, m.Connect(port=driver.ports[-1].port))
        await_failure(driver, driver.groups[int(victim[0])])
        settle(driver)
        again = restart(driver, 2)
        driver.serve(lambda: driver.latest is not None and driver.latest.iteration > iteration)
        assert driver.latest.iteration == iteration + 1  # no result is lost
        driver.serve(lambda: not [name for name in driver.segments if ".e0." not in name])
        assert driver.expand(1).ok
        assert finished(driver, again) == "sizes 2 3 right"
        assert driver.segments == []


@each_victim(IN_CONTRACTIONS, "1:0:after:run")
def test_a_death_in_a_contraction_costs_at_most_a_restart(tmp_path: Path, victim: str) -> None:
    """Three processes in two groups; the restarted job is one group of three."""
    with job(tmp_path, SPARSE="1") as driver:
        kill = str(tmp_path / "kill")
        driver.start(1, "first", KILL_FILE=kill)
        report = driver.expand(2, KILL_FILE=kill)
        assert report.ok
        # Not earlier, because the expansion calls the same functions.
        (tmp_path / "kill").write_text(victim)
        driver.decide = lambda _: m.Leave(serial=2, groups=[0])
        await_failure(driver, driver.groups[int(victim[0])], still=False)
        driver.decide = lambda _: m.Proceed()
        settle(driver)
        (tmp_path / "kill").unlink()
        again = restart(driver, 3)
        driver.serve(lambda: driver.latest is not None and driver.latest.size == 3)
        assert driver.latest is not None
        assert driver.latest.epoch == report.serial
        assert finished(driver, again) == "sizes 1 3 right"
        assert driver.segments == []


@pytest.fixture
def huge_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays of some MB, which are on huge pages if the kernel has them."""
    monkeypatch.setenv("LARGE", "yes")
    monkeypatch.setenv("SPARSE", "1")


@each_victim(IN_EXPANSIONS)
@pytest.mark.usefixtures("huge_pages")
def test_a_death_in_an_expansion_on_huge_pages(tmp_path: Path, victim: str) -> None:
    test_a_death_in_an_expansion_costs_at_most_a_restart(tmp_path, victim)


@each_victim(IN_CONTRACTIONS)
@pytest.mark.usefixtures("huge_pages")
def test_a_death_in_a_contraction_on_huge_pages(tmp_path: Path, victim: str) -> None:
    test_a_death_in_a_contraction_costs_at_most_a_restart(tmp_path, victim)


def test_groups_that_restart_have_no_common_world(tmp_path: Path) -> None:
    """A job of two groups restarts in two groups: MPI.COMM_WORLD is neither's communicator."""
    with job(tmp_path) as driver:
        first = driver.start(1, "first", CHECK_STALE="1")
        assert driver.expand(1).ok
        group = driver.ready(1, KILL="2:0:before:run")
        driver.order_join(group)
        driver.send_to(group, m.Connect(port=driver.ports[-1].port))
        await_failure(driver, group)
        for each in driver.groups.values():
            driver.kill(each)
        environment = {"RESHAPE_GROUPS": "3:1 4:1", "CHECK_STALE": "1"}
        again, other = (driver.start(1, "restart", **environment) for _ in range(2))
        driver.serve(lambda: other.peer != b"" and driver.ports[-1].group == other.number)
        driver.send_to(other, m.Connect(port=driver.ports[-1].port))
        assert finished(driver, again) == "sizes 1 2 right"
        texts = [first.text, again.text, other.text]
        assert ["COMM_WORLD is retired" in text for text in texts] == [False, True, True]


@pytest.mark.long
@pytest.mark.parametrize("victim", ["0:1:before:run", "1:1:before:commit"])
def test_a_job_on_two_hosts_restarts_where_its_segments_are(tmp_path: Path, victim: str) -> None:
    """The order of the ranks is reversed at each resize, and another one after the restart."""
    kill = str(tmp_path / "kill")
    options = {"KILL_FILE": kill, "REVERSE": "1"}
    with job(tmp_path, SPARSE="1") as driver:
        driver.start(2, "first", HOSTS="1 2", **options)
        assert driver.expand(2, HOSTS="1 1", **options).ok
        (tmp_path / "kill").write_text(victim)
        group = driver.ready(2, HOSTS="3 2", **options)
        driver.order_join(group)
        driver.send_to(group, m.Connect(port=driver.ports[-1].port))
        await_failure(driver, driver.groups[int(victim[0])])
        settle(driver)
        assert driver.segments.count(RESTART_FILE) == 1
        (tmp_path / "kill").unlink()
        elsewhere = driver.start(4, "restart", HOSTS="1 1 3 1")
        await_failure(driver, elsewhere)
        assert (
            "no process of the job reaches the data of rank 2, which was in shared memory"
            in elsewhere.text
        )
        restart(driver, 4, HOSTS="2 1 1 1", REVERSE="1")
        driver.serve(lambda: driver.latest is not None and driver.latest.size == 4)
        last = driver.ready(1, HOSTS="2", REVERSE="1")  # becomes rank 0
        assert driver.join(last).ok
        assert finished(driver, last) == "sizes 2 4 5 right"


@pytest.mark.long
def test_a_joining_process_that_dies_in_an_abandoned_move_leaves_no_segment(
    tmp_path: Path,
) -> None:
    """The joining group corrupts an element, so all ranks give the move up; then a rank dies.

    Not earlier: what MPI has accepted from a process may die with it, and the others would wait.
    """
    told = tmp_path / "told"
    fault = {"FAULT": "corrupt", "KILL": "1:1:before:abandon", "KILL_WHEN": str(told)}
    with job(tmp_path) as driver:
        first = driver.start(2, "first")
        group = driver.ready(2, **fault)
        report = driver.join(group)
        told.touch()
        assert "the checksum of a has changed" in report.why
        await_failure(driver, group)
        assert driver.segments
        new = [name for name in driver.segments if ".e0." not in name]
        assert {name[-len(".r0.spare") :] for name in new} == {".r0.spare", ".r1.spare"}
        assert driver.expand(1).ok
        assert finished(driver, first) == "sizes 2 3 right"
        assert driver.segments == []


def test_a_death_in_a_restart_is_followed_by_another_restart(tmp_path: Path) -> None:
    with job(tmp_path) as driver:
        driver.start(2, "first")
        group = driver.ready(1, KILL="1:0:before:run")
        driver.order_join(group)
        driver.send_to(group, m.Connect(port=driver.ports[-1].port))
        await_failure(driver, group)
        driver.kill(driver.groups[0])
        await_failure(driver, driver.start(2, "restart", KILL="2:1:before:restarted"))
        assert finished(driver, restart(driver, 2)) == "sizes 2 right"


def test_after_the_commit_there_is_no_restart_point(tmp_path: Path) -> None:
    """A process that dies then dies within an iteration, so no consistent state exists."""
    with job(tmp_path) as driver:
        driver.start(2, "first")
        group = driver.ready(1, KILL="1:0:after:commit")
        driver.order_join(group)
        driver.send_to(group, m.Connect(port=driver.ports[-1].port))
        await_failure(driver, group)
        settle(driver)
        assert RESTART_FILE not in driver.segments
        driver.kill(driver.groups[0])
        again = driver.start(2, "restart")
        await_failure(driver, again)
        assert "cannot restart: there is no" in again.text
        assert again.text.count("cannot restart") == 1


def test_a_restart_on_another_size_or_of_another_program_is_refused(tmp_path: Path) -> None:
    with job(tmp_path) as driver:
        driver.start(2, "first", KILL="0:1:before:relay")
        group = driver.ready(1)
        driver.order_join(group)
        driver.send_to(group, m.Connect(port=driver.ports[-1].port))
        await_failure(driver, driver.groups[0])
        driver.kill(group)
        wrong = driver.start(3, "restart")
        await_failure(driver, wrong)
        assert "cannot restart on 3 processes" in wrong.text
        changed = driver.start(2, "restart", SMALLER="1")
        await_failure(driver, changed)
        assert "cannot restart: its array" in changed.text
        assert finished(driver, restart(driver, 2)) == "sizes 2 right"


def test_a_new_start_of_a_job_does_not_use_what_the_earlier_one_left(tmp_path: Path) -> None:
    """The node died within a resize; a restart point that stayed would be older than the data."""
    with job(tmp_path, SPARSE="1") as driver:
        driver.start(2, "first", KILL="0:1:before:relay")
        group = driver.ready(1)
        driver.order_join(group)
        driver.send_to(group, m.Connect(port=driver.ports[-1].port))
        await_failure(driver, driver.groups[0])
        driver.kill(group)
        assert RESTART_FILE in driver.segments
        again = driver.start(3, "first")
        count = driver.points
        driver.serve(lambda: driver.points > count + 3)
        assert RESTART_FILE not in driver.segments
        assert {name.rpartition(".e")[2][0] for name in driver.segments} == {"0"}
        driver.groups = {again.number: again}
        assert driver.finish().endswith("sizes 3 right\n")
