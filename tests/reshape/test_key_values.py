"""Texts of the form ``key=value``, and errors that name the item, the key and the fix."""

from __future__ import annotations

import pytest

from reshape.key_values import amounts, key_value, key_values


def test_items_are_read_in_order_without_white_space() -> None:
    assert [*key_values([" b = 2", "a=x=y", "c="]).items()] == [("b", "2"), ("a", "x=y"), ("c", "")]
    assert amounts(["memory=16", "licences = 0"]) == {"memory": 16, "licences": 0}


@pytest.mark.parametrize(
    ("item", "says"),
    [
        ("", "'' has no key; write KEY=VALUE"),
        ("=2", "'=2' has no key; write KEY=VALUE"),
        ("step", "'step' has no value; write step=VALUE"),
        ("stpe=2", "unknown key 'stpe' in 'stpe=2'; did you mean step?"),
    ],
)
def test_an_item_that_cannot_be_read_is_refused(item: str, says: str) -> None:
    with pytest.raises(ValueError, match=r"key|value") as caught:
        key_value(item, ["step", "divides"])
    assert str(caught.value) == says


def test_a_key_that_is_given_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="a is given twice, '1' and '2'; keep one"):
        key_values(["a=1", "b=1", "a=2"])


@pytest.mark.parametrize("text", ["-1", "1.5", "x", ""])
def test_an_amount_that_is_not_a_whole_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=f"memory={text}: '{text}' is not a whole number >= 0"):
        amounts([f"memory={text}"])
