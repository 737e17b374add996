"""Vorticity of a flow, by Fourier transforms whose columns and rows change places by messages."""

from itertools import pairwise

import numpy as np

import reshape
from redistribution import Cuts

N = 16


def transformed(comm, rows, along):
    """Transform an (N, N) array of which each rank has rows; the result is transposed."""
    cuts = Cuts.even((N,), comm.size).offsets
    lines = along(rows, axis=1)
    parts = comm.alltoall([lines[:, a:b] for a, b in pairwise(cuts)])
    return along(np.concatenate(parts), axis=0).T.copy()


with reshape.application() as app:
    w = app.rows("w", (N, N), dtype=complex)
    if app.is_fresh_start:
        (own, *_) = w.layout.global_indices(app.comm.rank)
        w.local[:] = np.outer(np.sin(own), np.cos(np.arange(N)))
    for _ in app.iterations(30):
        comm = app.comm
        spectrum = transformed(comm, w.local, np.fft.fft)  # rows are wave numbers of columns
        first = Cuts.even((N,), comm.size).offsets[comm.rank]
        k = np.fft.fftfreq(N, 1 / N)
        squares = k[first : first + len(spectrum), None] ** 2 + k[None, :] ** 2
        w.local[:] = transformed(comm, spectrum * np.exp(-1e-3 * squares), np.fft.ifft)
    w.save("vorticity.npy")
