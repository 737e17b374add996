"""The pages over HTTP: who may see them, and the addresses below ``api/v1`` (docs/web.md)."""

from __future__ import annotations

import asyncio
import secrets
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from hmac import compare_digest
from importlib import resources
from math import inf, isfinite, nan
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import QueryParams
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from reshape.errors import ReshapeError
from scheduler.client.api.client import Client
from scheduler.client.web.document import TimeWindow, encode
from scheduler.client.web.live_run import LiveRun, as_json
from scheduler.policies.registry import known
from scheduler.protocol import messages as m
from scheduler.protocol.client import expect
from scheduler.text.plain import plain

#: Segments of an answer at most; an image stands for more.
MOST_SEGMENTS = 8000
#: Largest image, rows and columns.
LARGEST = 256, 2400
#: Seconds between two messages of a stream at least, and at most.
LEAST_S, MOST_S = 0.1, 15.0
#: Streams that are open at once, at most.
MOST_STREAMS = 200
#: Bytes of the body of a request, at most.
MOST_BODY = 10_000
#: Seconds that a simulation of another scenario may take.
WHAT_IF_S = 120.0
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self';"
    " connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
_TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html"}
_ACTIONS: dict[str, m.JobChange] = {
    "cancel": m.CancelJob(),
    "hold": m.HoldJob(),
    "release": m.ReleaseJob(),
    "requeue": m.RequeueJob(),
}


class WhatIf(msgspec.Struct):
    """What is to be simulated: the jobs of the last hours under a scenario."""

    scenario: str
    hours: Annotated[float, msgspec.Meta(gt=0, le=1e6)] = 6.0


class Doors:
    """Access to the pages: a link with a one-time token gives a browser the cookie that they need.

    Parameters
    ----------
    hosts : names by which browsers may reach the server, besides those of the loopback interface.
    announce : called with each new token.
    """

    def __init__(self, hosts: Sequence[str], announce: Callable[[str], None]) -> None:
        self._hosts, self._proxies = {"localhost", "127.0.0.1", "::1", *hosts}, {*hosts}
        self._announce = announce
        self._token, self._key = "", secrets.token_urlsafe(32)
        self.cookie = f"reshape-web-{secrets.token_hex(4)}"

    def open(self) -> None:
        """Announce a token."""
        self._token = secrets.token_urlsafe(32)
        self._announce(self._token)

    def key_for(self, token: str) -> str | None:
        """Return the value of the cookie for a valid token, which is used up; None: it is not."""
        if not self._token or not compare_digest(token.encode(), self._token.encode()):
            return None
        self.open()
        return self._key

    def fault(self, request: Request) -> str:
        """Say why a request is refused; "" if it is not."""
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if host_of(f"//{host}") not in self._hosts:
            return "this name of the host is not allowed: see --allow-host"
        if origin is None:
            names_none = "a request that changes something names no origin"
            return names_none if request.method == "POST" else ""
        if origin.partition("://")[2] != host and host_of(origin) not in self._proxies:
            return "the request comes from another site"  # other ports are other sites
        return ""

    def is_open_to(self, request: Request) -> bool:
        """Whether a request has the cookie."""
        given = request.cookies.get(self.cookie, "")
        return compare_digest(given.encode(), self._key.encode())


