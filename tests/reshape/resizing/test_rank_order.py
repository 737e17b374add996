"""Ranks in another order after a resize: fewer bytes are sent, and nobody is taken for another."""

from __future__ import annotations

from pathlib import Path

from driver import run
from test_resize import gone, job, sizes

from reshape.wire import messages as m

BEST = """
import sys
from itertools import permutations
from mpi4py import MPI
from redistribution import BlockCyclic, Cuts, Plan, Replicated
from reshape.resizing import rank_order as relabelling

comm = MPI.COMM_WORLD
layouts = {
    "rows": (Cuts.even((100, 3), 3), Cuts.even((100, 3), 4), 24),
    "columns": (Cuts.even((5, 77), 3, 1), Cuts.even((5, 77), 4, 1), 8),
    "blocks": (BlockCyclic((40, 30), (3, 2), (1, 3)), BlockCyclic((40, 30), (3, 2), (2, 2)), 4),
    "copies": (Replicated((1000,), 3), Replicated((1000,), 4), 8),
    "ragged": (Cuts((50,), (0, 1, 2, 50)), Cuts((50,), (0, 48, 48, 49, 50)), 8),
}
layouts["back"] = (layouts["rows"][1], Cuts.even((100, 3), 4), 8)
for names in sys.argv[1].split(","):
    chosen = [layouts[name] for name in names.split("+")]
    olds = range(chosen[0][0].nprocs)
    moved = lambda order: sum(Plan(a, b, olds, order).bytes_moved(n) for a, b, n in chosen)
    relabelling.WORTH_BYTES = 0
    order = relabelling.best_order(comm, [(Plan(a, b, olds), n) for a, b, n in chosen], range(4), 1)
    assert comm.allgather(order) == [order] * 4
    assert moved(order) == min(map(moved, permutations(range(4)))), (names, order)
    if moved(order) == moved(range(4)):
        assert order == (0, 1, 2, 3)
    relabelling.WORTH_BYTES = moved(range(4)) + 1
    assert relabelling.best_order(
        comm, [(Plan(a, b, olds), n) for a, b, n in chosen], range(4), 3
    ) == (0, 1, 2, 3)
    told = relabelling.reordered(comm.Dup(), order).rank
    assert order[told] == comm.rank
    if comm.rank == 0:
        print(names, moved(range(4)) - moved(order))
"""


def test_best_order_is_the_best_of_all_over_all_arrays() -> None:
    cases = ["rows", "columns", "blocks", "copies", "ragged", "rows+ragged", "back"]
    cases += ["rows+columns+blocks+copies+ragged"]
    done = run(4, "-c", BEST, ",".join(cases))
    assert done.returncode == 0, done.stderr
    saved = dict(line.split() for line in done.stdout.splitlines())
    assert list(saved) == cases
    assert int(saved["ragged"]) > 0
    assert int(saved["copies"]) == int(saved["back"]) == 0


def moved_bytes(folder: Path, **environment: str) -> list[int]:
    """Nearly-square sizes up and down, groups leaving from the middle and the beginning."""
    folder.mkdir()
    way = {"MESSAGES": "1"} | environment
    with job(folder) as driver:
        driver.start(2, "first", **way)
        reports = [driver.grow(2, **way), driver.grow(2, **way), driver.leave(1)]
        reports += [driver.grow(2, **way), driver.leave(0, 2)]
        assert all(report.ok for report in reports), reports
        assert sizes(driver.finish()) == [2, 4, 6, 4, 6, 2]
        assert driver.segments == []
    return [report.times.moved_bytes for report in reports]


def test_fewer_bytes_are_moved(tmp_path: Path) -> None:
    plain = moved_bytes(tmp_path / "plain")
    relabelled = moved_bytes(tmp_path / "relabelled", RELABEL="1")
    assert relabelled[0] < plain[0]
    assert sum(relabelled) < sum(plain)


def test_groups_leave_and_rank_0_changes_after_every_resize(tmp_path: Path) -> None:
    """The order is reversed each time, so that a process that has just joined becomes rank 0."""
    way = {"MESSAGES": "1", "REVERSE": "1"}
    with job(tmp_path) as driver:
        original = driver.start(2, "first", **way)
        second = driver.ready(1, **way)
        first_ones, second_ones = original.processes(), second.processes()
        assert driver.join(second).ok
        met = driver.met
        driver.serve(lambda: driver.met > met + 3)
        assert driver.grow(2, **way).ok
        assert driver.leave(1).ok
        assert gone(second_ones)
        assert not any(map(gone, ([pid] for pid in first_ones)))
        assert driver.grow(1, **way).ok
        assert driver.leave(0, 3).ok
        assert gone(first_ones)
        assert sizes(driver.finish()) == [2, 3, 5, 4, 5, 2]
        assert driver.facts == {"verified": True, "size": 2}
        assert driver.segments == []


def test_new_rank_0_reports_again_what_the_old_one_could_not(tmp_path: Path) -> None:
    way = {"MESSAGES": "1", "REVERSE": "1"}
    with job(tmp_path) as driver:
        driver.start(1, "first", **way)
        group = driver.ready(1, **way)
        serial = driver.join(group).serial
        driver.reports.clear()
        driver.decide = lambda _: m.Join(serial=serial, group=group.number, size=1)
        assert driver.await_report(serial).ok
        driver.decide = lambda _: m.Proceed()
        assert sizes(driver.finish()) == [1, 2]
        assert len(driver.ports) == 1
