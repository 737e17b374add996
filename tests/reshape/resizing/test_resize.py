"""Jobs that expand and contract: real mpiexec groups that join, move their data, and leave."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest
from driver import TIMEOUT_S, Driver, Group, processes
from example_counts import repetitions
from paths import SUPPORT
from resizable import sparse

from reshape.data.segments import SPARE
from reshape.files.job_folder import Position, read_positions
from reshape.topology import Topology
from reshape.wire.link import ANSWER_LIMIT_S
from scheduler.protocol import messages as m

PROGRAM = SUPPORT / "resizable.py"


def job(folder: Path, iterations: int = 60, **environment: str) -> Driver:
    return Driver(folder, [str(PROGRAM), str(iterations), "0"], **environment)


def have_ended(processes: list[int]) -> bool:
    return not any(psutil.pid_exists(pid) for pid in processes)


def sizes(text: str) -> list[int]:
    """Return the sizes that the program reports, after checking that its data was correct."""
    line = next(line for line in text.splitlines() if line.startswith("sizes"))
    assert line.endswith(" right"), text
    return [int(word) for word in line.split()[1:-1]]


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, marks=pytest.mark.long),
        pytest.param({"MESSAGES": "1"}, marks=pytest.mark.long),
        pytest.param({"HOSTS": "1 2"}, marks=pytest.mark.long),
        {"HOSTS": "1 2", "RELABEL": "1", "REVERSE": "1", "SPARSE": "1"},
    ],
    ids=["in memory", "messages", "two hosts", "two hosts, another order"],
)
def test_the_original_group_leaves(tmp_path: Path, options: dict[str, str]) -> None:
    """Sizes 2, 4, 6, 2; the first group has ended."""
    with job(tmp_path) as driver:
        original = driver.start(2, "first", **options)
        second, third = driver.ready(2, **options), driver.ready(2, **options)
        leaving = processes(original) + processes(second)
        assert len(leaving) == 4
        for group in (second, third):
            report = driver.join(group)
            assert report.ok, report.why
            assert report.times.moved_bytes > 0
            assert report.times.move_s > 0
        assert driver.contract(0, 1).ok
        assert have_ended(leaving)
        assert original.process.returncode == second.process.returncode == 0
        assert sizes(driver.finish()) == [2, 4, 6, 2]
        assert driver.facts == {"verified": True, "size": 2}
        assert driver.segments == []
        assert [hello.size for hello in driver.hellos] == [2]


@pytest.mark.long
def test_groups_that_joined_over_tcp_end_without_a_crash(tmp_path: Path) -> None:
    """UCX describes no missing requests, whose memory would have contents that let it crash."""
    ucx = {"UCX_TLS": "tcp,self", "UCX_LOG_LEVEL": "warn"}
    with job(tmp_path, MALLOC_PERTURB_="170", **ucx) as driver:
        driver.start(2, "first")
        for group in range(3):
            assert driver.expand(1).ok
            assert driver.contract(group).ok
        output = driver.finish()
    assert sizes(output) == [2, 3, 1, 2, 1, 2, 1]
    missing = [line for line in output.splitlines() if "not returned to mpool" in line]
    assert not any("{" in line for line in missing), missing


@pytest.mark.parametrize(
    "hosts",
    [
        {},
        pytest.param(dict(enumerate(["1 2", "2", "1", "3", "1 3"])), marks=pytest.mark.long),
    ],
    ids=["one host", "three hosts"],
)
def test_groups_assemble_to_start_and_to_join(tmp_path: Path, hosts: dict[int, str]) -> None:
    """Sizes 2+1+1, then 1+2 more at once; any of the groups leave."""

    def place(group: int) -> dict[str, str]:
        return {"HOSTS": hosts[group], "REVERSE": "1"} if hosts else {}

    groups, joining = {"RESHAPE_GROUPS": "0:2 1:1 2:1"}, {"RESHAPE_JOINING": "3:1 4:2"}
    with job(tmp_path, SPARSE="1") as driver:
        first = [driver.start(n, "first", **groups, **place(i)) for i, n in enumerate((2, 1, 1))]
        driver.assemble(*first)
        driver.serve(lambda: driver.latest is not None)
        assert [hello.size for hello in driver.hellos] == [2]
        more = groups | joining
        joined = [driver.start(n, "join", **more, **place(i)) for i, n in enumerate((1, 2), 3)]
        driver.assemble(*joined)
        driver.serve(lambda: joined[0].peer != b"", still=True)
        joined[0].size = 3  # those of all of them
        report = driver.join(joined[0])
        assert report.ok, report.why
        assert driver.contract(1).ok
        assert driver.contract(0, 3).ok
        assert sizes(driver.finish()) == [4, 7, 6, 3]
        assert driver.facts == {"verified": True, "size": 3}
        assert driver.segments == []


@pytest.mark.long
def test_a_job_moves_from_one_host_to_another(tmp_path: Path) -> None:
    """In each move some data stays on its host, and some goes to another one."""
    with job(tmp_path, SPARSE="1") as driver:
        driver.start(2, "first", HOSTS="1 1")
        assert driver.expand(3, HOSTS="1 2 2").ok
        assert driver.expand(2, HOSTS="2 3").ok
        assert driver.contract(0).ok
        assert {folder.name[-2:] for folder in driver.folders if list(folder.iterdir())} == {
            "-1",
            "-2",
            "-3",
        }
        assert driver.contract(1).ok
        assert sizes(driver.finish()) == [2, 5, 7, 5, 2]
        assert driver.facts == {"verified": True, "size": 2}
        assert driver.segments == []


def test_each_rank_notes_where_it_is(tmp_path: Path) -> None:
    """Also ranks that have joined; those that have left are not there any more."""

    def places(size: int) -> set[tuple[int, int]]:
        """Groups and iterations, while all ranks are at a resize point."""
        assert driver.latest is not None
        before = driver.latest.iteration
        driver.serve(lambda: driver.latest.iteration > before)
        positions: list[Position] = []

        def has_arrived() -> bool:  # the others come to the resize point after rank 0
            positions[:] = read_positions(driver.shm)
            return {p.at_point for p in positions} == {True}

        driver.serve(has_arrived, still=True)
        assert [p.rank for p in positions] == list(range(size))
        assert {p.loop for p in positions} == {0}
        assert {p.iteration for p in positions} == {driver.latest.iteration - 1}
        return {(p.group, p.pid) for p in positions}

    with job(tmp_path) as driver:
        first = driver.start(2, "first")
        driver.serve(lambda: driver.latest is not None)
        assert {pid for _, pid in places(2)} == set(processes(first))
        second = driver.ready(1)
        assert {group for group, _ in places(2)} == {0}  # those that wait are not in the job
        assert driver.join(second).ok
        assert {group for group, _ in places(3)} == {0, 1}
        assert driver.contract(0).ok
        assert places(1) == {(1, processes(second)[0])}
        driver.finish()


@pytest.mark.long
def test_an_interior_group_leaves_and_another_joins(tmp_path: Path) -> None:
    with job(tmp_path) as driver:
        driver.start(1, "first")
        middle, last = driver.ready(2), driver.ready(1)
        assert driver.join(middle).ok
        assert driver.join(last).ok
        assert driver.contract(middle.number).ok
        assert driver.expand(3).ok
        assert driver.contract(0, last.number).ok
        assert sizes(driver.finish()) == [1, 3, 4, 2, 5, 3]


def test_the_memory_of_an_earlier_configuration_serves_a_later_one(tmp_path: Path) -> None:
    """The inode of a segment identifies its memory; nothing announces a contraction."""

    def memory(array: str, epoch: int) -> set[int]:
        files = (file for folder in driver.folders for file in folder.iterdir())
        return {f.stat().st_ino for f in files if f.name.startswith(f"{array}.e{epoch}.r")}

    with job(tmp_path) as driver:
        driver.start(2, "first")
        driver.serve(lambda: driver.latest is not None)
        before = memory("a", 0)
        group = driver.ready(2)
        assert driver.join(group).ok
        contracted = driver.contract(group.number)
        assert contracted.ok
        assert contracted.times.spare_bytes > 0
        assert memory("a", contracted.serial) == before
        assert driver.expand(2).ok
        assert sizes(driver.finish()) == [2, 4, 2, 4]
        assert driver.segments == []


def test_requests_have_the_epoch_and_the_registered_bytes(tmp_path: Path) -> None:
    with job(tmp_path, SPARSE="1") as driver:
        driver.start(1, "first")
        driver.serve(lambda: driver.latest is not None)
        assert driver.latest is not None
        before = driver.latest
        assert (before.epoch, before.size, str(before.topology)) == (0, 1, "arbitrary")
        data = 61 * 47 * (8 + 4) + 103 * 4 + 103 * 3 * 16 + 2 * 5 * 8 + 9 * 7 * 8
        data += 103 * 24 + 53 * (8 + 8) + sparse().nnz * (4 + 8)
        data += (3 * 9 * 7 + 10 * 7 + 2 * 54) * 8 + 2 * 61 * 47 * 2 + 103 * (48 + 4)
        assert before.registered_bytes == data + (9 + 11) * 8
        serial = driver.expand(2).serial
        driver.serve(lambda: driver.latest is not None and driver.latest.size == 3)
        assert (driver.latest.epoch, driver.latest.registered_bytes) == (
            serial,
            data + (9 + 3 * 11) * 8,
        )
        assert driver.latest.iteration > before.iteration
        assert 0 < driver.latest.iteration_s < 5
        driver.finish()


def test_a_repeated_decision_that_is_committed_is_only_reported_again(tmp_path: Path) -> None:
    """A service that lost the report repeats the decision; the group is not accepted twice."""
    with job(tmp_path) as driver:
        driver.start(1, "first")
        group = driver.ready(1)
        serial = driver.join(group).serial
        count = driver.points
        driver.serve(lambda: driver.points > count + 3)
        count, reports = driver.points, driver.report_count
        driver.serve(lambda: driver.points > count + 3)
        assert driver.report_count == reports  # it was confirmed
        driver.reports.clear()
        driver.decide = lambda _: m.Join(serial=serial, group=group.number, size=1)
        assert driver.await_report(serial).ok
        driver.decide = lambda _: m.Proceed()
        assert sizes(driver.finish()) == [1, 2]
        assert len(driver.ports) == 1


def test_a_report_is_repeated_until_it_is_confirmed(tmp_path: Path) -> None:
    with job(tmp_path) as driver:
        driver.start(1, "first")
        group = driver.ready(1)
        driver.confirms_reports = False
        driver.join(group)
        reports = driver.report_count
        driver.serve(lambda: driver.report_count > reports + 2)
        driver.confirms_reports = True
        reports = driver.report_count
        driver.serve(lambda: driver.report_count > reports)
        count = driver.points
        driver.serve(lambda: driver.points > count + 5)
        assert driver.report_count == reports + 1
        driver.finish()


def test_an_impossible_contraction_is_rolled_back(tmp_path: Path) -> None:
    with job(tmp_path) as driver:
        driver.start(2, "first")
        for groups in ([0], [5], [0, 1, 2]):
            report = driver.contract(*groups)
            assert not report.ok
            assert "no group would be left" in report.why or "not part of it" in report.why
        assert sizes(driver.finish()) == [2]
        assert driver.segments == []


def test_an_abandoned_group_ends_by_itself(tmp_path: Path) -> None:
    with job(tmp_path) as driver:
        driver.start(1, "first")
        group = driver.ready(2)
        driver.send_to(group, m.Abandon(why="the job was contracted"))
        assert "does not join: the job was contracted" in driver.finish()
        assert group.process.returncode == 0


def cpu_seconds(group: Group) -> float:
    times = [psutil.Process(pid).cpu_times() for pid in processes(group)]
    return sum(t.user + t.system for t in times)


def test_a_waiting_group_uses_no_processor(tmp_path: Path) -> None:
    """The running job uses the cores."""
    with job(tmp_path) as driver:
        driver.start(1, "first")
        group = driver.ready(2)
        before, until = cpu_seconds(group), time.monotonic() + 0.6
        driver.serve(lambda: time.monotonic() > until, still=True)
        assert cpu_seconds(group) - before < 0.15
        driver.send_to(group, m.Abandon(why="enough"))
        driver.finish()


def test_a_group_with_another_number_of_iterations_is_refused(tmp_path: Path) -> None:
    with job(tmp_path) as driver:
        driver.start(1, "first")
        driver.command[-2] = "61"
        report = driver.expand(1)
        assert not report.ok
        assert "app.iterations(60) where the group that joins has app.iterations(61)" in report.why
        assert sizes(driver.finish()) == [1]


def test_a_group_with_other_registrations_is_refused(tmp_path: Path) -> None:
    with job(tmp_path) as driver:
        driver.start(1, "first")
        report = driver.expand(2, SMALLER="1")
        assert not report.ok
        assert "the job has block_cyclic 'a' (shape=(61, 47), block=(5, 4)" in report.why
        assert "joins has block_cyclic 'a' (shape=(60, 47)" in report.why
        assert driver.expand(1).ok  # the job can still expand
        assert sizes(driver.finish()) == [1, 2]


def test_a_size_that_the_process_grid_cannot_have_is_refused(tmp_path: Path) -> None:
    with job(tmp_path, GRID="1") as driver:
        driver.start(2, "first")
        report = driver.expand(1)
        assert not report.ok
        assert report.why == (
            "array 'pairs' has grid=(0, 2), which needs a multiple of 2 processes, not 3: name the "
            "valid sizes by reshape.application(topology=...)"
        )
        assert driver.expand(2).ok
        assert sizes(driver.finish()) == [2, 4]


def test_an_unexpected_group_is_refused(tmp_path: Path) -> None:
    with job(tmp_path) as driver:
        driver.start(1, "first")
        group, other = driver.ready(1), driver.ready(1)
        serial = driver.order_join(group)
        driver.send_to(other, m.Connect(port=driver.ports[-1].port))
        report = driver.await_report(serial)
        assert not report.ok
        assert report.why == "expected group 1 of 1 processes, got group 2 of 1"
        driver.send_to(group, m.Abandon(why="not now"))
        assert sizes(driver.finish()) == [1]


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        pytest.param(
            "no-memory", "no memory for the new layout on rank 1: injected", marks=pytest.mark.long
        ),
        pytest.param(
            "unmappable",
            "rank 2 cannot map the data of other processes: [Errno 24] Too many open",
            marks=pytest.mark.long,
        ),
        ("corrupt", "the checksum of a has changed in the move"),
        pytest.param(
            "unpicklable",
            "app.state['function'] cannot be pickled: Can't pickle ",
            marks=pytest.mark.long,
        ),
        ("unloadable", "app.state cannot be restored where the group starts"),
    ],
)
def test_a_resize_that_is_rolled_back_loses_nothing(tmp_path: Path, fault: str, why: str) -> None:
    with job(tmp_path, SPARSE="1") as driver:
        driver.start(2, "first", FAULT=fault)
        report = driver.expand(2, FAULT=fault)
        assert not report.ok
        assert why in report.why
        driver.serve(lambda: not [name for name in driver.segments if ".e0." not in name])
        assert sizes(driver.finish()) == [2]
        assert driver.segments == []


def test_private_memory_is_used_if_shared_memory_is_full(tmp_path: Path) -> None:
    """The job runs and resizes. It logs that it cannot restart, and leaves no restart point."""
    with job(tmp_path) as driver:
        driver.start(2, "first", FAULT="full")
        assert driver.expand(1, FAULT="full").ok
        assert driver.segments == []
        text = driver.finish()
        assert sizes(text) == [2, 3]
        assert text.count("go to private memory: No space left on device") == 3  # each process
        assert text.count("no restart point") == 1


def impatient_job(folder: Path) -> Driver:
    """A job with iterations of 10 ms that waits for answers as long as outside of tests."""
    return Driver(folder, [str(PROGRAM), "300", "0.01"], patient=False)


def test_a_job_continues_without_its_service_and_reconnects(tmp_path: Path) -> None:
    """It does not wait at each resize point."""
    with impatient_job(tmp_path) as driver:
        driver.start(2, "first")
        driver.serve(lambda: driver.points > 5)
        driver.end_service()
        assert driver.latest is not None
        before = driver.latest.iteration
        time.sleep(4 * ANSWER_LIMIT_S)
        driver.begin_service()
        count = driver.points
        driver.serve(lambda: driver.points > count)
        assert driver.latest.iteration > before + 8  # of 70 to 100
        assert sizes(driver.finish()) == [2]


def test_a_job_starts_without_its_service(tmp_path: Path) -> None:
    with impatient_job(tmp_path) as driver:
        driver.end_service()
        group = driver.start(1, "first")
        until = time.monotonic() + TIMEOUT_S
        while "starts without its service" not in group.text:
            assert time.monotonic() < until
            time.sleep(0.02)
        driver.begin_service()
        driver.serve(lambda: driver.points > 0)
        assert sizes(driver.finish()) == [1]


def test_communicator_and_array_of_before_a_resize_cannot_be_used(tmp_path: Path) -> None:
    with job(tmp_path) as driver:
        driver.start(1, "first", CHECK_STALE="1")
        assert driver.expand(1).ok
        assert "stale communicator raises, stale array is read-only" in driver.finish()


@pytest.mark.parametrize("size", [1, 2])
def test_a_program_that_contradicts_its_submission_is_refused(tmp_path: Path, size: int) -> None:
    with job(tmp_path) as driver:
        driver.welcome = m.Welcome(topology=Topology.parse("power-of-2"))
        group = driver.start(size, "first")
        driver.serve(lambda: group.process.poll() is not None)
        assert group.process.returncode != 0
        assert "submit it with --topology arbitrary, or without" in group.text
        assert group.text.count("submitted with power-of-2") == 1


def descriptors(group: Group) -> list[int]:
    return [psutil.Process(pid).num_fds() for pid in processes(group)]


def resident(group: Group) -> float:
    return sum(psutil.Process(pid).memory_info().rss for pid in processes(group)) / 2**20


@pytest.mark.long
def test_many_resizes_leak_nothing(tmp_path: Path) -> None:
    """Expand and contract often; descriptors and memory of the first group stay constant."""
    cycles = repetitions(30)
    with job(tmp_path, 300, SPARSE="1") as driver:
        first = driver.start(1, "first")
        following = driver.ready(1)
        history = []
        for cycle in range(cycles):
            group = following
            assert driver.join(group).ok
            if cycle < cycles - 1:
                following = driver.ready(1)
            assert driver.contract(group.number).ok
            kept = sum(name.endswith(SPARE) for name in driver.segments)
            files = len(driver.segments) - kept
            history.append((max(descriptors(first)), resident(first), files, kept))
        descriptors_, megabytes, files_, kept_ = zip(*history, strict=True)
        assert descriptors_[-1] <= descriptors_[4] + 2
        assert megabytes[-1] <= megabytes[4] + 10
        assert files_[-1] == files_[4] == 19
        half = cycles // 2  # sizes of ragged data differ, until there is a spare for each
        assert max(kept_[half:]) <= max(kept_[:half]) + 2
        assert [report.ok for report in driver.reports] == [True] * 2 * cycles
        driver.finish()
        assert driver.segments == []
    assert driver.folders == []
