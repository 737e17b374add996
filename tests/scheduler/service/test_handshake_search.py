"""Any bytes of a client and of the service, in any pieces."""

from __future__ import annotations

from example_counts import examples
from handshakes import GREETING, HELLO, INITIATE, WELCOME
from hypothesis import example, given
from hypothesis import strategies as st

from scheduler.service.gate_connections import MOST_BYTES, Handshake

#: A right beginning, perhaps with a changed byte, and anything after it.
RIGHT = GREETING + HELLO + INITIATE
SENT = st.builds(
    lambda length, at, byte, rest: (
        RIGHT[:length][:at] + byte + RIGHT[:length][at + len(byte) :] + rest
    ),
    st.integers(0, len(RIGHT)),
    st.integers(0, len(RIGHT)),
    st.binary(max_size=1),
    st.binary(max_size=3000),
)
PIECES = st.lists(st.integers(1, 400), max_size=20)


def pieces(data: bytes, sizes: list[int]) -> list[bytes]:
    """Cut data into pieces of these sizes, the rest in one piece."""
    cut, at = [], 0
    for size in [*sizes, len(data)]:
        if data[at : at + size]:
            cut.append(data[at : at + size])
        at += size
    return cut


@given(SENT, PIECES)
@example(b"\xff", [])
@example(GREETING + HELLO + b"\x06" + b"\xff" * 8, [64, 202, 1])
@examples(300)
def test_any_bytes_are_taken_or_refused_in_whatever_pieces_they_come(
    sent: bytes, sizes: list[int]
) -> None:
    made, passed, taken = Handshake(), b"", 0
    for piece in pieces(sent, sizes):
        if not made.add(piece):
            break
        taken += len(piece)
        assert len(made.sent) == taken <= MOST_BYTES + 400 + 3000
        passed += made.to_pass()
        if made.is_complete:
            passed += made.initiate()
            assert passed == sent[:taken]
    assert sent.startswith(passed)
    assert not passed or passed[0] == 0xFF
    one = Handshake()
    if sent and one.add(sent):  # a refusal of all is one of pieces, too
        assert taken == len(sent)
        assert one.is_complete == made.is_complete


@given(st.binary(max_size=600) | st.binary(max_size=100).map(WELCOME.__add__), PIECES)
@examples(200)
def test_any_answer_of_the_service_has_one_meaning_in_whatever_pieces(
    data: bytes, sizes: list[int]
) -> None:
    made, whole = Handshake(), Handshake()
    results = [made.answer(piece) for piece in pieces(data, sizes)]
    if results:
        assert results[-1] is whole.answer(data)
        decided = [result for result in results if result is not None]
        assert len(set(decided)) <= 1
