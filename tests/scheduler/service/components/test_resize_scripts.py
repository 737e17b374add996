"""The resize transaction of a service, driven by `scripts` (``pytest --rewrite`` renews them)."""

from __future__ import annotations

from pathlib import Path

import pytest
from resize_script import replay

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script(script: Path, rewrite: bool, tmp_path: Path) -> None:
    result = replay(script, tmp_path / "service")
    if rewrite:
        script.write_text(result)
    assert result == script.read_text(), f"{script.name} has another output; see --rewrite"


def test_there_are_scripts() -> None:
    assert len(SCRIPTS) >= 8


@pytest.mark.parametrize(
    "line",
    [
        "node a:4",
        "deadlines redy_s=3",
        "@0 sumbit n=2",
        "@0 submit n=2 most=4",
        "@0 agent a walks 0",
        "@0 agent a ended 0 exit=1 code=2",
        "@0 agent a swept 0",
        "@1 job pause 3",
        "@1 job point 3 seconds=1 speed=2",
        "@1 group 1 steady",
        "@1 tick twice",
    ],
)
def test_an_unknown_word_is_an_error(line: str, tmp_path: Path) -> None:
    script = tmp_path / "script.txt"
    script.write_text(f"@0 submit n=2\n{line}\n" if line.startswith("@") else f"{line}\n")
    with pytest.raises(ValueError, match="unknown word"):
        replay(script, tmp_path / "service")
