"""Checks of a submission by a user who is not root, for whom permissions count."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import invoke

from reshape.errors import ReshapeError
from scheduler.client.requests.submission import check_outputs, prepare

NOBODY = 65534


def refusal(output: str) -> str:
    """Return why a submission with an output is refused to another user; "" if it is not."""
    if os.geteuid() != 0:
        return _refusal(output)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            os.write(write, _refusal(output).encode())
        except BaseException as error:
            os.write(write, repr(error).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    return text


def _refusal(output: str) -> str:
    try:
        environment = {"PATH": "/bin"}
        check_outputs(prepare(["true"], 1, output=output, environment=environment))
    except ReshapeError as error:
        return str(error)
    return ""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that other users may search, with a file that they may write, and no more."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "out").touch()
        (folder / "out").chmod(0o666)
        (folder / "mine").touch(0o444)
        folder.chmod(0o555)
        yield folder
        folder.chmod(0o755)


def test_dev_null_may_be_the_output() -> None:
    assert refusal("/dev/null") == ""


def test_a_writable_file_needs_no_writable_folder(folder: Path) -> None:
    assert refusal(str(folder / "out")) == ""
    refused = "is not writable: choose another one"
    assert refusal(str(folder / "mine")) == f"the output {folder / 'mine'} {refused}"
    assert refusal(str(folder / "new")) == f"the output's directory {folder} {refused}"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["--walltime", "UNLIMITED"],
            "sites are compared with one walltime: give --walltime a time",
        ),
        (["--array", "1-3"], "--dependency and --array need one service: leave --sites out"),
    ],
    ids=str,
)
def test_sites_take_one_job_with_a_walltime(arguments: list[str], says: str) -> None:
    told = invoke("submit", "--sites", "/dev/null", *arguments, "-n", "1", "--", "true", code=2)
    assert says in told.stderr
