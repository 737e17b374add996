"""A batch system that a test plays: batch jobs start and end when the test says so."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from scheduler.batch_systems.interface import (
    BatchRequest,
    BatchState,
    BatchStatus,
    BatchSystemError,
)


class Cluster:
    """A batch system whose batch jobs start and end when a test says so.

    Their scripts are run by a real shell. A program is replaced by one that notes that it runs; if
    the batch job is to be killed later, it kills the shell, which then notes no exit code.
    """

    id_expression = "$BATCH_ID"

    def __init__(self, here: Path) -> None:
        self.name, self.here = "psij-pbs", here
        self.requests: dict[str, BatchRequest] = {}
        self.states: dict[str, BatchState] = {}
        self.is_answering = True
        program = here / "bin" / "mpiexec"
        program.parent.mkdir()
        program.write_text(
            '#!/bin/sh\necho "$3" >> "$RUNS"\n[ -z "$KILLED" ] || kill -9 $PPID\nexit 0\n'
        )
        program.chmod(0o700)

    def submit(self, request: BatchRequest) -> str:
        number = str(len(self.requests) + 1)
        self.requests[number], self.states[number] = request, BatchState.QUEUED
        if not self.is_answering:
            raise BatchSystemError("no answer")
        return number

    def check(self, request: BatchRequest) -> str:
        return ""

    def statuses(self, ids: Iterable[str]) -> dict[str, BatchStatus]:
        asked = list(ids)
        if asked and not self.is_answering:
            raise BatchSystemError("no answer")
        words = {BatchState.ENDED: "TIMEOUT"}
        return {
            each: BatchStatus(self.states[each], words.get(self.states[each], "")) for each in asked
        }

    def in_state(self, state: BatchState) -> list[str]:
        return [number for number, each in self.states.items() if each is state]

    def find(self, names: Iterable[str]) -> dict[str, str]:
        raise NotImplementedError

    def cancel(self, ids: Iterable[str]) -> None:
        for each in ids:
            self.states[each] = BatchState.ENDED

    def start(self, number: str, is_killed: bool) -> None:
        """Run the script of a batch job to its end, or until it is killed later."""
        script, runs_before = self.here / "script", self.runs()
        script.write_text(self.requests[number].script)
        variables = {"BATCH_ID": number, "RUNS": str(self.here / "runs")}
        variables |= {"KILLED": "yes"} if is_killed else {}
        subprocess.run(["sh", script], env=os.environ | variables, check=False, capture_output=True)
        has_begun = self.runs() != runs_before  # not if it was given up
        self.states[number] = BatchState.RUNNING if is_killed and has_begun else BatchState.UNKNOWN

    def runs(self) -> Counter[str]:
        """How often the program of each submission ran."""
        file = self.here / "runs"
        return Counter(file.read_text().split() if file.exists() else [])
