"""``reshape cancel``: lists, ranges, users and names; ``reshape explain`` of a queued job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from command_line import invoke
from desk import served_desk

from reshape.__main__ import main
from scheduler import Client
from scheduler.protocol import messages as m


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """Directory of a service with 6 queued jobs of user root."""
    with served_desk(tmp_path / "service") as directory:
        with Client(directory) as service:
            for name in ("a", "b", "a", "c", "a", "b"):
                service.submit(["true"], name=name, cwd=tmp_path)
        yield directory


@pytest.mark.parametrize(
    ("arguments", "left"),
    [
        (["1,3", "last"], [2, 4, 5]),
        (["2-4"], [1, 5, 6]),
        (["5-900000000000", "1"], [2, 3, 4]),
        (["--all"], []),
        (["--name", "a"], [2, 4, 6]),
        (["--user", "root", "--name", "b"], [1, 3, 4, 5]),
    ],
    ids=str,
)
def test_jobs_are_chosen(directory: Path, arguments: list[str], left: list[int]) -> None:
    done = invoke("cancel", "--dir", directory, *arguments)
    with Client(directory) as service:
        assert [job.job for job in service.queue()] == left
    cancelled = {int(line.removeprefix("cancelled job ")) for line in done.stdout.splitlines()}
    assert cancelled == set(range(1, 7)) - set(left)


def test_a_job_that_cannot_be_cancelled_does_not_keep_others_from_it(directory: Path) -> None:
    invoke("cancel", "--dir", directory, "2")
    done = invoke("cancel", "--dir", directory, "1", "2", "77", "3-4", code=1)
    assert done.stdout == "cancelled job 1\ncancelled job 3\ncancelled job 4\n"
    assert done.stderr == (
        "reshape: error: job 2 has ended already (CANCELLED)\n"
        "reshape: error: there is no job 77: numbers go from 1 to 6\n"
    )
    done = invoke("cancel", "--dir", directory, "1-4")
    assert done.stderr == "reshape: no queued or running job matches\n"


def test_each_of_several_messages_tells_what_it_has_not_changed(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one may name a single job, whose refusal is an answer of another kind."""
    monkeypatch.setattr(m, "MOST_CHANGED", 2)
    with Client(directory) as service:
        ended, missing = service.job(2), service.job(77)
        ended.cancel()
        assert service.cancel([service.job(1), missing, ended]) == {
            missing: "there is no job 77: numbers go from 1 to 6",
            ended: "job 2 has ended already (CANCELLED)",
        }
        assert [job.job for job in service.queue()] == [3, 4, 5, 6]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "give JOB, --all, --user or --name"),
        (["--all", "3"], "give one of --all or JOB"),
        (["--user", "ann", "3"], "give one of JOB or --user and --name"),
        (["3-"], "'3-' is not a range of jobs such as 3-8"),
        (["8-3"], "the range '8-3' must ascend"),
        (["3,,4"], "'' is not a job"),
        (["3,four"], "'four' is not a job"),
        (["--all", "--sites", "/dev/null"], "--all addresses one service: leave --sites out"),
    ],
    ids=str,
)
def test_invalid_choices_are_refused(arguments: list[str], says: str) -> None:
    assert says in invoke("cancel", *arguments, code=2).stderr


def test_an_explanation_comes_before_the_forecast_and_without_one(directory: Path) -> None:
    """The service of this test knows no forecasts."""
    done = CliRunner().invoke(main, ["explain", "--dir", str(directory), "3"])
    assert done.exit_code == 0
    story, told, after = done.output.partition("reshape: there is no forecast of job 3: ")
    assert "job 3 waits: " in story
    assert "submitted for 1 processor, " in story
    assert told
    assert after == "there are no forecasts\n"
