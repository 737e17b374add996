"""Formats and orders of listings of jobs."""

from __future__ import annotations

import re

import pytest
from job_infos import T, ended
from msgspec.structs import replace
from paths import ROOT

from reshape.errors import ReshapeError
from scheduler.client.columns import FIELDS, ListingFormat, sorted_jobs
from scheduler.text.formats import format_moment

JOBS = [
    ended(7, 0.0, 5.0, 65.0, name="solve", user="ann", state="FAILED", code="F", exit_code=3,
          label="7_4", nodes="n1,n2", priority=2.0),
    ended(8, 1.0, None, 9.0, name="a|b", user="bob", state="PENDING", code="PD", size=0,
          reason="Priority", max_processors=None, min_processors=1),
]  # fmt: skip
JOBS[1].ended_at = None
NOW = T + 100.0


def test_an_expected_start_is_no_start() -> None:
    queued = replace(JOBS[1], started_at=NOW + 60.0)
    form = ListingFormat.parse("start,time,time_left,wait")
    assert form.has_starts
    cells = form.render([queued], NOW, heads=False).split()
    assert cells == [format_moment(NOW + 60.0), "00:00:00", "00:01:00", "00:01:39"]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("%i|%T", ["7_4|FAILED", "8|PENDING"]),  # as a client of Slurm asks
        ("%i %t", ["7_4 F", "8 PD"]),
        ("<%.6i> %2u;%%", ["<   7_4> an;%", "<     8> bo;%"]),
        ("%R %D %C %M", ["n1,n2 2 2 00:01:00", "(Priority) 0 2 00:00:00"]),
        ("%F %K %A", ["7 4 7", "8 N/A 8"]),
        ("%V", [format_moment(T), format_moment(T + 1.0)]),
    ],
)
def test_letters_are_those_of_squeue(text: str, lines: list[str]) -> None:
    assert ListingFormat.parse(text).render(JOBS, NOW, heads=False).splitlines() == lines


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("jobid,state%20", ["JOBID                 STATE", "  7_4                FAILED",
                            "    8               PENDING"]),
        ("JobIDRaw,State:3", ["NUMBER  STATE", "     7  FAI", "     8  PEN"]),
        ("min,size", ["MIN  SIZE", "  2   2/8", "  1   2/2"]),
        ("exitcode,elapsed", ["EXITCODE      TIME", "     3:0  00:01:00", "     0:0  00:00:00"]),
    ],
)  # fmt: skip
def test_names_are_those_of_sacct(text: str, lines: list[str]) -> None:
    assert ListingFormat.parse(text).render(JOBS, NOW).splitlines() == lines


def test_a_format_of_letters_escapes_and_cuts_nothing_off() -> None:
    nodes = ",".join(f"node{number:04}" for number in range(1000))
    job = replace(JOBS[0], nodes=nodes, argv=["\x1b[31m"])
    assert ListingFormat.parse("%N|%o").render([job], NOW, heads=False) == rf"{nodes}|\x1b[31m"


def test_a_table_without_jobs_and_headings_is_empty() -> None:
    assert ListingFormat.parse("jobid,name,state").render([], NOW, heads=False) == ""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("jobid,stat", "the format has the field 'stat'; did you mean state"),
        ("%i %y", "the format has the letter %y: known are"),
        ("", "the format has the field ''"),
        ("a b", "the format has the field 'a b'"),
    ],
)
def test_an_unknown_field_is_an_error(text: str, told: str) -> None:
    with pytest.raises(ReshapeError, match=re.escape(told)):
        ListingFormat.parse(text)


@pytest.mark.parametrize(
    ("order", "numbers"),
    [
        ("jobid", [7, 8]),
        ("-jobid", [8, 7]),
        ("user", [7, 8]),
        ("-u,i", [8, 7]),
        ("-Q", [7, 8]),
        ("start", [7, 8]),
        ("-start", [8, 7]),
        ("procs,-jobid", [8, 7]),
        ("time", [8, 7]),
    ],
)
def test_jobs_are_sorted_by_fields(order: str, numbers: list[int]) -> None:
    assert [job.job for job in sorted_jobs(JOBS, order, NOW)] == numbers


def test_jobs_are_not_sorted_by_what_is_unknown() -> None:
    with pytest.raises(ReshapeError, match="cannot be sorted by 'prio'; did you mean"):
        sorted_jobs(JOBS, "prio", NOW)


def test_the_page_lists_all_fields() -> None:
    page = (ROOT / "docs" / "listings.md").read_text()
    for name, field in FIELDS.items():
        letter = ", ".join(f"`%{each}`" for each in field.letters)
        names = ", ".join(f"`{other}`" for other in field.names)
        assert f"| `{name}` | {field.heading} | {letter} | {names} |" in page


def test_every_field_can_be_written_and_sorted_by() -> None:
    for name, field in FIELDS.items():
        assert isinstance(field.text(JOBS[0], NOW), str)
        assert len(sorted_jobs(JOBS, name, NOW)) == 2
    letters = [letter for field in FIELDS.values() for letter in field.letters]
    assert len(letters) == len(set(letters))
    names = [name for own, field in FIELDS.items() for name in (own, *field.names)]
    assert len(names) == len(set(names))
