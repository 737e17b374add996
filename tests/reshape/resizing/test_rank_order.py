"""Ranks in another order after a resize: fewer bytes are sent, and the data is exact."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

import pytest
from driver import processes
from hypothesis import given
from hypothesis import strategies as st
from mpi4py import MPI
from test_resize import have_ended, job, sizes

from redistribution import BlockCyclic, Cuts, Layout, Plan, Replicated
from reshape.data.segments import FolderPlace
from reshape.errors import ReshapeError
from reshape.resizing import rank_order
from reshape.resizing.rank_order import ranks_at
from scheduler.protocol import messages as m

LAYOUTS: dict[str, tuple[Layout, Layout, int]] = {
    "rows": (Cuts.even((100, 3), 3), Cuts.even((100, 3), 4), 24),
    "columns": (Cuts.even((5, 77), 3, 1), Cuts.even((5, 77), 4, 1), 8),
    "blocks": (BlockCyclic((40, 30), (3, 2), (1, 3)), BlockCyclic((40, 30), (3, 2), (2, 2)), 4),
    "copies": (Replicated((1000,), 3), Replicated((1000,), 4), 8),
    "ragged": (Cuts((50,), (0, 1, 2, 50)), Cuts((50,), (0, 48, 48, 49, 50)), 8),
    "back": (Cuts.even((100, 3), 4), Cuts.even((100, 3), 4), 8),
}
CASES = [*LAYOUTS, "rows+ragged", "rows+columns+blocks+copies+ragged"]
HOSTS = [(0, 0, 1, 1), (0, 1, 1, 0), (0, 1, 0, 2)]
UNCHANGED = (0, 1, 2, 3)


def sent_bytes(names: str, order: Sequence[int], hosts: Sequence[int] | None = None) -> int:
    """Bytes that ranks in this order receive in messages."""
    chosen = [LAYOUTS[name] for name in names.split("+")]
    plans = [(Plan(a, b, range(a.nprocs), order, hosts=hosts), size) for a, b, size in chosen]
    return sum(plan.bytes_sent(size) for plan, size in plans)


def fewest_bytes(names: str, hosts: Sequence[int] | None = None) -> int:
    """Collective over COMM_WORLD. Fewest bytes of all orders; each rank tries a quarter."""
    comm = MPI.COMM_WORLD
    orders = list(permutations(range(4)))[comm.rank :: 4]
    return comm.allreduce(min(sent_bytes(names, order, hosts) for order in orders), MPI.MIN)


def order_of(names: str, root: int, hosts: Sequence[int] | None = None) -> tuple[int, ...]:
    """Collective over COMM_WORLD. The order that one rank computes."""
    chosen = [LAYOUTS[name] for name in names.split("+")]
    plans = [(Plan(a, b, range(a.nprocs), hosts=hosts), size) for a, b, size in chosen]
    return rank_order.best_order(MPI.COMM_WORLD, plans, range(4), root)


@pytest.mark.mpi(min_size=4)
@pytest.mark.parametrize("names", CASES)
def test_best_order_sends_the_fewest_bytes_of_all_permutations(
    names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    comm = MPI.COMM_WORLD
    monkeypatch.setattr(rank_order, "WORTH_BYTES", 0)
    order = order_of(names, root=1)
    assert comm.allgather(order) == [order] * 4
    least = fewest_bytes(names)
    assert sent_bytes(names, order) == least
    if sent_bytes(names, UNCHANGED) == least:
        assert order == UNCHANGED
    saves = {"ragged": True, "copies": False, "back": False}
    if names in saves:
        assert (sent_bytes(names, UNCHANGED) > least) == saves[names]
    new = rank_order.reordered(comm.Dup(), order)
    assert order[new.rank] == comm.rank
    new.Free()
    for hosts in HOSTS:
        order = order_of(names, root=0, hosts=hosts)
        assert sent_bytes(names, order, hosts) == fewest_bytes(names, hosts)


@pytest.mark.mpi(min_size=4)
@pytest.mark.parametrize("names", CASES)
def test_the_order_is_kept_if_another_one_saves_too_little(
    names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    worth = sent_bytes(names, UNCHANGED) + 1
    monkeypatch.setattr(rank_order, "WORTH_BYTES", worth)
    assert order_of(names, root=3) == UNCHANGED


def moved_bytes(folder: Path, **environment: str) -> list[int]:
    """Expand twice and contract by the first groups."""
    folder.mkdir()
    options = {"MESSAGES": "1"} | environment
    with job(folder) as driver:
        driver.start(2, "first", **options)
        reports = [driver.expand(2, **options), driver.expand(2, **options), driver.contract(0, 1)]
        assert all(report.ok for report in reports), reports
        assert sizes(driver.finish()) == [2, 4, 6, 2]
        assert driver.segments == []
    return [report.times.moved_bytes for report in reports]


@pytest.mark.long
def test_relabelling_moves_fewer_bytes(tmp_path: Path) -> None:
    plain = moved_bytes(tmp_path / "plain")
    relabelled = moved_bytes(tmp_path / "relabelled", RELABEL="1")
    assert relabelled[0] < plain[0]
    assert sum(relabelled) < sum(plain)


def loads_scipy(process: int) -> bool:
    """Whether a process has mapped an extension module of SciPy."""
    return "/scipy/" in Path(f"/proc/{process}/maps").read_text()


@pytest.mark.parametrize("joins", ["1 1", "1 2"])
def test_only_a_job_on_several_hosts_needs_the_order(tmp_path: Path, joins: str) -> None:
    """The program has ragged data, of which a joining group does not know the size."""
    with job(tmp_path) as driver:
        first = driver.start(2, "first", HOSTS="1 1")
        driver.serve(lambda: driver.points > 0)
        group = driver.ready(2, HOSTS=joins)
        loaded = [loads_scipy(process) for process in processes(group)]
        assert sum(loaded) == (joins == "1 2")
        assert not any(map(loads_scipy, processes(first)))
        assert driver.join(group).ok
        assert sizes(driver.finish()) == [2, 4]


@pytest.mark.long
def test_groups_leave_while_rank_0_changes_at_every_resize(tmp_path: Path) -> None:
    """The order is reversed at each resize, so that a process that has just joined is rank 0."""
    options = {"MESSAGES": "1", "REVERSE": "1"}
    with job(tmp_path) as driver:
        original = driver.start(2, "first", **options)
        second = driver.ready(1, **options)
        first_processes, second_processes = processes(original), processes(second)
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


PLACES = [FolderPlace(f"n{k}", "boot", k, 1) for k in range(4)]
lists_of_places = st.lists(st.sampled_from(PLACES), min_size=1, max_size=9)


@given(lists_of_places, st.randoms())
def test_every_rank_is_where_its_segments_are(before: list[FolderPlace], random: st.Random) -> None:
    now = random.sample(before, len(before))
    order = ranks_at(before, now)
    assert sorted(order) == list(range(len(before)))
    assert [now[rank] for rank in order] == before
    for rank, place in enumerate(before):
        assert (order[rank] == rank) == (now[rank] == place)


@given(lists_of_places, lists_of_places, st.booleans())
def test_a_host_with_too_few_processes_is_named(
    before: list[FolderPlace], now: list[FolderPlace | None], has_none: bool
) -> None:
    size = min(len(before), len(now))
    before, now = before[:size], now[:size]
    if has_none:
        now[-1] = None
    lacking = {place.host for place in before if now.count(place) < before.count(place)}
    if not lacking:
        ranks_at(before, now)
        return
    with pytest.raises(
        ReshapeError, match=r"data of rank \d, which was in shared memory on host n"
    ) as error:
        ranks_at(before, now)
    assert any(f"host {host};" in str(error.value) for host in lacking)


def test_a_host_that_was_booted_again_has_no_segments() -> None:
    again = PLACES[1]._replace(boot="later")
    with pytest.raises(ReshapeError, match="data of rank 1, which was in shared memory on host n1"):
        ranks_at(PLACES[:2], [PLACES[0], again])
