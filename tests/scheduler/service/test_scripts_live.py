"""Job scripts against a real service: they run once, and start programs on their processors."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from told import WAITS
from waiting import wait_until

from scheduler.journal.journal_reader import reading
from scheduler.node.launching.job_command import MOST_BYTES
from scheduler.protocol import messages as m

SCRIPT = """#!/bin/bash
#SBATCH --job-name=steps --mem=1G
#SBATCH -n 2
echo "script $1 of job $RESHAPE_JOB on $RESHAPE_PROCESSORS"
mpiexec -n $RESHAPE_PROCESSORS python -c '
from mpi4py import MPI
from reshape.wire.identity import identity
comm = MPI.COMM_WORLD
assert identity() is None
print(f"rank {comm.rank} of {comm.allreduce(1)}", flush=True)
' || exit 9
python -c 'from mpi4py import MPI; print("alone", MPI.COMM_WORLD.size, flush=True)'
exit 3
#SBATCH -n 1
"""


@pytest.fixture
def command(served: Any) -> Any:
    served.start("--processors", "2", "--scenario", "easy")
    return served.command


def test_a_script_runs_once_on_the_processors_of_its_job(served: Any, command: Any) -> None:
    Path(served.work / "job.sh").write_text(SCRIPT)
    done = command("batch", "--wait", "job.sh", "one", code=3)
    assert "warning: without effect here: --mem=1G" in done.stderr
    assert "job.sh:14: options after the first command have no effect" in done.stderr
    job = served.job(1)
    assert (job.name, job.requested, job.state, job.exit_code) == ("steps", 2, "FAILED", 3)
    assert job.reason.startswith("the script ended with exit code 3:0")
    assert "Ignored:    --mem=1G\n" in command("info", 1).stdout
    # A rank without buffers writes its text and the end of the line one after the other.
    assert sorted(re.findall(r"alone \d|rank \d of \d|script .*", served.output(1))) == [
        *("alone 1", "rank 0 of 2", "rank 1 of 2", "script one of job 1 on 2"),
    ]

    assert command("output", 1).stdout == served.output(1)
    assert "there is no job 7" in command("output", 7, code=1).stderr

    # The end of a job ends what its script has started, also in the background.
    shell = "mpiexec -n 2 sleep 3600 & sleep 3600 & touch up; wait"
    second = json.loads(command("batch", "--json", "-n", 2, "--wrap", shell).stdout)["job"]
    wait_until((served.work / "up").exists)
    served.kill()
    served.start(*served.options)
    assert served.until(second, "RUNNING").name == "wrap"
    command("cancel", second)
    ended = served.wait(second)
    assert (ended.state, ended.signal) == ("CANCELLED", 15)
    assert served.free() == 2

    # A script is held, changed and requeued as any job.
    words = ["--hold", "--begin", "now", "--wrap", WAITS[-1]]
    third = json.loads(command("batch", "--json", *words).stdout)["job"]
    assert "JobHeldUser" in served.job(third).reason
    told = command("explain", third).stdout
    assert "no expected start: held by its user until it is released" in told
    command("release", third)
    served.until(third, "RUNNING")
    command("requeue", third)
    served.when(third, lambda job: job.requeues and job.state == "RUNNING")
    assert served.finish(third).exit_code == 0

    # An output is followed to the end of the job, also if it is still to begin.
    words = ["--hold", "--wrap", "echo one; until test -e more; do sleep 0.05; done; echo two"]
    fourth = json.loads(command("batch", "--json", *words).stdout)["job"]
    told = command("output", fourth, code=1).stderr
    assert f"of job {fourth} (PENDING): No such file or directory" in told
    words = [sys.executable, "-m", "reshape", "output", "--dir", served.directory, "-f"]
    with subprocess.Popen([*words, str(fourth)], stdout=subprocess.PIPE) as following:
        assert following.stdout is not None
        command("release", fourth)
        assert following.stdout.readline() == b"one\n"
        (served.work / "more").touch()
        assert following.stdout.read() == b"two\n"
    assert following.returncode == 0


def kept_texts(served: Any) -> int:
    """Number of texts of scripts in the journal."""
    with reading(served.place.journal) as records:
        query = "SELECT count(*) FROM scripts WHERE CAST(text AS TEXT) LIKE '#!%'"
        return int(next(records.rows(query))[0])


def test_a_large_script_is_kept_until_its_jobs_have_ended(served: Any, command: Any) -> None:
    """The copy of the submission runs, also after a kill; one for all tasks of an array."""
    path = served.work / "job.sh"
    end = f'test -O "$0" && echo "last line $RESHAPE_ARRAY_TASK_ID $1"\n{WAITS[-1]}\n'
    text = "#!/bin/bash\n" + "# text\n" * ((MOST_BYTES - len(end)) // 7 - 2) + end
    path.write_text(text)
    command("batch", "--hold", "job.sh", "one")
    command("batch", "--hold", "--array", "3,5", "job.sh", "two")
    path.write_text("#!/bin/false\n")
    assert kept_texts(served) == 1
    assert served.job(1).argv == ["job.sh", "one"]
    path.write_text(f"{text}{'#' * 99}")
    told = command("batch", "job.sh", code=1).stderr
    assert f"job.sh has {path.stat().st_size} bytes, and a script has at most 4194304" in told
    assert served.ask(m.ServerInfo()).queued == 2  # nothing of it is left

    served.kill()
    served.start(*served.options)
    command("release", 1)
    served.until(1, "RUNNING")
    assert served.finish(1).state == "COMPLETED"
    assert served.output(1) == "last line  one\n"
    command("release", 2)
    for task, index in ((3, 3), (4, 5)):
        served.until(task, "RUNNING")
        served.finish(task)
        output = served.work / f"reshape-2_{index}.out"
        assert output.read_text() == f"last line {index} two\n"
    assert served.wait(2).state == "COMPLETED"
    wait_until(lambda: kept_texts(served) == 0)
    wait_until(lambda: not served.segments(), lambda: f"copies are left: {served.segments()}")


def test_a_script_that_the_journal_has_lost_does_not_run(served: Any, command: Any) -> None:
    (served.work / "job.py").write_text(f"#!{sys.executable}\nopen('ran', 'w')\n")
    command("batch", "--hold", "job.py")
    served.kill()
    with closing(sqlite3.connect(served.place.journal)) as journal, journal:
        journal.execute("UPDATE scripts SET text=x'2321' WHERE CAST(text AS TEXT) LIKE '#!%'")
    served.start(*served.options)
    command("release", 1)
    assert served.wait(1).state == "FAILED"
    assert not (served.work / "ran").exists()


def test_the_interpreter_of_a_script_must_be_there(served: Any, command: Any) -> None:
    (served.work / "job").write_text("#!/usr/bin/no-such-shell\n")
    assert "no program /usr/bin/no-such-shell" in command("batch", "job", code=1).stderr
    (served.work / "job").write_text("#!/usr/bin/tail -n1\nthe last line\n")
    command("batch", "--wait", "job")  # of any interpreter
    assert served.output(1) == "the last line\n"
