"""Each process of a job that restarts gets a rank whose segments are on its host."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reshape.data.places import FolderPlace
from reshape.errors import ReshapeError
from reshape.resizing.restart_ranks import ranks_at

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
