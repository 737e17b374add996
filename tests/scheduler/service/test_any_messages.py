"""Messages of all types with any values: each is carried out or refused, and nothing else happens.

An exception of a turn would discard it, and let the service recover from its journal.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgspec
from any_messages import messages
from desk import OWNER, Desk
from example_counts import examples
from hypothesis import example, given
from hypothesis import strategies as st

from reshape.wire.codec import PROTOCOL, encode
from scheduler.protocol import messages as m

PEER = b"peer"
#: Stand for the token of job 1 and the secret of the agent, which differ in each run.
TOKEN, SECRET = "the token", "the secret"
KNOWN = {
    "token": st.just(TOKEN),
    "secret": st.just(SECRET),
    "node": st.just("local"),
    **{name: st.just(1) for name in ("job", "group", "size", "step", "serial")},
}
ANY_MESSAGE = messages(m.Message, KNOWN).filter(lambda fields: fields["type"] != "Stop")


def hello(**more: Any) -> dict[str, Any]:
    """The fields of a report of an agent, some of them changed."""
    usual = {"node": "local", "pid": 1, "secret": SECRET, "groups": [], "restart_points": []}
    return {"type": "AgentHello", **usual, **more}


def answers(desk: Desk, fields: dict[str, Any], real: dict[str, str]) -> list[m.Message]:
    """Handle a message and the turn that follows; everything that is sent can be encoded."""
    fields = {
        name: real.get(value, value) if isinstance(value, str) else value
        for name, value in fields.items()
    }
    desk.sent.clear()
    desk.handler.handle(PEER, [PROTOCOL, msgspec.msgpack.encode(fields)], OWNER)
    desk.turn()
    for _, answer in desk.sent:
        encode(answer)
    return [answer for to, answer in desk.sent if to == PEER]


@given(st.lists(ANY_MESSAGE, min_size=1, max_size=8))
@example([hello(max_memory_mib={2**64 - 1: 1, 0: -2, 1: 2**64 - 1})])
@example([{"type": "CreateReservation", "duration_s": 0.0, "start": -1e300}])
@examples(300)
def test_a_message_is_carried_out_or_refused(sent: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        desk = Desk(Path(folder) / "service")
        real = {SECRET: desk.components.directory.read_secret()}
        answers(desk, hello(), real)
        job = m.Submission(["true"], 1, 60.0, cwd="/", output="/dev/null")
        desk.ask(PEER, m.Submit(submission=job))
        (order,) = [order for _, order in desk.sent if isinstance(order, m.StartGroup)]
        real[TOKEN] = order.environment["RESHAPE_TOKEN"]
        for fields in sent:
            for answer in answers(desk, fields, real):
                told = answer.message if isinstance(answer, m.Failure) else ""
                assert "internal error" not in told, told
        (info,) = desk.ask(PEER, m.ServerInfo())
        assert isinstance(info, m.Info)
        desk.components.journal.close()
