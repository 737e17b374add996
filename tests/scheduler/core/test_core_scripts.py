"""The core, driven by the scripts beside this file (``pytest --rewrite`` renews their output)."""

from __future__ import annotations

from pathlib import Path

import pytest
from core_script import read_event, replay, set_up

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script(script: Path, rewrite: bool) -> None:
    result = replay(script)
    if rewrite:
        script.write_text(result)
    assert result == script.read_text(), f"{script.name} has another output; see --rewrite"


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 10


@pytest.mark.parametrize(
    "line",
    [
        "@0 sumbit 1 n=1 walltime=10",
        "@0 submit 1 n=1 walltime=10 walltme=5",
        "@0 submit 1 2 n=1 walltime=10",
        "@0 started soon",
        "@0 failed 1 1 restrat",
        "@0 join a 4 up",
    ],
)
def test_an_unknown_word_in_an_event_is_an_error(line: str) -> None:
    with pytest.raises(ValueError, match=r"unknown|too many|convert"):
        read_event(line)


@pytest.mark.parametrize("line", ["machines a:4", "core odrer=sequential"])
def test_an_unknown_word_in_the_first_block_is_an_error(line: str) -> None:
    with pytest.raises(ValueError, match="unknown word"):
        set_up([line])
