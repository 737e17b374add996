"""What errors say about values of arguments, which come from no file."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest

from reshape.errors import ConfigError
from scheduler.text.located import converted


class Rule(msgspec.Struct, forbid_unknown_fields=True):
    most: int = 0
    order: Literal["age", "size"] = "age"

    def __post_init__(self) -> None:
        if self.most < 0:
            raise ValueError("most must be >= 0")


class Rules(msgspec.Struct):
    first: Rule | None = None
    rules: list[Rule] = []
    shares: dict[str, float] = {}
    by_size: dict[int, Rule] = {}
    named: str | dict[str, Rule] = ""


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"rules": [{}, {"most": "x"}]}, "jobs.rules[1].most: expected int, got 'x'"),
        ({"rules": [{"mots": 1}]}, "jobs.rules[0].mots: unknown field; did you mean most?"),
        ({"rules": [{"order": "name"}]}, "jobs.rules[0].order: must be age or size, got 'name'"),
        ({"rules": [{"most": -1}]}, "jobs.rules[0]: most must be >= 0"),
        ({"first": {"order": 1}}, "jobs.first.order: must be age or size, got 1"),
        ({"shares": {"a": "1", "b": "z"}}, "jobs.shares.b: expected float, got 'z'"),
        ({"by_size": {2: {}, 4: {"most": "x"}}}, "jobs.by_size[4].most: expected int, got 'x'"),
        ({"named": {"a": {"most": "x"}}}, "jobs.named.a.most: expected int, got 'x'"),
        ({"rulez": []}, "jobs.rulez: unknown field; did you mean rules?"),
        (3, "jobs: expected object, got 3"),
    ],
)
def test_an_error_names_the_place_of_a_value(values: Any, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        converted(values, Rules, "jobs")
    assert str(error.value) == said


def test_numbers_may_be_texts() -> None:
    made = converted({"rules": [{"most": "3"}], "shares": {"a": "0.5"}}, Rules)
    assert (made.rules, made.shares) == ([Rule(3)], {"a": 0.5})
