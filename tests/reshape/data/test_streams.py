"""Streams of random numbers: independent, and continued where their states have been kept."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from application_scripts import script
from driver import Driver
from example_counts import examples
from hypothesis import given
from hypothesis import strategies as st

import reshape
from reshape.data import segments
from reshape.data.declarations import declare
from reshape.data.segments import RankMemory
from reshape.data.streams import StreamStates, declare_streams
from reshape.errors import ReshapeError
from reshape.wire.messages import Join

on_4_ranks = pytest.mark.mpi(min_size=4)
#: Draws that leave different things in a generator.
DRAWS = [
    lambda rng: rng.random(),
    lambda rng: rng.normal(size=3).tolist(),
    lambda rng: rng.integers(100, dtype=np.int32),
    lambda rng: rng.permutation(4).tolist(),
    lambda rng: [child.random() for child in rng.spawn(2)],
]


@examples(60)
@given(st.lists(st.sampled_from(DRAWS)), st.integers(0, 2))
def test_a_stream_continues_where_its_state_was_packed(draws: list, begun: int) -> None:
    """Rows that have drawn nothing begin later."""
    declaration = declare_streams("a", 5, declare("b", "rows", (3,), (0,), "f8", "C"))
    layout, memory = declaration.layout(1), RankMemory(None, 0, 0)
    segment = segments.create(memory, declaration, layout)
    states = StreamStates(declaration, SimpleNamespace(comm=SimpleNamespace(rank=0)))
    states.place(layout, segment)
    expected = [
        np.random.Generator(np.random.PCG64DXSM(np.random.SeedSequence(5, spawn_key=(key, row))))
        for key in (3904355907,)
        for row in range(3)
    ]
    for each in (*draws, *DRAWS):
        for row in range(begun):
            assert each(states.generators[row]) == each(expected[row])
        states.pack()
        states.place(layout, segment)  # as after a resize that keeps this part
    for row in range(3):
        assert [draw(states.generators[row]) for draw in DRAWS] == [
            draw(expected[row]) for draw in DRAWS
        ]


def test_a_generator_of_another_kind_is_an_error(tmp_path: Path) -> None:
    """Its state cannot be that of the stream."""
    body = """
        streams = app.rng("noise", like=app.rows("u", (4,)))
        for step in app.iterations(20):
            streams.local[1] = np.random.default_rng(step)
    """
    with Driver(tmp_path, [script(tmp_path, body)]) as driver:
        group = driver.start(1, "first")
        joining = driver.ready(1)
        driver.decide = lambda _: Join(serial=1, group=1, size=1)
        driver.serve(lambda: group.process.poll() is not None)
        assert group.process.returncode == 1
        why = "streams 'noise': row 1 has a generator of PCG64 in the place of its own"
        assert why in group.text
        assert why in driver.faults[0].why
        driver.kill(joining)


@on_4_ranks
def test_all_streams_are_different() -> None:
    with reshape.application() as app:
        u, matrix = app.rows("u", (9, 2)), app.csr("m", (9, 9))
        line = app.blocks("line", (9,))
        rows = [
            *(app.rng(f"r{k}", like=like) for k, like in enumerate((u, matrix, line))),
            app.rng("other", u, seed=1),
        ]
        ranks = [app.rng("x"), app.rng("y"), app.rng("z", seed=1)]
        tasks = app.items("tasks", range(9))
        items = [app.rng("i", tasks), app.rng("j", tasks), app.rng("k", tasks, seed=1)]
        for streams in rows:
            assert len(streams.local) == len(u.local)
        draws = [int(g.integers(2**63)) for streams in rows for g in streams.local]
        draws += [int(stream.local.integers(2**63)) for stream in (*ranks, *ranks)]
        keys = [key for n in tasks.local for key in ((n,), (n, 0), (n, 1), (0, n + 2), (n, 0, 1))]
        for streams in items:
            draws += [int(streams.of(*key).integers(2**63)) for key in keys]
            assert streams.of(3, 1).random() == streams.of(3, 1).random()
        every = [draw for own in app.comm.allgather(draws) for draw in own]
        assert len(every) == len(set(every)) == 4 * 9 + 4 * 6 + 3 * 5 * 9
        assert ranks[0].local is ranks[0].local
    with pytest.raises(ReshapeError, match="array 'r0': the block 'with resh"):
        _ = rows[0].local
