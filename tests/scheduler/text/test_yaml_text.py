"""Plain values of YAML text: numbers, and bounds on what a text unfolds to."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from reshape.errors import ConfigError
from scheduler.text.located import Located, value_of
from scheduler.text.yaml_text import encode

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, name in pairwise("abcdefghij")
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: " + "[" * 101, ":1: is not YAML: more than 100 levels of lists and mappings"),
        ("a: " + "[" * 100_000, ":1: is not YAML: more than 100 levels of lists and mappings"),
        ("a:\n  " + "- " * 20_000, ":2: is not YAML: more than 100 levels"),
        ("a: " + "{b: " * 101, ":1: is not YAML: more than 100 levels of lists and mappings"),
        (BOMB, ": aliases repeat more than 100000 values; write them out"),
        ("a: 1\nb: 2026-99-99\n", ":2: b: '2026-99-99' is not a valid value; quote it if"),
        ("a: " + "9" * 5000, ":1: a: '9999"),
        ("a: 0x" + "f" * 5000, ":1: a: '0xfff"),
        ("a: !!timestamp now", ":1: a: 'now' is not a valid value; quote it if it is a text"),
        ("a: !!int x", ":1: a: 'x' is not a valid value"),
        ("a: 010", ":1: a: 010 has a leading zero; leave it out, or quote a text"),
        ("a: 1\n? [b]\n: 2\n", ":2: the name of a field must be a text, not a list or a mapping"),
        ("a: &x {b: *x}\n", ":1: a.b: refers to itself"),
        ("- " * 90 + "1", ":1: the file must be a mapping such as 'processors: 8', not [["),
    ],
)
def test_what_a_text_unfolds_to_is_bounded(text: str, says: str, tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as raised:
        Located.read(file)
    assert says in str(raised.value)
    assert str(raised.value).startswith(str(file))
    assert len(str(raised.value)) < 600


def test_a_file_without_an_end_is_refused() -> None:
    with pytest.raises(ConfigError, match="/dev/zero: is larger than 256 MiB"):
        Located.read(Path("/dev/zero"))


def test_aliases_that_repeat_little_are_values(tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_text("a: &a {b: [1, 2]}\nc: [*a, *a]\n")
    assert Located.read(file).values["c"] == [{"b": [1, 2]}] * 2


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e3", 1000.0), ("-1E-3", -0.001), ("2.e+3", 2000.0), ("'1e3'", "1e3"), ("1e", "1e"),
     ("0", 0), ("10:00", 600), ("1_000", 1000), ("yes", True), ("[1e3, a]", [1000.0, "a"])],
)  # fmt: skip
def test_numbers_with_an_exponent_are_numbers(text: str, value: object) -> None:
    assert value_of(text) == value
    assert value_of(encode({"a": value})) == {"a": value}


def test_an_option_that_is_no_yaml() -> None:
    for text in ("[", "2026-99-99", "[" * 1000, "\0"):
        with pytest.raises(ConfigError):
            value_of(text)
