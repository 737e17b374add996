"""Valid sizes: examples of the paper, a slow reference implementation, and errors."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reshape.topology import Topology, nearly_square


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    kind = draw(st.sampled_from(["arbitrary", "nearly-square", "power-of-2", "list"]))
    divides = draw(st.none() | st.integers(1, 400))
    if kind == "arbitrary":
        return Topology("arbitrary", step=draw(st.integers(1, 9)), divides=divides)
    if kind == "list":
        sizes = sorted(draw(st.sets(st.integers(1, 60), min_size=1, max_size=6)))
        if divides is not None and all(divides % size for size in sizes):
            divides = sizes[0] * 12
        return Topology("list", sizes=tuple(sizes), divides=divides)
    return Topology(kind, divides=divides)


@st.composite
def started(draw: st.DrawFn) -> tuple[Topology, int, int]:
    """Draw a topology, a valid starting size of a job, and a maximum."""
    topology = draw(topologies())
    start = draw(st.sampled_from([s for s in range(1, 70) if slow_can_start(topology, s)] or [0]))
    if start == 0:  # divides has no divisor of this kind below 70
        topology, start = Topology(), draw(st.integers(1, 69))
    return topology, start, start + draw(st.integers(0, 300))


def slow_can_start(topology: Topology, size: int) -> bool:
    if topology.divides is not None and topology.divides % size:
        return False
    if topology.kind == "power-of-2":
        return bin(size).count("1") == 1
    return topology.kind != "list" or size in topology.sizes


def slow_grid(size: int) -> tuple[int, int]:
    """Try every factorisation; return the one with the smallest difference of its factors."""
    pairs = [(r, size // r) for r in range(1, size + 1) if size % r == 0 and r <= size // r]
    return min(pairs, key=lambda pair: pair[1] - pair[0])


def slow_valid_sizes(topology: Topology, start: int, maximum: int) -> tuple[int, ...]:
    """List all expansions, then drop the sizes that do not divide."""
    sizes, size = [], start
    while size <= maximum:
        sizes.append(size)
        if topology.kind == "arbitrary":
            size += topology.step
        elif topology.kind == "power-of-2":
            size *= 2
        elif topology.kind == "list":
            size = next((s for s in topology.sizes if s > size), maximum + 1)
        else:
            rows, cols = slow_grid(size)
            size = (rows + 1) * cols if rows < cols else rows * (cols + 1)
    return tuple(s for s in sizes if topology.divides is None or topology.divides % s == 0)


@pytest.mark.parametrize(
    ("text", "start", "maximum", "expected"),
    [
        ("nearly-square", 2, 9, (2, 4, 6, 9)),
        ("nearly-square", 35, 60, (35, 42, 49, 56)),  # 5x7, 6x7, 7x7, 7x8 (PRIO 2)
        ("nearly-square", 1, 6, (1, 2, 4, 6)),
        ("nearly-square", 7, 28, (7, 14, 21, 28)),  # a prime: 1x7, 2x7, 3x7, 4x7
        ("nearly-square:divides=36", 2, 36, (2, 4, 6, 9, 12, 36)),
        ("arbitrary", 3, 6, (3, 4, 5, 6)),
        ("arbitrary:step=2", 2, 7, (2, 4, 6)),
        ("arbitrary:divides=120", 2, 11, (2, 3, 4, 5, 6, 8, 10)),
        ("power-of-2", 4, 40, (4, 8, 16, 32)),
        ("list:2,4,8", 4, 100, (4, 8)),
        ("list:2,4,8", 2, 7, (2, 4)),
    ],
)
def test_known_sizes(text: str, start: int, maximum: int, expected: tuple[int, ...]) -> None:
    topology = Topology.parse(text)
    assert tuple(topology.valid_sizes(start, maximum)) == expected
    assert str(topology) == text


@pytest.mark.parametrize(
    ("text", "request_", "bounds", "expected"),
    [
        ("nearly-square", 8, (1, 12), (1, 2, 4, 6, 8, 12)),  # 2x4, 2x3, 2x2, 1x2
        ("nearly-square", 12, (3, 12), (4, 6, 9, 12)),
        ("nearly-square", 7, (1, 7), (1, 2, 4, 6, 7)),
        ("arbitrary", 4, (2, 5), (2, 3, 4, 5)),
        ("arbitrary:step=3", 8, (1, 12), (2, 5, 8, 11)),
        ("arbitrary:divides=12", 6, (2, 12), (2, 3, 4, 6, 12)),
        ("power-of-2", 8, (2, 16), (2, 4, 8, 16)),
        ("power-of-2", 6, (2, 16), (2, 4, 8, 16)),
        ("list:2,4,8,16", 12, (1, 12), (2, 4, 8)),
    ],
)
def test_known_sizes_below_the_request(
    text: str, request_: int, bounds: tuple[int, int], expected: tuple[int, ...]
) -> None:
    topology, (least, most) = Topology.parse(text), bounds
    assert tuple(topology.valid_sizes(request_, most, least)) == expected


@given(started(), st.integers(1, 60))
def test_sizes_below_the_request_do_not_change_those_above(
    case: tuple[Topology, int, int], least: int
) -> None:
    topology, request, maximum = case
    sizes = tuple(topology.valid_sizes(request, maximum, min(least, request)))
    assert sizes[-len(topology.valid_sizes(request, maximum)) :] == tuple(
        topology.valid_sizes(request, maximum)
    )
    assert list(sizes) == sorted(set(sizes))
    assert sizes[0] >= min(least, request)


def test_a_request_without_a_size_between_its_bounds_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot start on 5 to 7 processors; nearest: 4 or 8"):
        Topology.parse("list:2,4,8").valid_sizes(7, 8, 5)


@given(started())
def test_sizes_equal_those_of_the_slow_reference(case: tuple[Topology, int, int]) -> None:
    topology, start, maximum = case
    sizes = tuple(topology.valid_sizes(start, maximum))
    assert sizes == slow_valid_sizes(topology, start, maximum)
    assert sizes[0] == start
    assert list(sizes) == sorted(set(sizes))
    assert sizes[-1] <= maximum
    if topology.divides is not None:
        assert all(topology.divides % size == 0 for size in sizes)


@given(st.integers(1, 3000))
def test_grid_is_the_most_square(size: int) -> None:
    rows, cols = nearly_square(size)
    assert (rows, cols) == slow_grid(size)
    assert rows <= cols
    assert rows * cols == size


@given(topologies())
def test_text_and_message_are_decoded_to_an_equal_topology(topology: Topology) -> None:
    assert Topology.parse(str(topology)) == topology
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(topology), type=Topology)
    assert again == topology
    assert hash(again) == hash(topology)


def test_large_sizes_are_found_without_listing_all_smaller_ones() -> None:
    assert 10**9 in Topology().valid_sizes(1, 10**9 + 5)
    assert 1 + 7 * 10**9 in Topology("arbitrary", step=7).valid_sizes(1, 10**10)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nearly-sqare", "did you mean nearly-square"),
        ("power-of-two", "did you mean power-of-2"),
        ("", "unknown topology kind ''"),
        ("arbitrary:stepp=2", "did you mean step"),
        ("arbitrary:step=two", "'two' is not a whole number"),
        ("arbitrary:step=0", "step must be >= 1, got 0"),
        ("arbitrary:step=2,step=3", "step is given twice"),
        ("arbitrary:2", "explicit sizes belong to list"),
        ("power-of-2:step=2", "belongs to arbitrary"),
        ("list", "at least one size"),
        ("list:4,2", "write list:2,4"),
        ("list:0", "must be >= 1"),
        ("list:4,x", "'x' is not a whole number"),
        ("list:4,8,divides=6", "none of the sizes"),
        ("nearly-square:divides=0", "divides must be >= 1"),
    ],
)
def test_a_wrong_text_is_refused_with_a_fix(text: str, says: str) -> None:
    with pytest.raises(ValueError, match="accepted are arbitrary") as caught:
        Topology.parse(text)
    assert says in str(caught.value)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "start", "nearest"),
    [
        ("power-of-2", 6, "4 or 8"),
        ("list:2,4,8", 5, "4 or 8"),
        ("list:2,4,8", 9, "nearest: 8"),
        ("arbitrary:divides=120", 7, "6 or 8"),
        ("nearly-square", 0, "nearest: 1"),
        ("arbitrary", -5, "nearest: 1"),
    ],
)
def test_the_error_of_a_wrong_start_names_the_nearest_sizes(
    text: str, start: int, nearest: str
) -> None:
    topology = Topology.parse(text)
    with pytest.raises(ValueError, match=f"cannot start on {start} processors") as caught:
        topology.valid_sizes(start, 100)
    assert nearest in str(caught.value)


def test_a_maximum_below_the_start_is_refused() -> None:
    with pytest.raises(ValueError, match="maximum must be >= the requested size 4, got 2"):
        Topology().valid_sizes(4, 2)


def test_a_wrong_message_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="step must be >= 1"):
        msgspec.json.decode(b'{"kind": "arbitrary", "step": 0}', type=Topology)
