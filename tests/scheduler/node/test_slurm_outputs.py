"""What Slurm's commands print, as recorded, and lines that they may print besides."""

from __future__ import annotations

import signal
from datetime import datetime
from pathlib import Path

import pytest
from agent_driver import is_running
from waiting import wait_until

from reshape.errors import ReshapeError
from scheduler.node.slurm import BatchState, BatchStatus, read_statuses, read_time, run_command

#: Slurm 22.05.8, SLURM_TIME_FORMAT=%s squeue --noheader --states=all --format='%i|%T|%S|%e|%N|%r'
SQUEUE = """\
3|PENDING|N/A|N/A||PartitionConfig
4|PENDING|1795335138|1795335738||Priority
2|RUNNING|1795335018|1795335138|n[1-2]|None
5|CANCELLED|1795335078|1795335078|n[1-2]|None
1|COMPLETED|1795335076|1795335076|n[1-3]|None
6|FAILED|1795335078|1795335078|n[1-3]|NonZeroExitCode
7|CONFIGURING|1795335078|1795335378|c1|None
"""


def read(output: str, *numbers: str) -> dict[str, BatchStatus]:
    return read_statuses(output, numbers)


def test_queued_running_and_ended_jobs() -> None:
    found = read(SQUEUE, "1", "2", "3", "4", "5", "6", "7")
    assert {number: status.state for number, status in found.items()} == {
        "1": BatchState.ENDED,
        "2": BatchState.RUNNING,
        "3": BatchState.QUEUED,
        "4": BatchState.QUEUED,
        "5": BatchState.ENDED,
        "6": BatchState.ENDED,
        "7": BatchState.QUEUED,
    }
    assert found["2"] == BatchStatus(
        BatchState.RUNNING, "RUNNING", "", 1795335018.0, 1795335138.0, "n[1-2]"
    )
    assert found["3"] == BatchStatus(BatchState.QUEUED, "PENDING", "PartitionConfig")
    assert found["4"].start is None, "the start of a queued job is a guess"
    assert found["6"].reason == "NonZeroExitCode"


def test_only_the_jobs_that_were_asked_for() -> None:
    assert set(read(SQUEUE, "2", "99")) == {"2"}


@pytest.mark.parametrize(
    "line",
    [
        "",
        "CLUSTER: alpha",
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        "2|RUNNING",
        "2_[1-4]|PENDING|N/A|N/A||Resources",
        "2+0|RUNNING|1795335018|1795335138|n1|None",
        "2.batch|RUNNING|1795335018|1795335138|n1",
        "JOBID|STATE|START_TIME|END_TIME|NODELIST|REASON",
    ],
)
def test_other_lines_are_skipped(line: str) -> None:
    assert set(read(f"{line}\n{SQUEUE}{line}\n", "2")) == {"2"}
    assert read(line, "2") == {}


def test_a_state_that_is_not_listed_is_unknown() -> None:
    found = read("2|REBOOTING|1795335018|1795335138|n1|None", "2")
    assert found["2"].state is BatchState.UNKNOWN
    assert found["2"].word == "REBOOTING"


def test_a_reason_may_contain_the_separator() -> None:
    text = "2|PENDING|N/A|N/A||(ReqNodeNotAvail, UnavailableNodes:n1|n2)"
    assert read(text, "2")["2"].reason == "(ReqNodeNotAvail, UnavailableNodes:n1|n2)"


def test_lines_of_sacct() -> None:
    text = (
        "8|CANCELLED by 1000|2026-11-22T08:11:16|2026-11-22T08:11:18|n[1-2]\n"
        "9|PENDING|Unknown|Unknown|None assigned\n"
        "10|TIMEOUT|Unknown|2026-11-22T08:11:18|n3\n"
        "11|OUT_OF_ME+|1795335018|1795335138|n3\n"
        "11|OUT_OF_MEMORY|1795335018|1795335138|n3\n"
    )
    found = read(text, "8", "9", "10", "11")
    assert found["8"].word == "CANCELLED"
    assert found["8"].state is BatchState.ENDED
    assert found["8"].end == datetime(2026, 11, 22, 8, 11, 18).timestamp()
    assert found["9"] == BatchStatus(BatchState.QUEUED, "PENDING")
    assert found["10"].start is None
    assert found["11"].word == "OUT_OF_MEMORY"


def test_the_last_line_of_a_requeued_job_counts() -> None:
    text = "8|NODE_FAIL|1|2|n1\n8|RUNNING|3|Unknown|n2\n"
    assert read(text, "8")["8"].state is BatchState.RUNNING
    assert read(text, "8")["8"].end is None


@pytest.mark.parametrize("text", ["N/A", "Unknown", "", "NONE", "2026-13-01T00:00:00", "-5"])
def test_texts_that_are_no_times(text: str) -> None:
    assert read_time(text) is None


def test_a_command_that_hangs_ends_with_all_that_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sites have scripts in place of Slurm's commands, which call these."""
    monkeypatch.setattr("scheduler.node.slurm.TIMEOUT_S", 1.0)
    script = f"sleep 1000 & echo $! > {tmp_path}/child; wait"
    with pytest.raises(ReshapeError, match="no answer within 1 s"):
        run_command(["sh", "-c", script])
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: not is_running(child))


def test_a_command_ends_if_its_caller_is_interrupted(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGUSR1, signal.default_int_handler)
    script = f"sleep 1000 & echo $! > {tmp_path}/child; read go; kill -USR1 $PPID; wait"
    try:
        with pytest.raises(KeyboardInterrupt):
            run_command(["sh", "-c", script], stdin="go\n")
    finally:
        signal.signal(signal.SIGUSR1, before)
    child = int((tmp_path / "child").read_text())
    wait_until(lambda: not is_running(child))
