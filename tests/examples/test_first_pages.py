"""The three pages of a first success: their blocks run in their order and print what they show."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from paths import ROOT

BIN = Path(sys.executable).parent
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: The file in which a reader of a page saves a block of a language.
SAVED = {
    "first-job.md": {"python": "first.py"},
    "first-service.md": {"yaml": "service.yaml"},
    "first-simulation.md": {"python": "policies.py"},
}
MARK = "-- end of block"


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """Variables of a reader with a new service directory; the service ends with the test."""
    own = {
        **os.environ,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "RESHAPE_DIR": str(tmp_path / "service"),
        "MPLBACKEND": "agg",
    }
    yield own
    if (tmp_path / "service" / "server.json").exists():
        for command in (["cancel", "--all"], ["stop"]):
            subprocess.run([BIN / "reshape", *command], env=own, check=False, capture_output=True)


def printed(text: str) -> list[str]:
    """Lines with one name for what differs from run to run."""
    text = re.sub(r"service of \S+ is up, process \d+", "service of DIR is up", text)
    return [line.rstrip() for line in text.splitlines()]


@pytest.mark.parametrize("name", SAVED)
def test_the_blocks_of_a_page_run_and_print_what_it_shows(
    name: str, tmp_path: Path, environment: dict[str, str]
) -> None:
    blocks = BLOCK.findall((ROOT / "docs" / name).read_text())
    commands = [text for kind, text in blocks if kind == "bash"]
    for kind, text in blocks:
        if kind in SAVED[name]:
            (tmp_path / SAVED[name][kind]).write_text(text)
    script = "".join(f"{text}echo '{MARK}'\n" for text in commands)
    if "policies.py" in SAVED[name].values():
        script += "python policies.py\n"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    outputs = iter(done.stdout.split(f"{MARK}\n"))
    output = ""
    for kind, text in blocks:
        if kind == "bash":
            output = next(outputs)
        elif kind == "text":
            shown = printed(text)
            assert printed(output)[-len(shown) :] == shown
    check = {"first-job.md": check_job, "first-simulation.md": check_simulation}.get(name)
    if check is not None:
        check(done.stdout)


def check_job(output: str) -> None:
    """The job has expanded, as the page says, and the reason names its part of the machine."""
    assert re.search(r"COMPLETED +1-\d", output)
    assert "its part of the machine is 4 processors, 3 are free; expected to save" in output


def check_simulation(output: str) -> None:
    """Backfilling shortens the mean wait, and so does resizing."""
    waits = dict(re.findall(r"^(\w+) (\d+)$", output, re.MULTILINE))
    assert waits.keys() == {"fcfs", "easy", "conservative"}
    assert float(waits["easy"]) < float(waits["fcfs"])
    differences = re.findall(r"^mean_wait_s(?: +[\d.]+){2} +(-?[\d.]+)$", output, re.MULTILINE)
    assert len(differences) == 2
    assert all(float(difference) < 0 for difference in differences)
