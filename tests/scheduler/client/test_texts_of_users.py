"""Any text of a user gives a value or one clear error, within bounds of time and memory.

The texts are valid ones with a few edits, and texts of the characters that the forms have.
"""

from __future__ import annotations

import re
import shlex
import time
import tracemalloc
from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
from example_counts import examples
from hypothesis import example, given
from hypothesis import strategies as st

from reshape.cli.options import SECONDS
from reshape.errors import ReshapeError
from reshape.speedup import named
from reshape.times import parse_duration, parse_moment
from scheduler.client.administration.reservations import create
from scheduler.client.columns import ListingFormat, sorted_jobs
from scheduler.client.options import (
    JOB,
    JOBS_AT_SITES,
    LATER_MOMENT,
    PRIORITY,
    TIME_LIMIT,
    TOPOLOGY,
    resource_amounts,
)
from scheduler.client.requests.script_file import (
    ScriptOptions,
    count,
    fields_of,
    script_of_text,
)
from scheduler.client.requests.slurm_manual import MANUAL, SBATCH, SRUN
from scheduler.client.slurm.listings import hosts, states
from scheduler.client.slurm.programs import main
from scheduler.model.arrays import TaskArray
from scheduler.model.requests import Dependency, EndSignal, parse_constraint
from scheduler.policies.pools.options import parse_nodes, parse_pool_options
from scheduler.text.job_output import check_output_name

#: Errors with a message for the user.
CLEAR = (ValueError, ReshapeError, click.ClickException)
#: Words of messages of Python itself, which say nothing to a user.
OF_PYTHON = re.compile(
    r"invalid literal|Exceeds the limit|too large to convert|not enough values|too many values"
    r"|codec can't|out of range|is not in list|has no attribute|object is not|argument must"
    r"|Invalid isoformat|too many digits|month must|day is out|Invalid mode|embedded null"
)
#: Longest message, in characters: a longer one hides what is wrong.
LONGEST = 3000
#: Seconds that reading a text may take at most, on a busy machine.
MOST_S = 20.0


def option(kind: click.ParamType[Any]) -> Callable[[str], object]:
    """Return what reads the text of an option."""
    return lambda text: kind.convert(text, None, None)


class Form(NamedTuple):
    """A parser, and texts that it reads."""

    parse: Callable[[str], object]
    valid: Sequence[str]


