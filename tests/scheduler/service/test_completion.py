"""What a shell completes, by the protocol of click that bash, zsh and fish use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

RESHAPE = str(Path(sys.executable).with_name("reshape"))


def completions(service: Any, shell: str, *words: str) -> list[str]:
    """Return what a shell is offered for the last word."""
    line = {
        "bash": {"COMP_WORDS": " ".join(["reshape", *words]), "COMP_CWORD": str(len(words))},
        "zsh": {"COMP_WORDS": " ".join(["reshape", *words]), "COMP_CWORD": str(len(words))},
        "fish": {"COMP_WORDS": " ".join(["reshape", *words[:-1]]), "COMP_CWORD": words[-1]},
    }[shell]
    own = {"_RESHAPE_COMPLETE": f"{shell}_complete", "RESHAPE_DIR": str(service.directory)}
    done = subprocess.run(
        [RESHAPE], env={**os.environ, **line, **own}, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_jobs_and_nodes_of_the_service(shared_service: Any, shell: str) -> None:
    job = str(shared_service.submit(["true"], hold=True, name="held"))
    told = completions(shared_service, shell, "info", job[0])
    assert any(job in line for line in told)
    assert any("local" in line for line in completions(shared_service, shell, "node", "drain", "l"))


def test_names_that_are_always_the_same(shared_service: Any) -> None:
    def offered(*words: str) -> list[str]:
        return [line.partition(",")[2] for line in completions(shared_service, "bash", *words)]

    assert offered("serve", "--scenario", "fcfs-") == ["fcfs-max-benefit", "fcfs-pr"]
    assert offered("simulate", "--policy", "stea") == ["steady"]
    assert offered("submit", "--topology", "near") == ["nearly-square"]
    assert "prio" in offered("study", "pr")
    assert offered("slu") == ["slurm-commands"]


def test_without_a_service_nothing_is_offered_and_nothing_printed(served: Any) -> None:
    assert completions(served, "bash", "info", "1") == []
