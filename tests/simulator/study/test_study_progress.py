"""Progress of a study, on a terminal and elsewhere."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from simulator.study import progress as study_progress


def test_lines_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the first and the last only now and then one."""
    for every_s, between in ((0.0, 1), (1e9, 0)):
        monkeypatch.setattr(study_progress, "LINE_EVERY_S", every_s)
        text = io.StringIO()
        with study_progress.StudyProgress(Console(file=text), "A [study]", 3, 5) as progress:
            progress.step()
            progress.step()
        lines = text.getvalue().splitlines()
        assert lines[0] == "A [study]: 5 runs, 3 of them done before"
        assert lines[-1] == "A [study]: 5 of 5 runs done"
        assert len(lines) == 2 + between
        for line in lines[1:-1]:
            assert re.fullmatch(r"A \[study\]: 4 of 5 runs done, about 00:00:\d\d left", line)


def test_a_bar_on_a_terminal() -> None:
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=100, color_system=None)
    with study_progress.StudyProgress(console, "A [study] of {all}", 0, 2) as progress:
        progress.step()
        progress.step()
    assert re.search(r"A \[study\] of \{all\} +\S+ 2/2 about 00:00:00 left", text.getvalue())