MOMENTS = (
    *("now", "now+3days", "now-1:00:00", "today", "16:00", "4:00pm", "noon", "0501"),
    *("05/01/26-12:00", "2026-05-01", "2026-05-01T12:00:00", "2026-W10-1", "now+9999999999weeks"),
)
TIMES = ("10", "10:00", "0-72:00", "1-02:00:00", "90s", "1.5h", "999999999999-0", "0.5 s", "2d")
DIRECTIVES = (
    "#SBATCH -n 4 -t 0-72:00 --array=0-9%2 -J 'a b'",
    "#SBATCH --nodes=2-4 --ntasks-per-node=3 --export=ALL,A='x,y' --nice --signal=B:USR1@60",
    "#RESHAPE -n 4 --walltime 2h --dependency afterok:3:4 --begin now+2h --hold",
    "#SBATCH --cpus-per-task 3 --exclusive --constraint='a&b|c' --open-mode=a --requeue",
)
FORMS = {
    "duration": Form(parse_duration, TIMES),
    "moment": Form(lambda text: parse_moment(text, 1.8e9), MOMENTS),
    "past moment": Form(lambda text: parse_moment(text, 1.8e9, past=True), MOMENTS),
    "--walltime": Form(option(TIME_LIMIT), (*TIMES, "UNLIMITED", "infinite")),
    "--begin": Form(option(LATER_MOMENT), MOMENTS),
    "seconds": Form(option(SECONDS), (*TIMES, "1e3")),
    "--priority": Form(option(PRIORITY), ("gold", "5", "-1e3", "nan")),
    "--resources": Form(option(resource_amounts()), ("memory_gib=16", "a=1,b=2")),
    "--topology": Form(
        option(TOPOLOGY),
        ("arbitrary", "power-of-2", "nearly-square", "list:1,2,4", "list:1x2"),
    ),
    "job": Form(option(JOB), ("17", "17_4", "17_[3-7:2,9]", "17.0", "last", "17_4.0")),
    "jobs": Form(option(JOBS_AT_SITES), ("3,5-8,last", "left:3", "17_4,17.0")),
    "--array": Form(TaskArray.parse, ("0-9", "0-99:2%10", "1,5,7-8", "0-99999999999", "0-9%0")),
    "--dependency": Form(
        Dependency.parse, ("afterok:3:4,afterany:5", "after:1?afternotok:2", "singleton")
    ),
    "--signal": Form(EndSignal.parse, ("USR1", "SIGUSR1@120", "B:10@60", "B:USR1")),
    "--constraint": Form(parse_constraint, ("gpu&fast|big", "a", "a.b=c")),
    "--output": Form(check_output_name, ("slurm-%j.out", "%x/%{JOB_ID}", "a%%b", "%4j")),
    "--performance": Form(named, ("amdahl", "amdahl,fraction=0.9", "a:B")),
    "hosts": Form(hosts, ("n[1-3,5],m", "a[08-10]b[1-2]", "node[0-9999999999]", "n")),
    "number": Form(lambda text: count("ntasks", text), ("4", "0012", "2-4")),
    "nodes": Form(lambda text: count("nodes", text), ("4", "2-4", "1-")),
    "states": Form(states, ("PD,R", "all", "running")),
    "format": Form(ListingFormat.parse, ("%.18i %.9P %j", "jobid,state:20,name%-8", "%i%%")),
    "sort": Form(lambda text: sorted_jobs([], text, 0.0), ("-priority,jobid", "-Q,i", "S")),
    "pool nodes": Form(parse_nodes, ("8", "1-8")),
    "pool option": Form(
        lambda text: parse_pool_options({"nodes": "1-8", "time_limit": text}), TIMES
    ),
    "pool number": Form(
        lambda text: parse_pool_options({"nodes": "1-8", "time_limit": "1", "backlog": text}),
        ("0", "12"),
    ),
    "directives of Slurm": Form(
        lambda text: ScriptOptions().add(SBATCH.read(shlex.split(text))),
        [line[8:] for line in DIRECTIVES],
    ),
    "options of srun": Form(
        lambda text: [*SRUN.read(shlex.split(text))], ("-n2 -K --mpi=pmi2", "-l", "--het-group=0")
    ),
    "options of submit": Form(
        lambda text: fields_of(shlex.split(text)), ("-n 4 --walltime 2h", "--array 0-9")
    ),
    "script": Form(
        lambda text: script_of_text("job.sh", text),
        [f"#!/bin/sh\n{line}\ntrue\n" for line in DIRECTIVES],
    ),
    "options of a reservation": Form(
        lambda text: create.make_context("create", shlex.split(text)),
        (
            "--nodes n1,n2 --start 2026-05-01T12:00 --duration 2:00:00 --users ann",
            "--name course --processors 8 --duration 1:30:00",
        ),
    ),
}
#: Form and text that the search has found to be read wrongly.
FOUND = (
    ("--array", "9" * 5000),
    ("--array", "0-9%" + "9" * 5000),
    ("--signal", "USR1@" + "9" * 5000),
    ("--signal", "9" * 5000),
    ("--dependency", "after:" + "9" * 5000),
    ("job", "9" * 5000),
    ("job", "17." + "9" * 5000),
    ("jobs", "9" * 5000),
    ("jobs", "1-" + "9" * 5000),
    ("jobs", "\u0663-8"),
    ("number", "9" * 5000),
    ("pool nodes", "9" * 5000),
    ("pool number", "9" * 5000),
    ("format", "0i%%"),
    ("format", "%.99999999999i"),
    ("format", "jobid:99999999999"),
    ("moment", "1" * 5000),
)
#: Texts that name more than there can be.
HUGE = (
    ("--array", "0-99999999999"),
    ("--array", "0-2147483647"),
    ("--array", ",".join(f"{n}-{n + 999_999}" for n in range(0, 9_000_000, 1_000_000))),
    ("hosts", "node[0-9999999999]"),
    ("hosts", "n[0-999][0-999][0-999]"),
    ("hosts", ",".join(["n[0-99999]"] * 50)),
    ("format", "%.99999999999i"),
    ("jobs", "1-999999999999999999"),
)

