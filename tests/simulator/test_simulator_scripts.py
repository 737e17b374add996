"""The simulator, driven by the readable scripts in `scripts` (``pytest --rewrite`` renews them)."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulator_script import replay, simulate

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script(script: Path, rewrite: bool) -> None:
    result = replay(script)
    if rewrite:
        script.write_text(result)
    assert result == script.read_text(), f"{script.name} has another result; see --rewrite"


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 8


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("machines 4", "unknown line"),
        ("order random", "unknown line"),
        ("cost pause=3", "unknown word 'pause'"),
        ("job 1 at=0 n=1 run=1 walltime=1 colour=red", "unknown word 'colour'"),
        ("job 1 at=0 n=1 run=1", "walltime= is missing"),
        ("job 2 at=0 n=1 run=1 walltime=1", "number jobs from 1"),
    ],
)
def test_an_unknown_word_is_an_error(line: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        simulate(line)
