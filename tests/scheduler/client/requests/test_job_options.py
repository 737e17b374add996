"""The keywords of `Client.submit` are the options of ``reshape submit``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_type_hints

import click
import pytest

from reshape.errors import ReshapeError
from reshape.topology import Topology
from scheduler.client.api.client import Client, submission_of
from scheduler.client.commands.jobs import update
from scheduler.client.requests.job_options import (
    Changes,
    JobOptions,
    job_options,
    keyword_fields,
)
from scheduler.protocol.messages import UpdateJob


@click.command()
@job_options
def command(**_fields: Any) -> None:
    pass


def names(command: click.Command) -> set[str]:
    return {str(each.name).replace("walltime_s", "walltime") for each in command.params}


def test_the_keywords_are_the_options() -> None:
    known = {*get_type_hints(JobOptions), "processors"}
    assert known == names(command) | {"environment"}
    options = names(update) - {"service", "access", "job"}
    assert {*Changes.__annotations__} == options
    fields = {name.replace("walltime_s", "walltime") for name in UpdateJob.__struct_fields__}
    assert {*Changes.__annotations__} == fields


def test_texts_and_values_mean_the_same() -> None:
    texts = {"walltime": "10:00", "topology": "list:2,4", "resources": "gib=2", "cwd": "/tmp"}
    values = {"walltime": 600, "topology": Topology.parse("list:2,4"), "cwd": Path("/tmp")}
    made = submission_of(["true"], 2, texts)
    assert made == submission_of(["true"], 2, {**values, "resources": {"gib": 2}})
    assert (made.walltime_s, made.cwd, made.processors) == (600.0, "/tmp", 2)
    made = submission_of(["true"], 4, {"min_processors": 2, "max_processors": "8"})
    assert (made.smallest, made.processors, made.largest) == (2, 4, 8)
    assert keyword_fields({"min_processors": 2}, Changes) == {"min_processors": 2}


@pytest.mark.parametrize(
    ("argv", "processors", "options", "told"),
    [
        (["true"], 1, {"wall_time": 3}, "no option 'wall_time'; did you mean walltime"),
        (["true"], 1, {"walltime": "soon"}, "walltime: 'soon' is not a time"),
        (["true"], 0, {}, "processors: 0 is not in the range"),
        (["true"], 1, {"open_mode": "add"}, "open_mode: 'add' is not one of"),
        (["true"], 1, {"cwd": "/none"}, "cwd: Directory '/none' does not exist"),
        ("true", 1, {}, "argv: expected a list of program and arguments, got 'true'"),
        ([], 1, {}, "argv: expected a list"),
        (["no-such-program"], 1, {}, "no-such-program"),
    ],
)
def test_what_is_refused(argv: Any, processors: int, options: Any, told: str) -> None:
    with pytest.raises(ReshapeError, match=told):
        submission_of(argv, processors, options)


def test_names_and_time_limits_that_are_none_are_refused(tmp_path: Path) -> None:
    with Client(tmp_path) as client:
        assert client.job(17).number == client.job("17").number == 17
        assert client.job("17_[3-7]").tasks == "3-7"
        with pytest.raises(ReshapeError, match=r"17_\[3-7\] are several tasks: name one"):
            client.job("17_[3-7]").info()
        with pytest.raises(ReshapeError, match="'x' is not a job"):
            client.job("x")
        with pytest.raises(ReshapeError, match="'x' is not a time"):
            client.job(17).wait("x")


@pytest.mark.parametrize("name", ["output", "error", "name", "queue", "dependency", "constraint"])
def test_an_empty_text_is_refused(name: str) -> None:
    with pytest.raises(ReshapeError, match=f"^{name}: it is empty, as a variable"):
        submission_of(["true"], 1, {name: ""})


def test_an_empty_dependency_removes_that_of_a_job_and_other_empty_texts_change_nothing() -> None:
    assert keyword_fields({"dependency": "", "name": "x"}, Changes) == {
        "dependency": "",
        "name": "x",
    }
    with pytest.raises(ReshapeError, match=r"^name: it is empty"):
        keyword_fields({"dependency": "", "name": ""}, Changes)
