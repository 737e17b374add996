"""PSI/J with processes of this machine, and batch jobs that are recorded in folders."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import psutil
import pytest

from scheduler.batch_systems.interface import (
    BatchRequest,
    BatchState,
    BatchStatus,
    BatchSystemError,
)
from scheduler.batch_systems.psij_system import Psij
from scheduler.batch_systems.recorded import RecordedBatchSystem

pytest.importorskip("psij", reason="the extra 'psij' is not installed")

#: PSI/J does not close the pipes of its processes.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    yield
    time.sleep(0.11)  # PSI/J notices the end of a process
    gc.collect()


#: A client that is killed when the batch job was submitted and its id is not yet written.
DIES = """
import os, signal, sys
from pathlib import Path
from scheduler.batch_systems.interface import BatchRequest
from scheduler.batch_systems.psij_system import Psij
from scheduler.batch_systems.recorded import RecordedBatchSystem

class Dying(Psij):
    def submit(self, request):
        super().submit(request)
        os.kill(os.getpid(), signal.SIGKILL)

here = Path(sys.argv[1])
batch = RecordedBatchSystem(Dying("local", here / "psij"), here / "jobs")
batch.submit(BatchRequest(sys.argv[2], 1, 60.0, "job", here, here / "output"))
"""


def request(here: Path, script: str, *options: str, name: str = "job") -> BatchRequest:
    return BatchRequest(f"#!/bin/sh\n{script}\n", 1, 60.0, name, here, here / "output", options)


def recorded(here: Path, batch: Psij | None = None) -> RecordedBatchSystem:
    return RecordedBatchSystem(batch or Psij("local", here / "psij"), here / "jobs")


def until(batch: RecordedBatchSystem, number: str, state: BatchState) -> BatchStatus:
    end = time.monotonic() + 20.0
    while (status := batch.statuses([number])[number]).state is not state:
        assert time.monotonic() < end, status
        time.sleep(0.05)
    return status


class Unanswered(Psij):
    """The batch job is submitted `later`, or at once, and its client gets no answer."""

    later: BatchRequest | None = None
    is_late = False

    def submit(self, request: BatchRequest) -> str:
        if self.is_late:
            self.later = request
        else:
            super().submit(request)
            time.sleep(0.5)
        raise BatchSystemError("no answer")


def test_a_batch_job_from_submission_to_end(tmp_path: Path) -> None:
    batch = recorded(tmp_path)
    number = batch.submit(request(tmp_path, "echo once; pwd; sleep 0.3; exit 3"))
    assert until(batch, number, BatchState.RUNNING).exit_code is None
    ended = until(batch, number, BatchState.ENDED)
    assert (ended.word, ended.exit_code) == ("FAILED", 3)
    assert ended.start is not None
    assert ended.end is not None
    assert 0 <= ended.end - ended.start <= 5
    assert (tmp_path / "output").read_text() == f"once\n{tmp_path}\n"


def test_a_name_is_submitted_once_until_it_has_ended(tmp_path: Path) -> None:
    wanted = request(tmp_path, "echo once; while [ ! -e end ]; do sleep 0.05; done")
    number = recorded(tmp_path).submit(wanted)
    again = recorded(tmp_path)
    assert again.submit(wanted) == number
    assert again.find(["job", "other"]) == {"job": number}
    assert again.submit(wanted) == number
    (tmp_path / "end").touch()
    until(again, number, BatchState.ENDED)
    assert (tmp_path / "output").read_text() == "once\n"
    second = again.submit(wanted)
    assert second != number
    until(again, second, BatchState.ENDED)
    assert (tmp_path / "output").read_text() == "once\nonce\n"


def test_a_cancelled_batch_job_has_no_process_left(tmp_path: Path) -> None:
    batch = recorded(tmp_path)
    number = batch.submit(request(tmp_path, "echo $$; exec sleep 60"))
    other = recorded(tmp_path)
    until(other, number, BatchState.RUNNING)
    while not (tmp_path / "output").exists() or not (tmp_path / "output").read_text():
        time.sleep(0.02)
    process = psutil.Process(int((tmp_path / "output").read_text()))
    other.cancel([number])
    status = other.statuses([number])[number]
    assert (status.state, status.exit_code) == (BatchState.ENDED, None)
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    other.cancel([number])


def test_a_client_that_is_killed_after_the_submission_leaves_one_batch_job(tmp_path: Path) -> None:
    script = "#!/bin/sh\necho once; sleep 1\n"
    died = subprocess.run([sys.executable, "-c", DIES, tmp_path, script], check=False, timeout=30)
    assert died.returncode == -signal.SIGKILL
    while not (tmp_path / "output").exists():
        time.sleep(0.02)
    batch = recorded(tmp_path)
    number = batch.submit(request(tmp_path, "echo twice"))
    assert batch.statuses([number])[number].state is BatchState.RUNNING
    until(batch, number, BatchState.ENDED)
    assert (tmp_path / "output").read_text() == "once\n"


def test_an_answer_that_is_lost_after_the_start_is_settled(tmp_path: Path) -> None:
    batch = recorded(tmp_path, Unanswered("local", tmp_path / "psij"))
    number = batch.submit(request(tmp_path, "echo once; sleep 1"))
    assert batch.statuses([number])[number].state is BatchState.RUNNING
    until(batch, number, BatchState.ENDED)
    assert (tmp_path / "output").read_text() == "once\n"


@pytest.mark.parametrize("by", ["submit", "find"])
def test_a_batch_job_that_was_given_up_does_not_run_later(tmp_path: Path, by: str) -> None:
    unanswered = Unanswered("local", tmp_path / "psij")
    unanswered.is_late = True
    batch, wanted = recorded(tmp_path, unanswered), request(tmp_path, "echo one")
    with pytest.raises(BatchSystemError, match="no answer"):
        batch.submit(wanted)
    good = recorded(tmp_path)
    second = good.submit(wanted) if by == "submit" else ""
    assert good.find(["job"]) == ({"job": second} if second else {})
    assert unanswered.later is not None
    late = Psij("local", tmp_path / "psij")
    first = late.submit(unanswered.later)
    for each in filter(None, (first, second)):
        until(good, each, BatchState.ENDED)
    output = tmp_path / "output"
    assert (output.read_text() if output.exists() else "") == ("one\n" if second else "")
    messages = (tmp_path / "jobs" / "job" / "messages").read_text()
    assert messages == "attempt 1 of job was given up before it began\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--partition=short"], "psij-local has no option '--partition=short'; use queue=NAME"),
        (["slurm.constraint=fast"], "or local.OPTION=VALUE"),
        (["queue="], "no option 'queue='"),
    ],
)
def test_options_are_checked(tmp_path: Path, options: Iterable[str], message: str) -> None:
    batch = Psij("local", tmp_path)
    for call in (batch.submit, batch.check):
        with pytest.raises(BatchSystemError, match=message):
            call(request(tmp_path, "true", *options))
    assert batch.check(request(tmp_path, "true", "queue=short")).startswith("PSI/J has no dry run")


def test_what_psij_cannot_do_is_said(tmp_path: Path) -> None:
    with pytest.raises(BatchSystemError, match="PSI/J has no executor 'sge'; use one of"):
        Psij("sge", tmp_path)
    with pytest.raises(BatchSystemError, match="psij-flux cannot be used"):
        Psij("flux", tmp_path)
    with pytest.raises(BatchSystemError, match="cannot look for batch jobs by name: a, b"):
        Psij("local", tmp_path).find(["a", "b"])


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    batch = Psij("pbs", tmp_path / "psij")
    with pytest.raises(BatchSystemError, match="psij-pbs: there is no program 'qdel' on PATH"):
        batch.check(request(tmp_path, "true"))
    with pytest.raises(BatchSystemError, match=r"No such file or directory: 'qsub'"):
        batch.submit(request(tmp_path, "true"))
    with pytest.raises(BatchSystemError, match=r"qstat .*: cannot be started"):
        batch.statuses(["12"])


def test_the_handling_of_ended_children_remains(tmp_path: Path) -> None:
    program = (
        "import signal, sys; from pathlib import Path\n"
        "from scheduler.batch_systems.psij_system import Psij\n"
        "Psij('local', Path(sys.argv[1]))\n"
        "assert signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL\n"
    )
    subprocess.run([sys.executable, "-c", program, tmp_path], check=True, timeout=30)
