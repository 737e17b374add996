"""``reshape submit --from``: the lines of a file, refused together or submitted together."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import pytest
from answering import Answer
from answering import service as answering_service
from command_line import invoke
from desk import served_desk

from reshape.wire.codec import encode
from reshape.wire.connection import ServerFile
from scheduler.client.api.asking import list_jobs
from scheduler.protocol import messages as m


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Directory of a service of 4 processors on which no job starts."""
    with served_desk(tmp_path_factory.mktemp("service")) as directory:
        yield directory


def submitted(directory: Path) -> list[m.JobInfo]:
    return list_jobs(directory).jobs


def test_each_line_is_a_submission_and_options_hold_for_all_lines(
    directory: Path, tmp_path: Path
) -> None:
    (tmp_path / "case").mkdir()
    (tmp_path / "jobs.txt").write_text(
        "#!/bin/sh\n"
        "-n 2 -- python 'a b.py' x#1\n"
        "\n"
        "reshape submit --walltime 5:00 --name two \\\n    --chdir case -- true\n"
        "  # the last one\n"
        "-n 3 --min 2 --max 4 --no-bind true -n 9"
    )
    before = len(submitted(directory))
    options = ["--dir", directory, "-n", "1", "--walltime", "20:00", "--requeue"]
    done = invoke("submit", *options, "--from", "jobs.txt", cwd=tmp_path)
    assert done.stdout == f"submitted jobs {before + 1}-{before + 3}\n"
    first, second, third = submitted(directory)[before:]
    assert first.argv == ["python", "a b.py", "x#1"]
    assert [job.requested for job in (first, second, third)] == [2, 1, 3]
    sizes = [(job.min_processors, job.max_processors) for job in (first, second, third)]
    assert sizes == [(None, None), (None, None), (2, 4)]
    assert [job.walltime_s for job in (first, second, third)] == [1200, 300, 1200]
    assert (first.name, second.name, third.name) == ("a b.py", "two", "true")
    assert first.output.startswith(f"{tmp_path}/reshape-")
    assert second.output.startswith(f"{tmp_path}/case/reshape-")
    assert third.argv == ["true", "-n", "9"]


def test_invalid_lines_are_named_and_nothing_is_submitted(directory: Path, tmp_path: Path) -> None:
    lines = [
        "-n 1 -- true",
        "-n 1 -- no-such-program",
        "-- true",
        "-n 1",
        "-n 1 --walltime tomorrow -- true",
        "-n 1 --wait -- true",
        "-n 1 -- echo 'open",
        "--help",
    ]
    (tmp_path / "jobs.txt").write_text("\n".join(lines) + "\n")
    before = len(submitted(directory))
    done = invoke("submit", "--dir", directory, "--from", "jobs.txt", code=1, cwd=tmp_path)
    head, *faults = done.stderr.splitlines()
    assert head == "reshape: error: nothing was submitted, 7 of 8 lines cannot be:"
    expected = [
        "jobs.txt:2: there is no program 'no-such-program' on PATH",
        "jobs.txt:3: Missing option '-n'.",
        "jobs.txt:4: Missing argument 'PROGRAM [ARGS]...'.",
        "jobs.txt:5: Invalid value for '--walltime': 'tomorrow' is not a time",
        "jobs.txt:6: No such option '--wait",
        "jobs.txt:7: No closing quotation",
        "jobs.txt:8: No such option '--help",
    ]
    assert [fault[: len(text)] for fault, text in zip(faults, expected, strict=True)] == expected
    assert done.stdout == ""
    assert len(submitted(directory)) == before


def test_lines_that_the_service_refuses_are_named_and_nothing_is_submitted(
    directory: Path, tmp_path: Path
) -> None:
    (tmp_path / "jobs.txt").write_text("-n 1 true\n-n 5 true\n-n 1 --queue express true\n")
    before = len(submitted(directory))
    done = invoke("submit", "--dir", directory, "--from", "jobs.txt", code=1, cwd=tmp_path)
    assert done.stderr == (
        "reshape: error: nothing was submitted, 2 of 3 lines cannot be:\n"
        "jobs.txt:2: the job asks for 5 processors, the machine has 4: ask for fewer\n"
        "jobs.txt:3: there is no queue 'express'; known are main\n"
    )
    assert len(submitted(directory)) == before


