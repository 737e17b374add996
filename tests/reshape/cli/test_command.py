"""The `reshape` command: help, suggestions, errors, exit codes."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from command_line import invoke

from reshape.__main__ import SUBCOMMANDS, main

# A command group whose subcommands fail in different ways.
SAMPLE = """
import sys, time
import click
from reshape.cli.lazy_group import Entry, LazyGroup
from reshape.errors import ConfigError

@click.command()
@click.option("--count", default=1)
def fine(count):
    click.echo(f"fine {count}")

@click.command()
def wrong():
    raise ConfigError("must be >= 1, got 0", file="site.yaml", line=7, field="scheduling.depth")

@click.command()
def slow():
    print("started", flush=True)
    time.sleep(60)

if __name__ == "__main__":
    names = {"fine": "sample:fine", "wrong": "sample:wrong", "slow": "sample:slow",
             "broken": "there_is_no_such_module:broken"}
    LazyGroup(entries={name: Entry(target, f"Do {name}.") for name, target in names.items()})()
"""


def run(*command: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60, check=False)


def reshape(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-m", "reshape", *arguments)


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    path = tmp_path / "sample.py"
    path.write_text(SAMPLE)
    return path


def test_an_output_that_cannot_be_written_is_an_error_of_one_line(sample: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, sample, "fine"], stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert done.stderr == b"reshape: error: the output cannot be written: No space left on device\n"


def test_help_lists_the_subcommands_in_order() -> None:
    done = reshape("--help")
    assert done.returncode == 0
    lines = done.stdout.partition("Commands:\n")[2].splitlines()
    listed = [line.split()[0] for line in lines]
    assert listed == list(SUBCOMMANDS)
    assert not any(line.endswith("...") for line in lines), "a help line does not fit"


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_subcommand_exists_and_its_help_has_an_example(name: str) -> None:
    module = SUBCOMMANDS[name].target.partition(":")[0]
    assert importlib.util.find_spec(module) is not None, f"{module} does not exist"
    done = invoke(name, "--help")
    assert f"reshape {name}" in done.stdout
    if name != "agent":
        commands = done.stdout.partition("Commands:\n")[2].splitlines()
        texts = {
            f"{name} {word}": invoke(name, word, "--help").stdout
            for word in (line.split()[0] for line in commands)
        }
        for words, text in (texts or {name: done.stdout}).items():
            assert f"  reshape {words}" in text.partition("\n  Example:\n")[2]


def test_version() -> None:
    done = reshape("--version")
    assert (done.returncode, done.stdout) == (0, f"reshape {version('reshape-mpi')}\n")


def test_the_installed_script_is_the_same_command() -> None:
    script = Path(sys.executable).parent / "reshape"
    assert run(script, "--version").stdout == reshape("--version").stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["doctr"], "Did you mean 'doctor'?"),
        (["--vresion"], "Did you mean '--version'?"),
        (["doctor", "--limt"], "Did you mean '--limit'?"),
        (["frobnicate"], "No such command 'frobnicate'."),
    ],
)
def test_wrong_usage_suggests_the_nearest(arguments: list[str], says: str) -> None:
    done = reshape(*arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_no_arguments_prints_the_help() -> None:
    assert "Commands:" in (done := reshape()).stdout + done.stderr


def test_only_the_chosen_subcommand_is_imported(sample: Path) -> None:
    done = run(sys.executable, sample, "fine", "--count", "3", cwd=sample.parent)
    assert (done.returncode, done.stdout) == (0, "fine 3\n")
    assert "Do broken." in run(sys.executable, sample, "--help", cwd=sample.parent).stdout


def test_commands_about_jobs_start_without_numpy() -> None:
    """Its import took a third of the time in which such a command starts."""
    modules = [
        SUBCOMMANDS[name].target.partition(":")[0]
        for name in ("agent", "cancel", "explain", "info", "queue", "serve", "submit")
    ]
    program = f"import sys, {', '.join(modules)}; print('numpy' in sys.modules)"
    assert run(sys.executable, "-c", program).stdout == "False\n"


def test_an_error_is_one_line_and_exit_code_1(sample: Path) -> None:
    done = run(sys.executable, sample, "wrong", cwd=sample.parent)
    assert done.returncode == 1
    expected = "reshape: error: site.yaml:7: scheduling.depth: must be >= 1, got 0\n"
    assert (done.stdout, done.stderr) == ("", expected)


def test_an_unexpected_exception_keeps_its_traceback(sample: Path) -> None:
    done = run(sys.executable, sample, "broken", cwd=sample.parent)
    assert done.returncode == 1
    assert "ModuleNotFoundError" in done.stderr


def test_the_exit_code_of_an_interrupted_command_is_130(sample: Path) -> None:
    with subprocess.Popen(
        [sys.executable, sample, "slow"],
        cwd=sample.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        os.kill(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    "arguments", [["submit", "-n", "1", "--", "true"], ["doctor", "--dir", "."]]
)
def test_a_deleted_current_directory_is_an_error_of_one_line(
    arguments: list[str], tmp_path: Path
) -> None:
    script = f'mkdir gone; cd gone; rmdir ../gone; exec "{sys.executable}" -m reshape "$@"'
    done = run("sh", "-c", script, "sh", *arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == (
        "reshape: error: the current directory was deleted: change to another one\n"
    )


def parameters(name: str, command: click.Command) -> Iterator[tuple[str, click.Parameter]]:
    """Yield the parameters of a command and of its subcommands, with the name of the command."""
    for parameter in command.params:
        yield name, parameter
    if isinstance(command, click.Group):
        for each in command.commands.values():
            yield from parameters(f"{name} {each.name}", each)


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_no_option_or_argument_takes_an_empty_text_except_where_it_has_a_meaning(
    name: str,
) -> None:
    context = click.Context(main)
    _, command, _ = main.resolve_command(context, [name])
    assert command is not None
    accepting = set()
    for where, parameter in parameters(name, command):
        if isinstance(parameter, click.Option) and parameter.is_flag:
            continue
        try:
            parameter.type.convert("", parameter, None)
        except click.ClickException:
            continue
        accepting.add((where, parameter.opts[0]))
    own = {
        ("update", "--dependency"),
        ("submit", "argv"),
        ("run", "argv"),
        ("batch", "words"),
        ("try", "argv"),
    }
    reported_later = {(each, "--priority") for each in ("submit", "batch", "quote", "update")}
    assert accepting <= own | reported_later | {("simulate", "--set")}


@pytest.mark.parametrize(
    "words",
    [
        ["submit", "-n", "1", "--output", "", "true"],
        ["submit", "-n", "1", "--error", "", "true"],
        ["submit", "-n", "1", "--chdir", "", "true"],
        ["batch", "--reservation", "", "job.sh"],
        ["batch", ""],
        ["queue", "--dir", ""],
        ["reserve", "create", "--partition", ""],
    ],
    ids=" ".join,
)
def test_an_empty_text_is_wrong_usage(words: list[str], tmp_path: Path) -> None:
    assert "is empty" in invoke(*words, code=2, cwd=tmp_path).stderr
    assert not [*tmp_path.iterdir()]


LONG, DIGITS = "x" * 300, "9" * 5000


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["queue", "--dir", LONG], 1, "File name too long"),
        (["simulate", LONG], 1, "cannot be read"),
        (["doctor", "--dir", LONG], 1, "File name too long"),
        (["slurm-commands", LONG], 1, "File name too long"),
        (["slurm-commands", "/proc/none"], 1, "/proc/none cannot be written: No such file"),
        (["queue", "--dir", "~no-such-user"], 2, "there is no user of '~no-such-user'"),
        (["info", DIGITS], 2, "is not a job"),
        (["wait", f"1_{DIGITS}"], 2, "is not a job"),
        (["cancel", f"1-{DIGITS}"], 2, "is not a range of jobs"),
        (["submit", "-n", "1", "--begin", f"now+{DIGITS}days", "true"], 2, "--begin"),
    ],
    ids=lambda value: str(value[0]) if isinstance(value, list) else None,
)
def test_what_is_too_long_is_an_error_of_one_line(words: list[str], code: int, says: str) -> None:
    done = invoke(*words, code=code)
    assert says in done.stderr
    assert len(done.stderr.splitlines()[-1]) < 6000
