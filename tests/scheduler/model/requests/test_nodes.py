"""Requests of nodes as users write them, and the nodes that they admit."""

from __future__ import annotations

import pytest

from scheduler.model.requests.nodes import NodeRequest, parse_constraint


@pytest.mark.parametrize(
    ("text", "any_of"),
    [
        ("gpu", (("gpu",),)),
        ("gpu & fast|big", (("gpu", "fast"), ("big",))),
        ("cpu=9.5:a-b_c", (("cpu=9.5:a-b_c",),)),
    ],
)
def test_a_constraint_is_read(text: str, any_of: tuple[tuple[str, ...], ...]) -> None:
    assert parse_constraint(text) == any_of


@pytest.mark.parametrize("text", ["", "gpu&", "|gpu", "[a|b]", "(a&b)", "gpu*4", "a b"])
def test_what_is_no_constraint_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write features with & "):
        parse_constraint(text)


def test_the_nodes_that_a_request_admits() -> None:
    request = NodeRequest((("gpu", "fast"), ("big",)), whole=4)
    assert str(request) == "whole nodes with gpu&fast|big"
    assert request.admits(("fast", "gpu"), 4)
    assert request.admits(("big",), 4)
    assert not request.admits(("big",), 8)
    assert not request.admits(("gpu",), 4)
    assert NodeRequest((("a",),)).admits(("a",), 1)
