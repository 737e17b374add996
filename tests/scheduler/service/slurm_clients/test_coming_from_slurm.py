"""Each line of the table in docs/coming-from-slurm.md, in both forms."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any

from paths import ROOT
from slurm_programs import SlurmPrograms

PAGE = (ROOT / "docs" / "coming-from-slurm.md").read_text()
LINES = re.findall(r"^\| `([^`]+)` \| `reshape ([^`]+)` \|$", PAGE, re.MULTILINE)


def test_both_forms_of_each_line(shared_service: Any, tmp_path: Path) -> None:
    """Job 1 of the table is a held job, another one for each command."""
    service = shared_service
    programs = SlurmPrograms(service, tmp_path / "bin")
    (service.work / "job.sh").write_text("#!/bin/sh\ntrue\n")
    assert len(LINES) > 20
    for slurm, ours in LINES:
        for words in (shlex.split(slurm), [sys.executable, "-m", "reshape", *shlex.split(ours)]):
            held = str(service.submit(["true"], hold=True))
            named = {"1": held, "JobId=1": f"JobId={held}"}
            programs.run(*(named.get(word, word) for word in words), RESHAPE_DIR=service.directory)
