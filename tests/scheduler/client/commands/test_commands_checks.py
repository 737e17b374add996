"""Commands without a service: invalid usage, an unavailable service, and tables."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import invoke

from reshape.errors import ReshapeError
from scheduler.client import tables
from scheduler.client.columns import HISTORY, ListingFormat, queue_format
from scheduler.client.requests.submission import check_outputs, job_environment, plain_name, prepare
from scheduler.protocol.messages import JobInfo, ResizeInfo
from scheduler.text.formats import format_moment

HUGE = "99999999999999999999999"
CLIENTS = [
    ["submit", "-n", "1", "--", "true"],
    ["queue"],
    ["info"],
    ["info", "1"],
    ["history"],
    ["explain", "last"],
    ["wait", "1"],
    ["cancel", "1"],
    ["stop"],
]


def job_info(**given: object) -> JobInfo:
    """A running job on 4 of 2 to 8 processors, changed by the given fields."""
    values: dict[str, object] = {
        "job": 3, "name": "lu", "user": "ann", "state": "RUNNING", "code": "R", "requested": 2,
        "max_processors": 8, "size": 4, "walltime_s": 600.0, "submitted_at": 100.0,
        "started_at": 110.0, "ended_at": None, "processors": "0-3", "nodes": "local", "reason": "",
        "exit_code": 0, "signal": 0, "restarts": 0, "iteration": 5, "iteration_s": 0.5,
        "sizes": [(110.0, 2), (120.0, 4)], "resizes": [], "allocation": [], "facts": {},
        "output": "/o", "argv": ["python", "-m", "apps.lu"],
    }  # fmt: skip
    return JobInfo(**(values | given))  # type: ignore[arg-type]


@pytest.mark.parametrize("arguments", CLIENTS, ids=" ".join)
def test_an_unavailable_service_is_one_error_with_a_correction(
    arguments: list[str], tmp_path: Path
) -> None:
    done = invoke(arguments[0], "--dir", tmp_path, *arguments[1:], code=1, cwd=tmp_path)
    assert done.stderr == (
        f"reshape: error: no scheduler service in {tmp_path}: start it with "
        f"'reshape serve --dir {tmp_path}', or name its directory with --dir\n"
    )
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["submit", "-n", "2"], "Missing argument 'PROGRAM"),
        (["submit", "--", "true"], "Missing option '-n'"),
        (["submit", "-n", "0", "--", "true"], "0 is not in the range x>=1"),
        (["submit", "-n", "2", "--topology", "square", "--", "true"], "nearly-square?"),
        (["submit", "-n", "2", "--walltime", "1:2:3:4", "--", "true"], "'1:2:3:4' is not a time"),
        (["submit", "-n", "2", "--walltime", "0", "--", "true"], "must be above 0, got '0'"),
        (["submit", "-n", "2", "--wall", "5", "--", "true"], "--walltime"),
        (["submit", "-n", "2", "--metric", "wait", "--", "true"], "--metric needs --sites FILE"),
        (["submit", "-n", "2", "--test-only", "--", "true"], "for one service: reshape quote"),
        (["quote", "-n", "2", "--seed", "3"], "--seed needs --futures N"),
        (
            ["queue", "--sites", __file__, "--steps"],
            "--steps is for one service; leave --sites out",
        ),
        (["queue", "--start", "--sort", "name"], "--sort has no effect with --start"),
        (["queue", "--horizon", "1h"], "--horizon needs --start"),
        (["history", "--json", "--noheader"], "--noheader has no effect with --json"),
        (
            ["history", "--since", "2026-05-02", "--until", "2026-05-01"],
            "the time from 2026-05-02T00:00:00 to 2026-05-01T00:00:00 is empty",
        ),
        (["explain", "three"], "'three' is not a job: write 17, 'last'"),
        (["explain", "0"], "'0' is not a job"),
        (["wait"], "Missing argument"),
        (["wait", HUGE], "is not a job"),
        (["serve", "--processors", HUGE], f"{HUGE} is too large: at most 2147483647"),
        (["simulate", "x.swf", "--processors", HUGE], f"{HUGE} is too large"),
        (["submit", "-n", HUGE, "--", "true"], f"{HUGE} is too large"),
        (["submit", "-n", "1", "--resources", f"a={HUGE}", "--", "true"], "at most 18 digits"),
        (["serve", "--processors", "-1"], "-1 is not in the range x>=0"),
        (["serve", "--config", "nowhere.yaml"], "'nowhere.yaml' does not exist"),
        (["queue", "--noheade"], "Did you mean '--noheader'?"),
        (["queue", "--parsable"], "Did you mean '--json'?"),
        (["demo", "--processors", "3"], "3 is not in the range x>=4"),
        (["demo", "--scenario", "fcfs-rp"], "did you mean fcfs-pr"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_invalid_usage_has_exit_code_2(arguments: list[str], says: str) -> None:
    done = invoke(*arguments, code=2)
    assert says in " ".join(done.stderr.split())


@pytest.mark.parametrize("name", ["serve", "submit", "queue", "info", "history", "explain", "demo"])
def test_help_shows_an_example(name: str) -> None:
    done = invoke(name, "--help")
    assert f"Example:\n    reshape {name}" in done.stdout


def test_the_help_of_batch_leaves_out_the_options_of_resizable_programs() -> None:
    assert "--topology" in invoke("submit", "--help").stdout
    assert "--topology" not in invoke("batch", "--help").stdout


def test_serve_refuses_an_invalid_configuration_without_side_effects(tmp_path: Path) -> None:
    file = tmp_path / "site.yaml"
    file.write_text("processors: 4\nscenaro: easy\n")
    directory = tmp_path / "service"
    for extra in ([], ["--background"]):
        done = invoke("serve", "--dir", directory, "--config", file, *extra, code=1)
        assert done.stderr == (
            f"reshape: error: {file}:2: scenaro: unknown field; did you mean scenario?\n"
        )
        assert not directory.exists()


def test_the_directory_may_come_from_the_environment(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "reshape", "queue"]
    environment = os.environ | {"RESHAPE_DIR": str(tmp_path / "there")}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert f"no scheduler service in {tmp_path}/there" in done.stderr


@pytest.mark.parametrize(
    ("argv", "processors", "more", "says"),
    [
        ([], 1, {}, "no program to run: give it after the options"),
        (["no-such-program"], 1, {}, "there is no program 'no-such-program' on PATH"),
        (["./solve"], 1, {}, "there is no program {cwd}/solve"),
        (["./"], 1, {}, "{cwd} is a directory, not a program"),
        (["./plain.py"], 1, {}, "plain.py is not executable: did you mean 'python ./plain.py'?"),
        (["true"], 1, {"output": "logs/x.out"}, "output's directory {cwd}/logs does not exist"),
        (["true", "\udcff"], 1, {}, "the argument '\\udcff' is not UTF-8 text"),
        (["true"], 1, {"output": "a\udcff"}, "the output 'a\\udcff' is not UTF-8 text"),
        (["true"], 1, {"cwd": "/\udcff"}, "the working directory '/\\udcff' is not UTF-8 text"),
        (["echo", "a\0b"], 1, {}, "the argument 'a\\x00b' contains a null character"),
        (["true"], 1, {"environment": {"A": "b\0"}}, "variable A contains a null character"),
        (["true"], 1, {"environment": {"A=B": "c"}}, "variable 'A=B' has an invalid name"),
        (["true"], 1, {"output": "x" * 300}, ": File name too long"),
        (["true"], 1, {"output": "/proc/self/mem"}, "/proc/self/mem is not a regular file"),
        (["true"], 1, {"output": "pipe"}, "the output {cwd}/pipe is not a regular file"),
    ],
)
def test_a_submission_is_checked_before_it_is_sent(
    argv: list[str], processors: int, more: dict[str, object], says: str, tmp_path: Path
) -> None:
    (tmp_path / "plain.py").write_text("print(1)\n")
    os.mkfifo(tmp_path / "pipe")
    options: dict[str, object] = {"walltime_s": 60.0, "cwd": tmp_path, **more}
    with pytest.raises(ReshapeError) as caught:
        check_outputs(prepare(argv, processors, **options))  # type: ignore[arg-type]
    assert says.format(cwd=tmp_path) in str(caught.value)


def test_a_submission_holds_directory_and_environment(tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "NAME": "value", "ODD": "\udcff"}
    found = prepare(
        ["python", "-u", "-m", "apps.lu", "--n", "4"],
        2,
        walltime_s=60.0,
        environment=environment,
        cwd=tmp_path,
    )
    beside = str(Path(sys.executable).absolute().parent)
    assert found.environment == {"PATH": f"{beside}:/usr/bin:/bin", "NAME": "value"}
    assert (found.cwd, found.name) == (str(tmp_path), "apps.lu")
    assert job_environment(found.environment) == found.environment


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["python", "-m", "apps.lu", "-n", "4"], "apps.lu"),
        (["python3.12", "-X", "dev", "dir/solve.py"], "solve.py"),
        (["python", "dir/solve.py", "-m"], "solve.py"),
        (["/usr/bin/python3", "-c", "print(1)"], "python3"),
        (["./bin/solver", "--fast"], "solver"),
        (["python"], "python"),
    ],
)
def test_a_job_is_named_after_its_program(argv: list[str], name: str) -> None:
    assert plain_name(argv) == name


def test_the_queue_has_the_columns_of_squeue() -> None:
    waiting = job_info(
        job=12, name="wait|er", state="PENDING", code="PD", size=0, max_processors=None,
        started_at=None, nodes="", reason="2 processors wanted, 0 free",
    )  # fmt: skip
    jobs, now = [job_info(), waiting], 110.0 + 3723
    lines = queue_format(jobs).render(jobs, now).splitlines()
    began = format_moment(110.0).partition("T")[2]
    assert lines == [
        "JOBID  QUEUE  NAME     USER  ST      TIME  TIME_LEFT  NODES  SIZE     START"
        "  NODELIST(REASON)",
        f"    3  -      lu       ann   R   01:02:03   00:00:00      1   4/8  {began}  local",
        "   12  -      wait|er  ann   PD  00:00:00   00:10:00      0   2/2         -"
        "  (2 processors wanted, 0 free)",
    ]


def test_history_shows_sizes_times_and_the_end_of_a_job() -> None:
    ended = job_info(
        state="FAILED", code="F", ended_at=200.0, exit_code=0, signal=9, reason="killed",
        sizes=[(110.0, 2), (120.0, 4), (125.0, 4), (130.0, 6), (140.0, 4), (200.0, 0)],
    )  # fmt: skip
    row = dict(zip(*_columns(ListingFormat.parse(HISTORY).table([ended], 300.0)), strict=True))
    assert row["EXITCODE"] == "0:9"
    assert row["SIZES"] == "2-4-6-4"
    assert (row["WAIT"], row["TIME"]) == ("00:00:10", "00:01:30")
    assert tables.exit_status(ended) == 137


def test_resizes_are_shown_in_milliseconds() -> None:
    resize = ResizeInfo(
        at=115.0, serial=1, old=2, new=4, outcome="done", reason="", start_s=1.5, close_s=0.25,
        join_s=0.02, plan_s=0.001, move_s=0.0305, resume_s=0.002, moved_bytes=3 * 2**20,
        spare_bytes=2**19,
    )  # fmt: skip
    headings, row = _columns(tables.resize_table(job_info(resizes=[resize])))
    assert dict(zip(headings, row, strict=True)) == {
        "RESIZE": "1", "AT": "+5.0s", "SIZE": "2-4", "START": "1500.0", "CLOSE": "250.0",
        "JOIN": "20.0", "PLAN": "1.0", "MOVE": "30.5", "RESUME": "2.0", "MIB": "3.00",
        "SPARE": "0.50", "OUTCOME": "done",
    }  # fmt: skip


def test_resizes_before_a_job_was_queued_again_are_after_its_first_start() -> None:
    resize = ResizeInfo(at=115.0, serial=1, old=2, new=4, outcome="done", reason="")
    sizes = [(110.0, 2), (115.0, 4), (120.0, 0), (123.0, 2)]
    table = tables.resize_table(job_info(resizes=[resize], started_at=123.0, sizes=sizes))
    assert table.rows[0][1] == "+5.0s"


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"state": "COMPLETED"}, 0),
        ({"state": "FAILED", "exit_code": 3}, 3),
        ({"state": "TIMEOUT", "signal": 15}, 143),
        ({"state": "CANCELLED"}, 1),
    ],
)
def test_the_exit_status_of_a_job_is_that_of_a_shell(given: dict[str, object], status: int) -> None:
    assert tables.exit_status(job_info(**given)) == status


def _columns(table: tables.Table) -> tuple[list[str], list[str]]:
    (row,) = table.rows
    return list(table.headings), list(row)


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("--since", "yesterday", "'yesterday' is not a moment: write now+2h, 16:00, tomorrow"),
        ("--limit", "0", "0 is not in the range 1<=x<=1000"),
        ("--before", "0", "'0' is not a job"),
    ],
)
def test_invalid_filters_of_the_history_are_refused(option: str, value: str, text: str) -> None:
    done = invoke("history", option, value, code=2)
    assert text in done.stderr


def test_the_account_of_a_job_with_several_sizes() -> None:
    sums = [(2, 20.0), (4, 48.0)]
    info = job_info(
        processor_seconds=68.0, processor_seconds_by_size=sums, resize_count=1, pause_s=0.25
    )
    text = tables.job_text(info, 200.0)
    assert "68.0 processor-seconds: 20.0 on size 2, 48.0 on size 4" in text
    assert "1, paused for 0.250 s in all" in text
