"""The resize transaction of a service, driven by `scripts` (``pytest --rewrite`` renews them)."""

from __future__ import annotations

from pathlib import Path

import pytest
from resize_script import replay, service, set_up

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script(script: Path, rewrite: bool, tmp_path: Path) -> None:
    result = replay(script, tmp_path / "service")
    if rewrite:
        script.write_text(result)
    assert result == script.read_text(), f"{script.name} has another output; see --rewrite"


def test_an_iteration_after_a_contraction_does_not_count_for_the_size_before(
    tmp_path: Path,
) -> None:
    lines = (Path(__file__).parent / "scripts" / "contract.txt").read_text().splitlines()
    inputs = [line for line in lines if line and not line.startswith((" ", "#"))]
    contracted = inputs.index("@12.4 job committed 2") + 1
    with service(tmp_path, set_up([line for line in inputs if not line.startswith("@")])) as script:
        for line in inputs[:contracted]:
            if line.startswith("@"):
                script.run(line)
        for at in (12.42, 12.46):  # the group that leaves has not ended
            script.run(f"@{at} job point 4 seconds=4 epoch=2")
        script.run("@12.6 agent b ended 2")
        history = script.components.core.jobs[1].history
        assert [history.time_s(size) for size in (2, 4)] == [4.0, 2.0]


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
