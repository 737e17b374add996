"""What `reshape info` shows of texts that users and programs choose."""

from __future__ import annotations

from job_infos import ended

from scheduler.client.columns import queue_format
from scheduler.client.tables import answer_text, job_text
from scheduler.protocol import messages as m


def test_arguments_and_facts_cannot_control_the_terminal() -> None:
    job = ended(
        1, 0.0, 1.0, 2.0, name="x", user="ann", argv=["sh", "-c", "a\nUser: root\x1b[2J"],
        facts={"text\r": "\x1b]0;title\x07"}, reason="two\nlines", output="/a\x9b31m",
    )  # fmt: skip
    text = job_text(job, 3000.0)
    assert "".join(text.split("\n")).isprintable()
    assert sum(line.startswith("User:") for line in text.split("\n")) == 1
    assert r"sh -c a\nUser: root\x1b[2J" in text


def test_the_progress_of_jobs_has_a_column_if_one_is_known() -> None:
    silent = ended(1, 0.0, 1.0, 2.0, iteration=7)
    known = ended(2, 0.0, 1.0, 2.0, iteration=7, iterations=9, iteration_s=0.5)
    assert "DONE" not in queue_format([silent]).table([silent], 3000.0).headings
    table = queue_format([silent, known]).table([silent, known], 3000.0)
    column = table.headings.index("DONE")
    assert [row[column] for row in table.rows] == ["-", "77%"]
    text = job_text(known, 3000.0)
    assert "Iteration:  7 of 9, 77% when it reported last, an iteration took 0.500 s\n" in text
    assert "Iteration:  7 when it reported last\n" in job_text(silent, 3000.0)


def test_an_array_a_task_and_a_step_are_named_as_users_write_them() -> None:
    array = job_text(ended(1, 0.0, 1.0, 2.0, label="1_[2-4]", array="0-4"), 3000.0)
    task = job_text(ended(2, 0.0, 1.0, 2.0, label="1_0"), 3000.0)
    step = job_text(ended(3, 0.0, 1.0, 2.0, label="1_0.0", step_of=2), 3000.0)
    named = [line.split() for text in (array, task, step) for line in text.split("\n")[1:2]]
    assert named == [["Array:", "0-4"], ["Task:", "1_0"], ["Step:", "1_0.0"]]
    assert "Task:" not in array + step + job_text(ended(4, 0.0, 1.0, 2.0), 3000.0)


def test_a_late_job_is_described_and_explained_by_it() -> None:
    line = m.Story(at=3.0, text="expands to 4", rule="EASY")
    job = ended(3, 0.0, 1.0, 2.0, state="RUNNING", size=2, nodes="n1", ended_at=None)
    assert "Late:" not in job_text(job, 3000.0)
    assert answer_text(job, [line], 9.0).endswith("of n1: it expands to 4")
    job.late = "no resize point for 00:12:34"
    assert "Late:       no resize point for 00:12:34" in job_text(job, 3000.0)
    assert answer_text(job, [line], 9.0).endswith("of n1: no resize point for 00:12:34")