def host_of(url: str) -> str:
    """Name of the host of an address; "" if it has none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


class RequestGuard:
    """Middleware: checks each request, and adds the headers that restrict the page."""

    def __init__(self, app: ASGIApp, doors: Doors) -> None:
        self._app, self._doors = app, doors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)

        async def restricted(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = message.setdefault("headers", [])
                kept.extend(
                    (name.lower().encode(), text.encode()) for name, text in _HEADERS.items()
                )
            await send(message)

        if fault := self._doors.fault(request):
            await refusal(fault)(scope, receive, restricted)
        elif request.url.path == "/" and "token" in request.query_params:
            await self._enter(request)(scope, receive, restricted)
        elif not self._doors.is_open_to(request):
            text = "open the link that reshape web has printed; each one is valid once"
            await refusal(text)(scope, receive, restricted)
        else:
            await self._app(scope, receive, restricted)

    def _enter(self, request: Request) -> Response:
        key = self._doors.key_for(request.query_params["token"])
        if key is None and not self._doors.is_open_to(request):
            return refusal(
                "this link was used or is wrong: reshape web prints a new one after each"
            )
        answer = RedirectResponse("./", 303)
        if key is not None:
            answer.set_cookie(self._doors.cookie, key, path=None, httponly=True, samesite="lax")
        return answer


def refusal(why: str, status: int = 403) -> Response:
    """Refuse a request with a sentence."""
    return Response(f"reshape: {why}\n", status, media_type="text/plain")


class Pages:
    """The answers to requests.

    Parameters
    ----------
    administrator : access file with which jobs may be changed; None: pages only show.
    """

    def __init__(self, run: LiveRun, administrator: Path | None = None) -> None:
        self._run, self._administrator = run, administrator
        self._streams: set[asyncio.Event] = set()
        self._simulates = False

    def app(self, doors: Doors) -> Starlette:
        """Make the application."""
        routes = [
            Route("/", self._file),
            Route("/static/{name}", self._file),
            Route("/api/v1/state", self._state),
            Route("/api/v1/window", self._window),
            Route("/api/v1/at", self._at),
            Route("/api/v1/jobs", self._jobs),
            Route("/api/v1/jobs/{job:int}", self._job),
            Route("/api/v1/jobs/{job:int}/{action}", self._act, methods=["POST"]),
            Route("/api/v1/events", self._events),
            Route("/api/v1/scenarios", self._scenarios),
            Route("/api/v1/whatif", self._what_if, methods=["POST"]),
        ]
        return Starlette(
            routes=routes,
            middleware=[Middleware(RequestGuard, doors=doors)],
            exception_handlers=dict.fromkeys(
                (ReshapeError, msgspec.DecodeError, OverflowError), _failed
            ),
            lifespan=self._lifespan,
        )

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()

        def changed() -> None:
            loop.call_soon_threadsafe(self._wake)

        self._run.on_change = changed
        self._run.start()
        yield
        await run_in_threadpool(self._run.stop)

    def _wake(self) -> None:
        for stream in self._streams:
            stream.set()

    def _file(self, request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        path = resources.files("scheduler.client.web") / "static" / name
        suffix = Path(name).suffix
        if suffix not in _TYPES or "/" in name or not path.is_file():
            return refusal("there is no such file", 404)
        return Response(path.read_bytes(), media_type=_TYPES[suffix])

    def _state(self, request: Request) -> Response:
        may_change = self._administrator is not None
        return _json({**self._run.state(), "actions": [*_ACTIONS] if may_change else []})

    def _window(self, request: Request) -> Response:
        query = request.query_params
        begin, end = _number(query, "from", -inf), _number(query, "to", inf)
        rows, columns = (
            max(1, min(int(_number(query, name, most)), most))
            for name, most in zip(("rows", "columns"), LARGEST, strict=True)
        )
        window = TimeWindow(begin, end, MOST_SEGMENTS, (rows, columns))
        body = encode([self._run.data()], window, sequence=self._run.sequence)
        return Response(body, media_type="application/octet-stream")

    def _at(self, request: Request) -> Response:
        query = request.query_params
        processor = int(_number(query, "processor", 0))
        return _json({"job": self._run.at(_number(query, "time", 0), processor)})

    def _jobs(self, request: Request) -> Response:
        query = request.query_params
        offset = max(0, int(_number(query, "offset", 0)))
        group, text = query.get("group", "all"), query.get("text", "")
        total, rows = self._run.jobs(group, text[:200], offset)
        return _json({"total": total, "rows": rows})

    def _job(self, request: Request) -> Response:
        return _json(self._run.job(request.path_params["job"]))

    def _act(self, request: Request) -> Response:
        action, job = request.path_params["action"], request.path_params["job"]
        if self._administrator is None:
            return refusal("pages only show: start reshape web with --administrator")
        if action not in _ACTIONS:
            return refusal(f"there is no action {action!r}: give {', '.join(_ACTIONS)}", 404)
        with Client(access=self._administrator) as client:
            expect(m.Done, client.request(m.ChangeJobs.one(job, _ACTIONS[action])))
        return _json({})

    async def _events(self, request: Request) -> Response:
        if len(self._streams) >= MOST_STREAMS:
            return refusal("too many pages are open", 503)
        last = request.headers.get("last-event-id", "")
        return StreamingResponse(self._stream(last), media_type="text/event-stream")

    async def _stream(self, last: str) -> AsyncIterator[bytes]:
        """Send a message for each change, the latest state only."""
        woken = asyncio.Event()
        self._streams.add(woken)
        self._run.viewers = len(self._streams)
        try:
            sent = -1
            yield b"retry: 1000\n\n"
            while True:
                state = self._run.state()
                if state["version"] != sent and (sent >= 0 or str(state["sequence"]) != last):
                    yield b"id: %d\ndata: %s\n\n" % (state["sequence"], as_json(state))
                    await asyncio.sleep(LEAST_S)
                sent = state["version"]
                woken.clear()
                if self._run.version == sent:
                    try:
                        await asyncio.wait_for(woken.wait(), MOST_S)
                    except TimeoutError:
                        yield b": still here\n\n"
        finally:
            self._streams.discard(woken)
            self._run.viewers = len(self._streams)

    def _scenarios(self, request: Request) -> Response:
        return _json({"scenarios": sorted(known("scenario"))})

    async def _what_if(self, request: Request) -> Response:
        asked = msgspec.json.decode(await _body(request), type=WhatIf)
        if asked.scenario not in known("scenario"):
            raise ReshapeError(f"there is no scenario {plain(asked.scenario)}")
        if self._simulates:
            return refusal("another simulation runs: try again when it has ended", 503)
        self._simulates = True
        try:
            return await self._simulated(asked)
        finally:
            self._simulates = False

    async def _simulated(self, asked: WhatIf) -> Response:
        """Simulate the last hours in a process of its own, which does not slow the pages."""
        with tempfile.TemporaryDirectory(prefix="reshape-web-") as folder:
            out = Path(folder) / "whatif.bin"
            words = ["-m", "reshape", "report", str(self._run.directory), "--format", "document"]
            words += [f"--policy={asked.scenario}", f"--last={round(3600 * asked.hours)}s"]
            words += ["-o", str(out)]
            process = await asyncio.create_subprocess_exec(
                *("nice", "-n", "10", sys.executable, *words),
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
            )
            try:
                _, error = await asyncio.wait_for(process.communicate(), WHAT_IF_S)
            except TimeoutError:
                return refusal(f"the simulation took more than {WHAT_IF_S:.0f} s", 503)
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            if not out.is_file():
                text = error.decode(errors="replace").strip().removeprefix("reshape: error: ")
                return refusal(text or "the simulation failed", 400)
            return Response(out.read_bytes(), media_type="application/octet-stream")


async def _body(request: Request) -> bytes:
    """Read the body of a request.

    Raises
    ------
    ReshapeError : it is too long.
    """
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BODY:
            raise ReshapeError(f"the body has more than {MOST_BODY} bytes")
    return body


def _json(value: Any) -> Response:
    return Response(as_json(value), media_type="application/json")


def _number(query: QueryParams, name: str, default: float) -> float:
    """Read a number of a query.

    Raises
    ------
    ReshapeError : it is none, or not finite.
    """
    text = query.get(name)
    if text is None:
        return default
    try:
        number = float(text)
    except ValueError:
        number = nan
    if not isfinite(number):
        raise ReshapeError(f"{name} must be a finite number, got {text[:100]!r}")
    return number


async def _failed(request: Request, error: Exception) -> Response:
    return refusal(str(error), 400)
