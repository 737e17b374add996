"""Requests of nodes and of signals as users write them, and the nodes that they admit."""

from __future__ import annotations

import pytest

from scheduler.model.requests import EndSignal, NodeRequest, parse_constraint, signal_name


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


@pytest.mark.parametrize(
    ("text", "signal", "again"),
    [
        ("USR1", EndSignal(10), "USR1@60"),
        ("sigterm@0", EndSignal(15, 0), "TERM@0"),
        ("10@120", EndSignal(10, 120), "USR1@120"),
        ("B:USR2@65535", EndSignal(12, 65535, to_script=True), "B:USR2@65535"),
    ],
)
def test_the_forms_of_slurm(text: str, signal: EndSignal, again: str) -> None:
    assert EndSignal.parse(text) == signal
    assert str(signal) == again
    assert EndSignal.parse(again) == signal


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("USR3", "'USR3' is no signal"),
        ("0", "'0' is no signal"),
        ("", "'' is no signal"),
        ("R:USR1", "'R' in 'R:USR1' is not B"),
        ("USR1@", "'' is no number of seconds"),
        ("USR1@-1", "'-1' is no number of seconds"),
        ("USR1@65536", "'65536' is no number of seconds"),
    ],
)
def test_what_is_no_signal_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        EndSignal.parse(text)


def test_a_signal_without_a_name_is_shown_by_its_number() -> None:
    assert signal_name(40) == "40"
