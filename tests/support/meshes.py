"""Strategies of Hypothesis for small networks."""

from __future__ import annotations

from hypothesis import strategies as st

from scheduler.model.network import Mesh

#: Meshes and tori of one to three dimensions.
MESHES = st.builds(
    Mesh,
    st.one_of(
        st.tuples(st.integers(1, 12)),
        st.tuples(st.integers(1, 6), st.integers(1, 6)),
        st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 4)),
    ),
    st.booleans(),
    st.integers(1, 3),
)
