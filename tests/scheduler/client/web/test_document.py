"""Documents, pages and traces: their form, and images that stand for many segments."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
from paths import ROOT

from reshape.errors import ReshapeError
from scheduler.client.web import document
from scheduler.client.web.document import COLOURS, LEVELS, PARTS, encode, picture
from scheduler.client.web.run_data import JobRow, Kind, RunData, Segments
from scheduler.model.procset import ProcSet

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u202e\"'&"


def run_of(spans: list[tuple[int, str, float, float]], name: str = "job") -> RunData:
    segments = Segments()
    for row, held, begin, end in spans:
        segments.add(row, ProcSet.parse(held), begin, end, Kind.COMPUTING)
    count = max(row for row, *_ in spans) + 1
    times = {"submitted": 0.0, "queued": 0.0, "started": 0.0, "ended": 5.0, "walltime_s": 9.0}
    sizes = {"requested": 1, "least": 1, "most": 2}
    jobs = [JobRow(i + 1, label="", name=name, user="u", **sizes, **times) for i in range(count)]
    rows = segments.rows()
    return RunData("run", None, rows, float(rows["end"].max()), 8, jobs=jobs)


def decoded(data: bytes) -> tuple[dict[str, Any], Any]:
    length = int.from_bytes(data[:4], "little")
    header = json.loads(data[4 : 4 + length])

    def column(place: list[Any]) -> Any:
        kind, offset, count, *texts = place
        values = np.frombuffer(data, "|u1" if kind == "u1" else "<i4", count, 4 + length + offset)
        return np.array(texts[0])[values] if texts else values

    return header, column


def test_columns_hold_segments_in_ticks() -> None:
    header, column = decoded(encode([run_of([(0, "0-1", 1.0, 2.5), (1, "3", 2.0, 4.25)])]))
    (run,) = header["runs"]
    columns = {name: column(place).tolist() for name, place in run["segments"].items()}
    assert columns == {
        **{"job": [0, 1], "first": [0, 3], "count": [2, 1], "kind": [0, 0]},
        **{"begin": [1000, 2000], "end": [2500, 4250]},
    }
    assert run["tick_s"] == 0.001
    assert column(run["curves"]["busy"]["values"]).tolist() == [0, 200, 300, 100, 0]


def test_jobs_have_a_column_for_each_field() -> None:
    run = run_of([(0, "0-1", 1.0, 2.5), (1, "3", 2.0, 4.25)], "n")
    run.jobs[1].expected = 2.5
    header, column = decoded(encode([run]))
    columns = {name: column(place).tolist() for name, place in header["runs"][0]["jobs"].items()}
    assert columns["number"] == [1, 2]
    assert columns["name"] == ["n", "n"]
    assert columns["expected"] == [document.NO_TIME, 2500]
    assert columns["most"] == [2, 2]
    assert columns.keys() == {*JobRow.__struct_fields__}


def test_times_of_years_fit_into_ticks() -> None:
    header, column = decoded(encode([run_of([(0, "0", 0.0, 1e9)])]))
    (run,) = header["runs"]
    assert column(run["segments"]["end"])[0] * run["tick_s"] == pytest.approx(1e9)


def test_a_window_has_its_segments_and_their_jobs_alone() -> None:
    run = run_of([(0, "0", 0, 2), (1, "1", 3, 5), (2, "2", 4, 9)])
    header, column = decoded(encode([run], 2.5, 3.5, 100))
    (shown,) = header["runs"]
    assert column(shown["jobs"]["number"]).tolist() == [2]
    assert column(shown["segments"]["job"]).tolist() == [0]


def test_an_image_shows_how_much_jobs_cover() -> None:
    run = run_of([(0, "0-3", 0, 4), (1, "4", 1, 1.5), (2, "4", 1.5, 2)])
    image = picture(run.segments, np.arange(3), 0, 4, 8, (4, 4))
    full, half = LEVELS * COLOURS, LEVELS // 2 * COLOURS
    assert image[0].tolist() == image[1].tolist() == [full] * 4
    assert image[2].tolist() == [0, half + 2, 0, 0]  # one of two processors, the last job
    assert image[3].tolist() == [0] * 4


def test_many_segments_become_an_image_that_is_small() -> None:
    spans = [(i % 50, str(i % 8), i // 8, i // 8 + 0.7) for i in range(40_000)]
    run = run_of(spans)
    few = encode([run], 0, run.end, 1000, (200, 1200))
    header, _ = decoded(few)
    assert header["runs"][0]["count"] == 40_000
    assert header["runs"][0]["image"][:2] == [8, 1200]
    assert len(few) < 40_000 < len(encode([run]))


def test_a_page_has_no_markup_of_names() -> None:
    page = document.page(HOSTILE, encode([run_of([(0, "0", 0, 1)], HOSTILE)], title=HOSTILE))
    assert "<img" not in page
    assert "<script>" not in page
    assert len(re.findall("<script", page)) == 2


def test_the_parts_of_the_page_are_one_script() -> None:
    script = document.script()
    names = re.findall(r"^(?:async )?(?:function|class|const|let) (\w+)", script, re.M)
    assert len(names) == len(set(names))
    assert "innerHTML" not in script
    assert len(script) >= sum(len(document.static(f"{part}.js")) for part in PARTS)


def test_the_pages_are_small() -> None:
    """What the pages and reports take in all, without the markup."""
    reports = [ROOT / "simulator" / part / "report.py" for part in ("results", "commands")]
    files = [*(ROOT / "scheduler" / "client" / "web").rglob("*.*"), *reports]
    kept = [path.read_text() for path in files if path.suffix in (".py", ".js", ".css")]
    assert sum(text.count("\n") for text in kept) <= 3000


def test_a_trace_has_a_track_for_each_processor() -> None:
    trace = json.loads(document.perfetto([run_of([(0, "0-1", 1, 2)], "n")]))["traceEvents"]
    drawn = [event for event in trace if event["ph"] == "X"]
    assert [(event["tid"], event["ts"], event["dur"]) for event in drawn] == [
        (1, 1_000_000, 1_000_000),
        (2, 1_000_000, 1_000_000),
    ]
    tracks = [event for event in trace if event["name"] == "thread_name"]
    assert len(tracks) == 8
    with pytest.raises(ReshapeError, match="have none"):
        document.report([], "nothing", "perfetto")
