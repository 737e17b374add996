"""Each line of the table in docs/coming-from-slurm.md, in both forms."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
from command_line import invoke
from paths import ROOT
from slurm_programs import SlurmPrograms

PAGE = (ROOT / "docs" / "coming-from-slurm.md").read_text()
LINES = re.findall(r"^\| `([^`]+)` \| `reshape ([^`]+)` \|$", PAGE, re.MULTILINE)


@pytest.fixture(scope="module")
def programs(shared: Any, tmp_path_factory: pytest.TempPathFactory) -> SlurmPrograms:
    service = shared.get()
    (service.work / "job.sh").write_text("#!/bin/sh\ntrue\n")
    return SlurmPrograms(service, tmp_path_factory.mktemp("programs"))


def test_the_table_is_read() -> None:
    assert len(LINES) > 20


@pytest.mark.parametrize(("slurm", "ours"), LINES)
def test_both_forms_of_a_line(
    slurm: str,
    ours: str,
    programs: SlurmPrograms,
    shared_service: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Job 1 of the table is a held job, another one for each command."""
    service = shared_service

    def words(command: str) -> list[str]:
        held = str(service.submit(["true"], hold=True))
        named = {"1": held, "JobId=1": f"JobId={held}"}
        return [named.get(word, word) for word in shlex.split(command)]

    programs.call(*words(slurm))
    monkeypatch.setenv("RESHAPE_DIR", str(service.directory))
    invoke(*words(ours), cwd=service.work)