def test_a_thousand_lines_are_submitted_in_order_and_cancelled_in_one_call(
    directory: Path, tmp_path: Path
) -> None:
    text = "".join(f"-n 1 --name many-{i} -- true {i}\n" for i in range(1000))
    (tmp_path / "jobs.txt").write_text(text)
    before = len(submitted(directory))
    done = invoke("submit", "--dir", directory, "--from", "jobs.txt", "--json", cwd=tmp_path)
    numbers = json.loads(done.stdout)["jobs"]
    assert numbers == list(range(before + 1, before + 1001))
    jobs = submitted(directory)[before:]
    assert [job.argv[1] for job in jobs] == [str(i) for i in range(1000)]
    done = invoke("cancel", "--dir", directory, f"{numbers[0]}-{numbers[-1]}")
    assert done.stdout == "".join(f"cancelled job {number}\n" for number in numbers)
    assert len(submitted(directory)) == before


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"# nothing\n\n", "jobs.txt has no submission: write one in each line"),
        (b"-n 1 \\\n", "jobs.txt:1: nothing follows the backslash at the end"),
        (b"-n 1 -- echo \xff\n", "jobs.txt is not UTF-8 text: write it in UTF-8"),
    ],
)
def test_a_file_that_is_no_list_of_submissions_is_refused(
    directory: Path, tmp_path: Path, text: bytes, says: str
) -> None:
    (tmp_path / "jobs.txt").write_bytes(text)
    done = invoke("submit", "--dir", directory, "--from", "jobs.txt", code=1, cwd=tmp_path)
    assert done.stderr == f"reshape: error: {says}\n"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--test-only"], "leave out --test-only"),
        (["--", "true"], "leave out PROGRAM"),
        (["--sites", "jobs.txt"], "leave out --sites"),
    ],
)
def test_options_that_a_file_excludes_are_refused(
    tmp_path: Path, options: list[str], says: str
) -> None:
    (tmp_path / "jobs.txt").write_text("-n 1 true\n")
    assert says in invoke("submit", "--from", "jobs.txt", *options, code=2, cwd=tmp_path).stderr


def test_what_was_submitted_is_told_if_the_service_fails_meanwhile(tmp_path: Path) -> None:
    """The service accepts the checks and the first submission, and refuses the second one."""
    (tmp_path / "jobs.txt").write_text("-n 1 true\n-n 1 true\n-n 1 true\n")
    jobs = iter((m.Submitted(job=7), m.Failure(message="the disk is full"), m.Submitted(job=8)))

    def answer(request: m.Message) -> list[list[bytes]]:
        made = next(jobs) if isinstance(request, m.Submit) else m.Done()
        made.id = request.id
        return [encode(made)]

    with _played(tmp_path, answer):
        done = invoke("submit", "--dir", tmp_path, "--from", "jobs.txt", code=1, cwd=tmp_path)
    assert done.stderr == (
        "reshape: error: the service refused 1 line; jobs 7-8 submitted:\n"
        "jobs.txt:2: the disk is full\n"
    )


def test_lines_without_an_answer_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scheduler.client.api.asking.MANY_ANSWERS_S", 0.3)
    (tmp_path / "jobs.txt").write_text("-n 1 true\n\n-n 1 true\n")
    answered: list[int] = []

    def answer(request: m.Message) -> list[list[bytes]]:
        if not isinstance(request, m.Submit):
            return [encode(m.Done(id=request.id))]
        answered.append(request.id)
        return [encode(m.Submitted(job=7, id=request.id))] if len(answered) == 1 else []

    with _played(tmp_path, answer):
        done = invoke("submit", "--dir", tmp_path, "--from", "jobs.txt", code=1, cwd=tmp_path)
    assert "job 7 submitted; the lines from jobs.txt:3 on were not answered" in done.stderr


def _played(directory: Path, answer: Answer) -> AbstractContextManager[None]:
    """Serve `answer` at the socket of a directory."""
    endpoint = f"ipc://{directory}/socket"
    file = ServerFile(endpoint=endpoint, pid=os.getpid(), started_at=0.0)
    (directory / "server.json").write_bytes(msgspec.json.encode(file))
    return answering_service(endpoint, answer)
