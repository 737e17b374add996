"""The bytes that pages draw: a header and columns, one form for servers and single files.

docs/web.md has the form: a header of JSON with its length before it, and the columns that it names.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from math import ceil, inf, log2
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from reshape.errors import ReshapeError
from scheduler.client.web.run_data import SEGMENT, JobRow, Kind, RunData, SegmentRows, between
from scheduler.pictures import covered

FORMAT = 1
#: What `report` writes.
FORMATS = ("html", "perfetto", "document")
#: Colours of jobs; `static/charts.js` has as many.
COLOURS = 12
#: Steps of the coverage of a pixel in an image; a pixel is colour + COLOURS * coverage.
LEVELS = 16
_LARGEST = 2**31 - 1
#: Time that there is none of, in ticks.
NO_TIME = -(2**31)
#: Parts of the script of the page.
PARTS = ("data", "charts", "views", "live", "page")
_KINDS = {int: "i4", str: "text", float: "time", float | None: "time"}
#: Types of the columns of jobs and of segments.
JOB_COLUMNS = {field.name: _KINDS[field.type] for field in msgspec.structs.fields(JobRow)}
SEGMENT_COLUMNS = {
    name: {"f": "time", "i": "i4", "u": "u1"}[SEGMENT[name].kind] for name in SEGMENT.names or ()
}
_CURVE_COLUMNS = {"times": "time", "values": "i4"}


class _Columns:
    """Columns of a document, one after the other."""

    def __init__(self) -> None:
        self.data = bytearray()

    def add(self, values: Any, kind: str, tick_s: float = 1.0) -> tuple[Any, ...]:
        """Add a column of numbers, times (s; None or nan: none) or texts; return its place."""
        if kind == "text":
            texts: dict[str, int] = {}
            indices = [texts.setdefault(text, len(texts)) for text in values]
            return kind, *self.add(indices, "i4")[1:], [*texts]
        if kind == "time":
            ticks = np.round(np.asarray(values, np.float64) / tick_s)
            values = np.where(np.isnan(ticks), NO_TIME, np.clip(ticks, -_LARGEST, _LARGEST))
        place = kind, len(self.data), len(values)
        self.data += np.ascontiguousarray(values, "|u1" if kind == "u1" else "<i4").tobytes()
        self.data += bytes(-len(self.data) % 4)
        return place

    def table(self, kinds: Mapping[str, str], columns: Iterable[Any], tick_s: float) -> Any:
        """Add columns of these names and types; return their places by name."""
        pairs = zip(kinds.items(), columns, strict=True)
        return {name: self.add(values, kind, tick_s) for (name, kind), values in pairs}


def encode(
    runs: Sequence[RunData],
    begin: float = -inf,
    end: float = inf,
    most: int = _LARGEST,
    shape: tuple[int, int] = (0, 0),
    **more: Any,
) -> bytes:
    """Encode runs, or what they were in a window of time, as a document.

    Parameters
    ----------
    begin, end : of the window, seconds from the origin on.
    most : with more segments than this, an image stands for them.
    shape : rows and columns of that image.
    more : further fields of the header.
    """
    columns = _Columns()
    described = [_run(run, columns, begin, end, most, shape) for run in runs]
    header = msgspec.json.encode({"format": FORMAT, "runs": described, **more})
    header += b" " * (-len(header) % 4)
    return len(header).to_bytes(4, "little") + header + columns.data


def _run(
    run: RunData, columns: _Columns, since: float, until: float, most: int, shape: tuple[int, int]
) -> dict[str, Any]:
    segments = between(run.segments, since, until)
    begin, end = max(since, 0.0), min(until, max(run.end, 1.0))
    ticks = max(run.end, end) / 0.001
    tick_s = 0.001 * 2 ** max(0, ceil(log2(ticks / (_LARGEST - 1))))  # times fit into 31 bits
    described: dict[str, Any] = {
        "name": run.name,
        "origin": run.origin,
        "now": run.now,
        "end": run.end,
        "from": begin,
        "to": end,
        "tick_s": tick_s,
        "processors": run.processors,
        "hosts": [(name, held.intervals) for name, held in run.hosts.items()],
        "marks": [
            (mark.kind, mark.held.intervals, mark.begin, min(mark.end, 1e18), mark.text)
            for mark in run.blocked
            if mark.begin < until and mark.end > since
        ],
        "notes": list(run.notes),
        "count": len(segments),
        "totals": run.totals,
        "stories": run.stories,
        "utilization": run.utilization,
    }
    if len(segments) > most:
        colours = np.array([job.number for job in run.jobs]) % COLOURS
        image = picture(segments, colours, begin, end, run.processors, shape)
        described["image"] = (*image.shape, columns.add(image.ravel(), "u1"))
        longest = np.argsort(segments["begin"] - segments["end"])[: most // 4]
        segments = segments[longest]
    is_part = most < _LARGEST
    rows = np.unique(segments["job"]) if is_part else np.arange(len(run.jobs))
    jobs = [msgspec.structs.astuple(run.jobs[row]) for row in rows.tolist()]
    of_jobs = zip(*jobs, strict=True) if jobs else [()] * len(JOB_COLUMNS)
    described["jobs"] = columns.table(JOB_COLUMNS, of_jobs, tick_s)
    segments = segments[np.argsort(segments["begin"], kind="stable")]  # steps are above their jobs
    segments["job"] = np.searchsorted(rows, segments["job"])
    of_segments = (segments[name] for name in SEGMENT_COLUMNS)
    described["segments"] = columns.table(SEGMENT_COLUMNS, of_segments, tick_s)
    curves = run.curves(begin, max(begin, min(end, run.now)))
    described["curves"] = {
        name: columns.table(_CURVE_COLUMNS, (times, np.round(100 * values)), tick_s)
        for name, (times, values) in curves.items()
    }
    return described


def picture(
    segments: SegmentRows,
    colours: NDArray[np.int64],
    begin: float,
    end: float,
    processors: int,
    shape: tuple[int, int],
) -> NDArray[np.uint8]:
    """Draw segments as an image: the colour of each pixel, and how much of it jobs cover.

    A pixel has the colour of the last job that begins in it, or of the one that runs on. Rows are
    groups of processors.

    Parameters
    ----------
    colours : of each job, by its row.
    begin, end : of the image, s.

    Returns
    -------
    (rows, columns) uint8, row 0 has the lowest processors; 0 where nothing runs, else colour +
    COLOURS * coverage with a coverage from 1 to LEVELS.
    """
    rows, width = min(shape[0], processors), shape[1]
    left, right = (
        np.clip((segments[name] - begin) * (width / (end - begin)), 0, width)
        for name in ("begin", "end")
    )
    last = segments["first"] + segments["count"]
    low, high = (numbers * (rows / processors) for numbers in (segments["first"], last))
    boxes = np.stack([left, low, right, high], axis=1)
    areas = covered(boxes, np.ones(len(segments)), (rows, width))
    top = low.astype(np.int32)
    heights = np.maximum(np.ceil(high).astype(np.int32) - top, 1)
    of = np.repeat(np.arange(len(segments), dtype=np.int32), heights)
    below = np.arange(len(of), dtype=np.int32) - np.repeat(
        (np.cumsum(heights) - heights).astype(np.int32), heights
    )
    corners = top * width + np.minimum(left.astype(np.int32), width - 1)
    begun = np.zeros(rows * width, np.int32)
    begun[corners[of] + below * width] = of + 1  # of several the last one stays
    marked = np.where(begun > 0, np.arange(len(begun)), 0).reshape(rows, width)
    owner = begun[np.maximum.accumulate(marked, axis=1)]
    painted = np.append(0, colours[segments["job"]])[owner]
    level = np.clip(np.ceil(areas * LEVELS - 1e-6), 0, LEVELS).astype(np.int64)
    return np.where(level > 0, painted + COLOURS * level, 0).astype(np.uint8)


def static(name: str) -> str:
    """Return the text of a file of the page."""
    return (resources.files("scheduler.client.web") / "static" / name).read_text(encoding="utf-8")


def script() -> str:
    """Return the script of the page."""
    return "\n".join(static(f"{name}.js") for name in PARTS)


def page(title: str, document: bytes) -> str:
    """Return a page with its data, which needs no server and no network."""
    code, style = script(), static("page.css")
    data = base64.b64encode(zlib.compress(document, 9)).decode()
    policy = (
        "default-src 'none';"
        f" script-src 'sha256-{_digest(code)}'; style-src 'sha256-{_digest(style)}'"
    )
    parts = {
        "<title>reshape</title>": f"<title>{escape(title)}</title>\n"
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<link rel="stylesheet" href="static/page.css">': f"<style>{style}</style>",
        '<script type="module" src="static/page.js"></script>': (
            f'<script type="application/octet-stream" id="data">{data}</script>\n'
            f'<script type="module">{code}</script>'
        ),
    }
    text = static("index.html")
    for of_server, of_file in parts.items():
        text = text.replace(of_server, of_file)
    return text


class ReportPage(msgspec.Struct, frozen=True):
    """A page with its data, which notebooks show.

    Parameters
    ----------
    html : the page.
    """

    html: str

    def __repr__(self) -> str:
        """Its size: the page itself would fill a terminal, and the file of a notebook."""
        return f"ReportPage({len(self.html) / 1000:.0f} kB; a notebook shows it)"

    def _repr_html_(self) -> str:
        """Return the page in a frame, which can run its script and reach nothing else."""
        frame = 'width="100%" height="640" style="border:0" sandbox="allow-scripts"'
        return f'<iframe {frame} srcdoc="{escape(self.html)}"></iframe>'


def report(
    runs: Sequence[RunData],
    title: str,
    form: str = "html",
    tables: Sequence[Mapping[str, Any]] = (),
) -> bytes:
    """Return the file of a report.

    Parameters
    ----------
    form : one of `FORMATS`.
    tables : further tables of a page, each with ``title``, ``heads`` and ``rows`` of texts.

    Raises
    ------
    ReshapeError : there is nothing to show.
    """
    if form == "perfetto":
        if not runs:
            raise ReshapeError("a trace shows runs, and these sources have none")
        return perfetto(runs)
    document = encode(runs, title=title, tables=tables)
    return document if form == "document" else page(title, document).encode()


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def perfetto(runs: Sequence[RunData]) -> bytes:
    """Encode runs as a trace for ui.perfetto.dev: a track for each processor.

    It is Chrome's trace format, with complete events; times are in microseconds.
    """
    events: list[Mapping[str, Any]] = []
    for place, run in enumerate(runs, 1):
        hosts = {number: f"{host} " for host, held in run.hosts.items() for number in held}
        names = {1 + n: f"{hosts.get(n, '')}processor {n}" for n in range(run.processors)}
        for track, text in {0: run.name, **names}.items():
            what = "thread_name" if track else "process_name"
            naming = {"name": what, "ph": "M", "pid": place, "tid": track, "args": {"name": text}}
            events.append(naming)
        for row, first, count, begin, end, kind in run.segments.tolist():
            job, does = run.jobs[row], Kind(kind).name
            event = {
                "name": f"{job.shown_label} {job.name}".strip(),
                "cat": does.lower(),
                "ph": "X",
                "ts": round(1e6 * begin),
                "dur": round(1e6 * (end - begin)),
                "pid": place,
                "args": {"job": job.shown_label, "name": job.name, "user": job.user, "kind": does},
            }
            events += [event | {"tid": 1 + number} for number in range(first, first + count)]
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ms"})
