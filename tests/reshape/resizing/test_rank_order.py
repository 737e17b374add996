"""Ranks in another order after a resize: fewer bytes are sent, and the data is exact."""

from __future__ import annotations

from pathlib import Path

from driver import run
from test_resize import have_ended, job, sizes

from reshape.wire import messages as m

BEST = """
import sys
from itertools import permutations
from mpi4py import MPI
from redistribution import BlockCyclic, Cuts, Plan, Replicated
from reshape.resizing import rank_order

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
    rank_order.WORTH_BYTES = 0
    order = rank_order.best_order(comm, [(Plan(a, b, olds), n) for a, b, n in chosen], range(4), 1)
    assert comm.allgather(order) == [order] * 4
    assert moved(order) == min(map(moved, permutations(range(4)))), (names, order)
    if moved(order) == moved(range(4)):
        assert order == (0, 1, 2, 3)
    rank_order.WORTH_BYTES = moved(range(4)) + 1
    assert rank_order.best_order(
        comm, [(Plan(a, b, olds), n) for a, b, n in chosen], range(4), 3
    ) == (0, 1, 2, 3)
    new_rank = rank_order.reordered(comm.Dup(), order).rank
    assert order[new_rank] == comm.rank
    if comm.rank == 0:
        print(names, moved(range(4)) - moved(order))
    rank_order.WORTH_BYTES = 0
    for hosts in [(0, 0, 1, 1), (0, 1, 1, 0), (0, 1, 0, 2)]:
        on_hosts = [(Plan(a, b, olds, hosts=hosts), n) for a, b, n in chosen]
        order = rank_order.best_order(comm, on_hosts, range(4), 0)
        sent = lambda order: sum(
            Plan(a, b, olds, order, hosts=hosts).bytes_sent(n) for a, b, n in chosen
        )
        assert sent(order) == min(map(sent, permutations(range(4)))), (names, hosts, order)
"""


def test_best_order_sends_the_fewest_bytes_of_all_permutations() -> None:
    cases = ["rows", "columns", "blocks", "copies", "ragged", "rows+ragged", "back"]
    cases += ["rows+columns+blocks+copies+ragged"]
    done = run(4, "-c", BEST, ",".join(cases))
    assert done.returncode == 0, done.stderr
    saved = dict(line.split() for line in done.stdout.splitlines())
    assert list(saved) == cases
    assert int(saved["ragged"]) > 0
    assert int(saved["copies"]) == int(saved["back"]) == 0


def moved_bytes(folder: Path, **environment: str) -> list[int]:
    """Expand and contract over nearly square sizes; first and interior groups leave."""
    folder.mkdir()
    options = {"MESSAGES": "1"} | environment
    with job(folder) as driver:
        driver.start(2, "first", **options)
        reports = [driver.expand(2, **options), driver.expand(2, **options), driver.contract(1)]
        reports += [driver.expand(2, **options), driver.contract(0, 2)]
        assert all(report.ok for report in reports), reports
        assert sizes(driver.finish()) == [2, 4, 6, 4, 6, 2]
        assert driver.segments == []
    return [report.times.moved_bytes for report in reports]


def test_relabelling_moves_fewer_bytes(tmp_path: Path) -> None:
    plain = moved_bytes(tmp_path / "plain")
    relabelled = moved_bytes(tmp_path / "relabelled", RELABEL="1")
    assert relabelled[0] < plain[0]
    assert sum(relabelled) < sum(plain)


def test_groups_leave_while_rank_0_changes_at_every_resize(tmp_path: Path) -> None:
    """The order is reversed at each resize, so that a process that has just joined is rank 0."""
    options = {"MESSAGES": "1", "REVERSE": "1"}
    with job(tmp_path) as driver:
        original = driver.start(2, "first", **options)
        second = driver.ready(1, **options)
        first_processes, second_processes = original.processes(), second.processes()
        assert driver.join(second).ok
        before = driver.points
        driver.serve(lambda: driver.points > before + 3)
        assert driver.expand(2, **options).ok
        assert driver.contract(1).ok
        assert have_ended(second_processes)
        assert not any(map(have_ended, ([pid] for pid in first_processes)))
        assert driver.expand(1, **options).ok
        assert driver.contract(0, 3).ok
        assert have_ended(first_processes)
        assert sizes(driver.finish()) == [2, 3, 5, 4, 5, 2]
        assert driver.facts == {"verified": True, "size": 2}
        assert driver.segments == []


def test_a_new_rank_0_repeats_a_report_that_was_lost(tmp_path: Path) -> None:
    options = {"MESSAGES": "1", "REVERSE": "1"}
    with job(tmp_path) as driver:
        driver.start(1, "first", **options)
        group = driver.ready(1, **options)
        serial = driver.join(group).serial
        driver.reports.clear()
        driver.decide = lambda _: m.Join(serial=serial, group=group.number, size=1)
        assert driver.await_report(serial).ok
        driver.decide = lambda _: m.Proceed()
        assert sizes(driver.finish()) == [1, 2]
        assert len(driver.ports) == 1
