"""What `reshape info` shows of texts that users and programs choose."""

from __future__ import annotations

from job_infos import ended

from scheduler.client.tables import job_text


def test_arguments_and_facts_cannot_control_the_terminal() -> None:
    job = ended(
        1, 0.0, 1.0, 2.0, name="x", argv=["sh", "-c", "a\nUser: root\x1b[2J"],
        facts={"text\r": "\x1b]0;title\x07"}, reason="two\nlines", output="/a\x9b31m",
    )  # fmt: skip
    text = job_text(job, 3000.0)
    assert "".join(text.split("\n")).isprintable()
    assert sum(line.startswith("User:") for line in text.split("\n")) == 1
    assert r"sh -c a\nUser: root\x1b[2J" in text
