"""Texts that are shown: one line, without control of the terminal, of bounded length."""

from __future__ import annotations

import pytest

from scheduler.text.plain import MOST_SHOWN, plain
from scheduler.text.tables import Table, render


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Größe 3\u00a0µ", "Größe 3\u00a0µ"),
        ("a\nb\tc", r"a\nb\tc"),
        ("\x1b]0;title\x07\x9b31m", r"\x1b]0;title\x07\x9b31m"),
        ("\u202egnp.exe", r"\u202egnp.exe"),
        ("\udc80", r"\udc80"),
        ("x" * 5000, "x" * MOST_SHOWN + "..."),
    ],
)
def test_plain(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_a_row_of_a_table_is_one_line() -> None:
    table = Table(("NODE", "REASON"), [("n1", "\x1b[2Jhot\nn2  idle")])
    lines = render(table).splitlines()
    assert len(lines) == 2
    assert lines[1].endswith(r"\x1b[2Jhot\nn2  idle")
