"""Runs of the demonstration, and the processes that it has started."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
from process_words import words_of
from waiting import LIMIT_S, wait_until


def demo_results(
    command: Sequence[str], out: Path, environment: Mapping[str, str], *options: str
) -> dict[str, Any]:
    """Run the demonstration to its end; return its results, which it has also written to a file."""
    done = subprocess.run(
        [*command, *options, "--out", str(out), "--json"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=2 * LIMIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    results: dict[str, Any] = json.loads(done.stdout)
    assert json.loads((out / "results.json").read_text()) == results
    return results


def wait_for_programs(temporary: Path) -> None:
    """Wait until a program of the demonstration runs."""
    wait_until(
        lambda: any("apps." in " ".join(words_of(p)) for p in of_the_demo(temporary)),
        lambda: [words_of(p) for p in of_the_demo(temporary)],
    )


def of_the_demo(temporary: Path) -> list[psutil.Process]:
    """Processes of services, agents and programs that were started below a temporary directory."""
    found = []
    for process in psutil.process_iter():
        try:
            words = " ".join(process.cmdline()) + process.environ().get("RESHAPE_SERVER", "")
            if str(temporary) in words and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found
