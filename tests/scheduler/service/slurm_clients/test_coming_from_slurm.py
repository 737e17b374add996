"""Each line of the table in docs/coming-from-slurm.md: both forms show, and do, the same."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

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


#: Seconds after which the jobs of the table may start at the earliest.
LATER_S = 86400.0


class Table(NamedTuple):
    """What both forms of a line address.

    Attributes
    ----------
    service : the service.
    programs : the commands of Slurm.
    jobs : the job that stands for 1 in the table: first that of Slurm's form, then that of ours.
    ended : a job that was cancelled.
    """

    service: Any
    programs: SlurmPrograms
    jobs: tuple[int, int]
    ended: int

    def slurm(self, line: str) -> str:
        """Run the form of Slurm; return what it prints."""
        return self.programs.call(*self._words(line, self.jobs[0]))

    def ours(self, line: str) -> str:
        """Run our form; return what it prints."""
        return invoke(*self._words(line, self.jobs[1]), cwd=self.service.work).stdout

    @staticmethod
    def _words(line: str, job: int) -> list[str]:
        named = {"1": str(job), "JobId=1": f"JobId={job}"}
        return [named.get(word, word) for word in shlex.split(line)]

    def request(self, number: int) -> tuple[object, ...]:
        """What was requested for a job."""
        job = self.service.job(number)
        held = "JobHeldUser" in job.reason
        return job.name, job.requested, job.walltime_s, held, job.queue, job.partition


@pytest.fixture
def table(
    programs: SlurmPrograms,
    shared_service: Any,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[Table]:
    """Two jobs that cannot start yet; they are held, unless the line is to hold them."""
    service = shared_service
    monkeypatch.setenv("RESHAPE_DIR", str(service.directory))
    holds = "hold 1" not in request.node.callspec.params["slurm"]
    request = {"name": "case", "hold": holds, "begin": time.time() + LATER_S}
    jobs = [service.submit(["true"], **request) for _ in range(3)]
    invoke("cancel", jobs[2])
    yield Table(service, programs, (jobs[0], jobs[1]), jobs[2])
    for job in jobs[:2]:
        if service.job(job).ended_at is None:
            invoke("cancel", job)


def lines_of(pattern: str) -> list[tuple[str, str]]:
    """Lines of the table whose form of Slurm has this begin."""
    return [line for line in LINES if re.match(pattern, line[0])]


LISTS, SUBMITS = r"squeue|sacct", r"sbatch|srun"
CHANGES, SHOWS = r"scontrol (?!show)|scancel", r"scontrol show|sinfo"


def test_every_line_is_of_one_kind() -> None:
    kinds = [lines_of(kind) for kind in (LISTS, SUBMITS, CHANGES, SHOWS)]
    assert sorted(line for kind in kinds for line in kind) == sorted(LINES)


@pytest.mark.parametrize(("slurm", "ours"), lines_of(LISTS))
def test_both_forms_list_the_same_jobs(slurm: str, ours: str, table: Table) -> None:
    # reshape history lists ended jobs alone, and sacct all.
    jobs = [table.ended] if slurm.startswith("sacct") else [*table.jobs, table.ended]
    told = table.slurm(slurm), table.ours(ours)
    found = [[bool(re.search(rf"^ *{job}\b", text, re.M)) for job in jobs] for text in told]
    assert found[0] == found[1], told
    assert any(found[0]), told
    if "noheader" in ours:
        rows = [re.findall(rf"^{table.jobs[0]} .*$", text, re.M) for text in told]
        assert rows[0] == rows[1] == [f"{table.jobs[0]} PENDING"]


@pytest.mark.parametrize(("slurm", "ours"), lines_of(SUBMITS))
def test_both_forms_submit_the_same_job(slurm: str, ours: str, table: Table) -> None:
    before = table.service.submit(["true"])
    table.slurm(slurm)
    between = table.service.submit(["true"])
    table.ours(ours)
    after = table.service.submit(["true"])
    assert between - before == after - between > 1, "an array has a number for each task"
    submitted = before + 1, between + 1
    assert table.request(submitted[0]) == table.request(submitted[1])
    if slurm.startswith("srun"):
        ends = [table.service.job(number) for number in submitted]
        assert [(end.state, end.exit_code) for end in ends] == [("COMPLETED", 0)] * 2
    elif "-H" in slurm:
        invoke("cancel", *submitted)


@pytest.mark.parametrize(("slurm", "ours"), lines_of(CHANGES))
def test_both_forms_change_a_job_alike(slurm: str, ours: str, table: Table) -> None:
    before = [table.request(job) for job in table.jobs]
    states = []
    for change, line, job in zip((table.slurm, table.ours), (slurm, ours), table.jobs, strict=True):
        assert table.service.job(job).state == "PENDING" or "case" in slurm
        change(line)
        states.append((table.service.job(job).state, *table.request(job)))
    assert states[0] == states[1]
    assert states[0] != ("PENDING", *before[0]), "it has changed nothing"


@pytest.mark.parametrize(("slurm", "ours"), lines_of(SHOWS))
def test_both_forms_show_the_same(slurm: str, ours: str, table: Table) -> None:
    for text, job in zip((table.slurm(slurm), table.ours(ours)), table.jobs, strict=True):
        of_node = ["local", "idle"] if "node" in ours else ["local"]
        shown = [str(job), "case", "PENDING", "00:10:00"] if "job" in slurm else of_node
        assert [word for word in shown if word.lower() not in text.lower()] == [], text
