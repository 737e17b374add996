"""Scripts and their options, without a service."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from command_line import invoke

from reshape.errors import ReshapeError
from scheduler.client.requests.script_file import (
    ScriptOptions,
    processors,
    read_script,
    tasks,
    wrapped,
)
from scheduler.client.requests.slurm_manual import SBATCH
from scheduler.node.launching.job_command import MOST_BYTES
from scheduler.protocol.job_requests import LONGEST_WALLTIME_S

SCRIPT = """#!/bin/bash -e
# A comment, and an empty line.

#RESHAPE -n 3 --priority 5   # with a comment
#SBATCH --job-name="my case" -t 1-12
#SBATCH -p short --mem=4G -c2
#SBATCH --exclusive -C gpu&fast
echo "$1"
#SBATCH -n 7
"""


def write(tmp_path: Path, content: str | bytes) -> Path:
    path = tmp_path / "job.sh"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_the_lines_before_the_first_command_have_options(tmp_path: Path) -> None:
    script = read_script(write(tmp_path, SCRIPT))
    assert script.options.fields == {
        **{"processors": 3, "priority": 5.0, "name": "my case", "walltime_s": 36 * 3600.0},
        **{"partition": "short", "exclusive": True, "constraint": "gpu&fast"},
    }
    assert script.options.texts == ["--mem=4G"]
    assert script.options.sizes == {"cpus-per-task": 2}
    assert script.late == [9]
    assert script.argv(["a"]) == [str(tmp_path / "job.sh"), "a"]
    assert script.text == SCRIPT


def test_a_wrapped_command_is_run_by_the_shell() -> None:
    assert wrapped("echo a").argv([]) == ["/bin/sh", "-c", "echo a", "wrap"]


def test_a_script_is_as_large_as_slurm_permits(tmp_path: Path) -> None:
    """The limit is in bytes, and no more than that is read."""
    start, character = "#!/bin/sh\n", "\u00e9"
    text = start + character * ((MOST_BYTES - len(start)) // 2)
    assert read_script(write(tmp_path, text)).text == text
    refused = r"job\.sh has 4194306 bytes, and a script has at most 4194304: put data"
    with pytest.raises(ReshapeError, match=refused):
        read_script(write(tmp_path, text + character))
    with pytest.raises(ReshapeError, match=r"/dev/zero has 4194305 bytes"):
        read_script(Path("/dev/zero"))


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("#!/bin/sh\necho\r\nls\r\n", r"job\.sh:2: the line ends as in DOS"),
        ("echo a\n", "does not begin with an interpreter"),
        ("#!\n", "does not begin with an interpreter"),
        (b"#!/bin/sh\n\xff\n", "is not UTF-8 text"),
        ("#!/bin/sh\necho\n\0", r"job\.sh:3: a script is a text without null characters"),
        ("#!/bin/sh\n\n#SBATCH --ntaks=3\n", r"job\.sh:3: sbatch has no option --ntaks.*ntasks"),
        ("#!/bin/sh\n#SBATCH --ntasks\n", r"job\.sh:2: --ntasks needs a value"),
        ("#!/bin/sh\n#SBATCH --nodes=0\n", r"job\.sh:2: --nodes: expected a number >= 1"),
        ("#!/bin/sh\n#SBATCH 4\n", r"job\.sh:2: '4' is no option of sbatch"),
        ('#!/bin/sh\n#RESHAPE --name "a\n', r"job\.sh:2: No closing quotation"),
        ("#!/bin/sh\n\n#RESHAPE -n x\n", r"job\.sh:3: Invalid value for '-n'"),
        ("#!/bin/sh\n\n#SBATCH -t soon\n", r"job\.sh:3: --time: 'soon' is not a time"),
    ],
)
def test_what_is_no_script_is_refused(tmp_path: Path, content: str | bytes, why: str) -> None:
    with pytest.raises(ReshapeError, match=why):
        read_script(write(tmp_path, content))


def test_options_of_slurm_in_both_forms() -> None:
    words = ["-n4", "-J", "a", "--time=10", "-H", "--kill-on-invalid-dep=yes", "--no-requeue"]
    words += ["-a0-9%2", "-d", "afterok:1?after:2", "-e", "%x.err", "--signal=B:USR1@9"]
    options = ScriptOptions()
    options.add(SBATCH.read([*words, "--exclusive=user"]))
    assert options == ScriptOptions(
        {
            **{"name": "a", "walltime_s": 600.0, "hold": True, "kill_on_invalid": True},
            **{"requeue": False, "array": "0-9%2", "dependency": "afterok:1?after:2"},
            **{"error": "%x.err", "signal": "B:USR1@9"},
        },
        {"exclusive": "user"},
        {"ntasks": 4},
    )


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ("--time=0", {"walltime_s": LONGEST_WALLTIME_S}),
        ("--time=-1", {"walltime_s": LONGEST_WALLTIME_S}),
        ("-t 0-00:00:00", {"walltime_s": LONGEST_WALLTIME_S}),
        ("-t infinite", {"walltime_s": LONGEST_WALLTIME_S}),
        ("--open-mode=a", {"open_mode": "append"}),
        ("--open-mode=truncate", {"open_mode": "truncate"}),
        ("--requeue --no-requeue", {"requeue": False}),
        ("--kill-on-invalid-dep=YES", {"kill_on_invalid": True}),
        ("--kill-on-invalid-dep=yes --kill-on-invalid-dep=no", {"kill_on_invalid": False}),
        ("--tasks-per-node=2 --nice --propagate -k", {}),
    ],
)
def test_habits_of_slurm(given: str, fields: dict[str, object]) -> None:
    options = ScriptOptions()
    options.add(SBATCH.read(given.split()))
    assert options.fields == fields


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("-t soon", "^--time: 'soon' is not a time"),
        ("-J ''", "^--job-name: it is empty, as a variable that is not set"),
        ("--open-mode=none", "^--open-mode: 'none' is not one of"),
        ("-N 0", r"^--nodes: expected a number >= 1, got '0'"),
        ("--kill-on-invalid-dep=maybe", "^--kill-on-invalid-dep: expected yes or no, got 'maybe'"),
    ],
)
def test_a_wrong_value_is_reported_by_the_name_that_slurm_has(given: str, why: str) -> None:
    with pytest.raises(ReshapeError, match=why):
        ScriptOptions().add(SBATCH.read(shlex.split(given)))


@pytest.mark.parametrize(
    ("sizes", "count", "processes"),
    [
        ({}, 1, 1),
        ({"ntasks": 4}, 4, 4),
        ({"nodes": 2, "ntasks-per-node": 3}, 6, 6),
        ({"nodes": 2, "ntasks": 5}, 5, 5),
        ({"nodes": 2}, 2, 2),
        ({"ntasks": 2, "cpus-per-task": 3}, 6, 2),
        ({"cpus-per-task": 3}, 3, 1),
    ],
)
def test_the_processors_of_slurms_options(
    sizes: dict[str, int], count: int, processes: int
) -> None:
    assert (processors(sizes), tasks(sizes)) == (count, processes)


@pytest.mark.parametrize(
    ("words", "options", "rest"),
    [
        ("--parsable -n 2 job.sh -n 3", {"parsable": None, "ntasks": "2"}, "job.sh -n 3"),
        ("-J a --wrap=x", {"job-name": "a", "wrap": "x"}, ""),
        ("-", {}, "-"),
        ("job.sh", {}, "job.sh"),
    ],
)
def test_a_command_line_of_sbatch(words: str, options: dict[str, str | None], rest: str) -> None:
    assert SBATCH.split(words.split()) == ([*options.items()], rest.split())


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "give either SCRIPT or --wrap COMMAND"),
        (["--wrap", "true", "job.sh"], "give either SCRIPT or --wrap COMMAND"),
        (["none.sh"], "cannot read the script none.sh: No such file"),
        (["--max", "4", "--wrap", "true"], "--max: a job script runs once"),
        (["-n", "4", "--min", "2", "--wrap", "true"], "--min: a job script runs once"),
    ],
)
def test_wrong_usage_of_batch(tmp_path: Path, words: list[str], why: str) -> None:
    code = 2 if "either" in why else 1
    assert why in invoke("batch", "--dir", tmp_path, *words, code=code, cwd=tmp_path).stderr


def test_a_wrong_value_in_a_script_names_it(tmp_path: Path) -> None:
    write(tmp_path, "#!/bin/sh\n#RESHAPE -n x\n")
    told = invoke("batch", "--dir", tmp_path, "job.sh", code=1, cwd=tmp_path).stderr
    assert "job.sh:2: Invalid value for '-n'" in told
    write(tmp_path, "#!/bin/sh\n#RESHAPE -n 4 --min 2\n")
    told = invoke("batch", "--dir", tmp_path, "job.sh", code=1, cwd=tmp_path).stderr
    assert "--min: a job script runs once and is not resized: leave it out" in told
