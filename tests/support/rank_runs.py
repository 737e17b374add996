"""One rank without mpiexec, as hydra starts it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

from scheduler.node.launching.launcher import rank_command
from scheduler.node.launching.started import RankReports


def run_rank(
    argv: Sequence[str], reports: RankReports, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a program as a rank until it ends; the reports hold what it says."""
    done = subprocess.run(
        rank_command(argv),
        env=os.environ | {"RESHAPE_REPORT": str(reports.writer)} | variables,
        pass_fds=[reports.writer],
        capture_output=True,
        text=True,
        check=False,
    )
    reports.was_inherited()
    reports.read()
    return done
