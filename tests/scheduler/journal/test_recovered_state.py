"""What the log says of a policy that raises an exception again and again."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from scheduler.journal.recovery import policy_errors
from scheduler.policies.scenarios import scenario


def raised(function: Callable[[], object]) -> Exception:
    with pytest.raises(ArithmeticError) as caught:
        function()
    return caught.value


def test_each_kind_of_error_is_logged_once_and_named_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    errors, policy = policy_errors(), scenario("steady").resizing
    caplog.set_level(logging.ERROR)
    failures = [raised(lambda: 1 // 0), raised(lambda: 1 // 0), raised(lambda: 2.0**5000)]
    sentences = [errors("resizing", policy, "decide", error) for error in failures]
    assert ["ZeroDivisionError" in sentence for sentence in sentences] == [True, True, False]
    assert "OverflowError" in sentences[2]
    kinds = [record.getMessage().count("ZeroDivisionError") for record in caplog.records]
    assert kinds == [1, 0]
