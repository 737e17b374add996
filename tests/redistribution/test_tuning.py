"""Thresholds are changed by name, for good or within a block."""

import pytest

from redistribution.tuning import Tuning


def test_changed_thresholds_are_restored_after_the_block():
    tuning = Tuning()

    def fail_in_block():
        with tuning.changed(piece_bytes=1, use_kernel=False):
            assert (tuning.piece_bytes, tuning.use_kernel) == (1, False)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail_in_block()
    assert tuning == Tuning()


def test_change_lasts():
    tuning = Tuning()
    tuning.change(piece_bytes=2)
    assert tuning == Tuning(piece_bytes=2)


def test_an_unknown_threshold_is_an_error():
    with pytest.raises(AttributeError, match="no_such_threshold"):
        Tuning().change(no_such_threshold=1)
    with (
        pytest.raises(AttributeError, match="no_such_threshold"),
        Tuning().changed(no_such_threshold=1),
    ):
        pass