_PIECES = st.sampled_from(
    [
        *"0123456789-:.,_+%[]@&|=()'\"\\/ \t\n\0",
        *("now", "-1", "99999999999", "0" * 40, "9" * 5000, "e9", "inf", "nan", "--", "[0-", "%j"),
        *("\u0663", "\u00b2", "\uff19", "\x1b", "\U0001f600"),
    ]
)


@st.composite
def edited(draw: st.DrawFn, valid: Sequence[str]) -> str:
    """A valid text with a few edits."""
    text = draw(st.sampled_from(valid))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(text)))
        end = draw(st.integers(at, min(len(text), at + 3)))
        text = text[:at] + draw(_PIECES | st.text(max_size=3)) + text[end:]
    return text


def read(form: Form, text: str) -> None:
    """Read a text; check the error, if there is one, and the time."""
    begin = time.process_time()
    try:
        form.parse(text)
    except CLEAR as error:
        told = error.format_message() if isinstance(error, click.ClickException) else str(error)
        assert told, "an error without words"
        assert not OF_PYTHON.search(told), told
        assert len(told) <= LONGEST + 2 * len(repr(text)), told
    assert time.process_time() - begin < MOST_S


@pytest.mark.parametrize("name", FORMS)
def test_any_text_gives_a_value_or_a_clear_error(name: str) -> None:
    form = FORMS[name]

    @examples(300, deadline=None)
    @given(edited(form.valid) | st.lists(_PIECES, max_size=8).map("".join) | st.text(max_size=12))
    def search(text: str) -> None:
        read(form, text)

    for text in (*form.valid, *(text for known, text in FOUND if known == name)):
        search = example(text)(search)
    search()


@pytest.mark.parametrize(("name", "text"), HUGE)
def test_a_text_that_names_too_much_takes_little_memory(name: str, text: str) -> None:
    tracemalloc.start()
    try:
        read(FORMS[name], text)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("command", [*sorted({*MANUAL} - {"srun"})])
def test_any_words_give_an_error_of_a_command_of_slurm(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No service is there, so that each command line ends with an error, of one line."""
    monkeypatch.setenv("RESHAPE_DIR", str(tmp_path / "none"))
    monkeypatch.delenv("RESHAPE_ACCESS", raising=False)
    monkeypatch.chdir(tmp_path)
    known = MANUAL[command]
    options = [f"--{name}" for name in known.names] + [f"-{letter}" for letter in known.letters]
    verbs = ["show", "job", "update", "JobId=1", "hold", "hostnames", "n[0-9999999999]", "1,2"]
    word = st.sampled_from([*options, *verbs, "--wrap=true"]) | st.text(max_size=6).map(
        lambda text: text.replace("\0", "")
    )

    @examples(200, deadline=None)
    @given(st.lists(word | st.tuples(st.sampled_from(options), word).map("=".join), max_size=5))
    def search(words: list[str]) -> None:
        monkeypatch.setattr("sys.stdin", StringIO())
        code = main(command, "RESHAPE_DIR", "", words)
        told = capsys.readouterr()
        assert code in (0, 1)
        if code:
            assert told.err.startswith(f"{command}: error: ")
            assert not OF_PYTHON.search(told.err), told.err

    search()
