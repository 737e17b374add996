"""Signals as users write them."""

from __future__ import annotations

import pytest

from scheduler.model.requests.signals import EndSignal, signal_name


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
