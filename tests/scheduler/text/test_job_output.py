"""Names of output files: the placeholders of Slurm, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reshape.errors import ReshapeError
from scheduler.text.job_output import (
    MOST_LINES,
    WIDTH,
    check_output_name,
    error_line,
    filled,
    last_lines,
    output_name,
    step_output,
)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("out-%j.txt", "out-7.txt"),
        ("%J %A %a %t %s", "7 7 0 0 0"),
        ("%x.%u@%N", "lu_big.ann@node1"),
        ("%%j %%%j", "%j %7"),
        ("%{JOB_ID}-%4j-%12j-%2a", "7-0007-0000000007-00"),
        ("plain", "plain"),
    ],
)
def test_placeholders_are_those_of_slurm(text: str, name: str) -> None:
    check_output_name(text)
    found = output_name(text, job=7, name="lu/big", user="ann", host="node1.example.org")
    assert found == name


@pytest.mark.parametrize(
    ("text", "wrong"),
    [("a%zb", "%z"), ("50%", "%"), ("%{JOB}", "%{"), ("%4", "%4"), ("%%%w", "%w")],
)
def test_other_placeholders_are_refused_by_name(text: str, wrong: str) -> None:
    with pytest.raises(ReshapeError, match="has the placeholder") as caught:
        check_output_name(text)
    assert repr(wrong) in str(caught.value)
    assert "known are %j" in str(caught.value)


def test_a_step_is_named_by_its_job_and_its_index() -> None:
    text = step_output("%j.%s %3s %J %{JOB_ID} %x %%s %A", 17, "17_4.2")
    assert text == "17.2 002 17_4.2 17_4.2 %x %%s %A"
    assert output_name(text, job=30, name="lu", user="ann") == "17.2 002 17_4.2 17_4.2 lu %s 30"


def test_an_array_keeps_the_placeholders_of_its_tasks() -> None:
    text = "%{JOB_ID} %A_%3a %J %j %x %s"
    assert output_name(text, job=7, name="lu", user="ann", is_array=True) == (
        "7_%a 7_%3a %J %j lu 0"
    )


def test_a_host_that_is_not_known_leaves_its_placeholder() -> None:
    assert output_name("%N-%j", job=1, name="", user="") == "%N-1"


BANNER = """
===================================================================================
=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES
=   PID 4376 RUNNING AT vm
=   EXIT CODE: 15
=   CLEANING UP REMAINING PROCESSES
=   YOU CAN IGNORE THE BELOW CLEANUP MESSAGES
===================================================================================
YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Terminated (signal 15)
This typically refers to a problem with your application.
Please see the FAQ page for debugging suggestions
"""
PYTHON = """step 3
Traceback (most recent call last):
  File "solve.py", line 3, in <module>
    1 / 0
ZeroDivisionError: division by zero
step 3
Abort(1) on node 0 (rank 0 in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 1) - process 0
"""


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("one\n\n  two  \n", ["one", "  two"]),
        (f"computed\n{BANNER}", ["computed"]),
        ("[mpiexec@vm] main (mpiexec.c:270): error waiting\n", []),
        ("\x1b[31mred\x1b[0m \x1b]0;a title\x07text\x1b(B", ["red text"]),
        ("\x1b]0;a title\x1b\\after \x9b2Jthis", ["after this"]),
        ("\x1b]52;c;never closed", []),
        (" 10 %\r 20 %\r 30 %\r\n", [" 30 %"]),
        ("bell\x07 null\0 \u202eright to left", ["bell null right to left"]),
        ("a\tb", ["a   b"]),
    ],
)
def test_lines_are_what_a_terminal_would_show(text: str, lines: list[str]) -> None:
    assert last_lines(text).splitlines() == lines


def test_lines_are_bounded() -> None:
    lines = last_lines("\n".join(f"{i} {'x' * 500}" for i in range(100))).splitlines()
    assert len(lines) == MOST_LINES
    assert lines[-1].startswith("99 xxx")
    assert {len(line) for line in lines} == {WIDTH}


@given(st.text(st.characters(codec="utf-8")) | st.text("\x1b[]0;m\x07\\\r\n\x9bPX", max_size=60))
def test_no_text_leaves_control_characters(text: str) -> None:
    lines = last_lines(text)
    assert lines.replace("\n", "").isprintable()
    assert len(lines) <= MOST_LINES * (WIDTH + 1)
    assert error_line(lines) in lines


ENDED = "reshape: the processes of group {} were ended: group 2 ended: exit code 0:9\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (PYTHON, "ZeroDivisionError: division by zero"),
        (PYTHON + PYTHON.replace("Zero", "Two"), "TwoDivisionError: division by zero"),
        ("Traceback (most recent call last):\n  cut off\n", "  cut off"),
        ("solver: no input.dat\nAbort(3) on node 1 (rank 1)\n", "solver: no input.dat"),
        ("Abort(3) on node 1 (rank 1 in comm 0): x\n", "Abort(3) on node 1 (rank 1 in comm 0): x"),
        ("step 7\n" + ENDED.format(3) + ENDED.format(12), "step 7"),
        (ENDED.format(3), ""),
    ],
)  # fmt: skip
def test_the_line_of_the_error(text: str, line: str) -> None:
    assert error_line(last_lines(text)) == line


def test_numbers_are_filled_up_and_what_is_unknown_stays() -> None:
    values = {"t": 3, "x": "lu", "%": "%"}
    assert filled("%4t %t %9x %b %{JOB_ID} %%t", values) == "0003 3 lu %b %{JOB_ID} %t"
