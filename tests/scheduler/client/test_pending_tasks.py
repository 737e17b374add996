"""Tasks of an array that are to come: how commands name and list them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from command_line import invoke
from desk import served_desk

from scheduler.client.api.client import Client
from scheduler.client.columns import one_by_one


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """Directory of a service with an array of 100 tasks, and a job after it."""
    with served_desk(tmp_path / "service") as directory:
        for words in (("--array", "0-99", "true"), ("true",)):
            invoke("submit", "--dir", directory, "-n", "1", *words, cwd=tmp_path)
        yield directory


def listed(directory: Path, *words: str) -> list[str]:
    text = invoke("queue", "--dir", directory, "--noheader", "--format", "jobid", *words).stdout
    return [line.strip() for line in text.splitlines()]


def test_commands_take_tasks_that_have_not_come(directory: Path) -> None:
    told = invoke("hold", "--dir", directory, "1_[3-5:2,4,9],1_90").stdout
    assert told == "held job 1_[3-5:2,4,9]\nheld job 92\n"
    text = invoke("explain", "--dir", directory, "1_4").stdout
    assert "task 4 of array 1 is held by its user" in text
    invoke("release", "--dir", directory, "1_[4,90]")
    invoke("cancel", "--dir", directory, "1_[50-98:2]", "1_[51-97:2],1_99", "1_3")
    assert listed(directory) == ["1_[1-2,4-49]", "1_0", "102"]
    assert "CANCELLED" in invoke("info", "--dir", directory, "1_77").stdout
    assert "CANCELLED 0:0" in invoke("wait", "--dir", directory, "1_77", "1_99", code=1).stdout
    invoke("submit", "--dir", directory, "-n", "1", "-d", "afternotok:1_77,afterany:1_9", "true")
    told = invoke("explain", "--dir", directory, "last").stdout
    assert "waits for job 1_9 to end" in told
    invoke("update", "--dir", directory, "1_20", "--walltime", "5min")
    assert listed(directory, "--jobs", "1_20") == ["1_20"]
    assert listed(directory) == ["1_[1-2,4-19,21-49]", "1_0", "1_20", "102", "103"]
    several = invoke("info", "--dir", directory, "1_[2-3]", code=1).stderr
    assert "1_[2-3] are several tasks: name one of them, or the array" in several
    missing = invoke("cancel", "--dir", directory, "1_[98-101]", code=1).stderr
    assert "array 1: it has no task 100: it has 0-99" in missing


def test_a_choice_of_jobs_finds_the_line_of_an_array(directory: Path) -> None:
    assert listed(directory, "--jobs", "1_7") == ["1_[1-99]"]
    assert listed(directory, "--jobs", "1_[0,7]") == ["1_[1-99]", "1_0"]
    invoke("cancel", "--dir", directory, "1_[5-9]")
    assert listed(directory, "--jobs", "1_7") == []
    assert listed(directory, "--jobs", "1_[7-10]") == ["1_[1-4,10-99]"]


def test_a_line_of_an_array_becomes_one_for_each_task(directory: Path) -> None:
    with Client(directory) as client:
        client.job("1_[2,98]").hold()
        client.job("1_[4-97]").cancel()
        jobs = list(one_by_one(client.queue()))
    assert [(job.job, job.label) for job in jobs] == [
        *((3, "1_1"), (4, "1_2"), (5, "1_3"), (100, "1_98"), (101, "1_99"), (2, "1_0")),
        (102, ""),
    ]
    rules = {job.label: job.reason.rpartition(" [")[2] for job in jobs[:5]}
    assert rules == {
        **{"1_1": "Array]", "1_3": "Array]", "1_99": "Array]"},
        **{"1_2": "JobHeldUser]", "1_98": "JobHeldUser]"},
    }


def test_the_tasks_of_a_large_array_are_listed_one_after_the_other(
    directory: Path, tmp_path: Path
) -> None:
    invoke("submit", "--dir", directory, "-n", "1", "--array", "0-99999", "true", cwd=tmp_path)
    with Client(directory) as client:
        array = client.job("last").info()
    first = [job.label for job in islice(one_by_one([array]), 3)]
    assert first == ["103_1", "103_2", "103_3"]
