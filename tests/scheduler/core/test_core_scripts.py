"""The core, driven by the readable scripts beside this file (``pytest --rewrite`` renews them)."""

from __future__ import annotations

from pathlib import Path

import pytest
from core_script import replay

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script(script: Path, rewrite: bool) -> None:
    result = replay(script)
    if rewrite:
        script.write_text(result)
    assert result == script.read_text(), f"{script.name} gives something else; see --rewrite"


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 10
