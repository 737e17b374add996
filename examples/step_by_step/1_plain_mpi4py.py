"""Heat in a rod: a plain mpi4py program with a fixed number of processes."""

import numpy as np
from mpi4py import MPI

n, steps = 1000, 200
comm = MPI.COMM_WORLD
left = comm.rank - 1 if comm.rank > 0 else MPI.PROC_NULL
right = comm.rank + 1 if comm.rank < comm.size - 1 else MPI.PROC_NULL

where = np.arange(n * comm.rank // comm.size, n * (comm.rank + 1) // comm.size)
u = np.exp(-(((where - n / 2) / 20) ** 2))
hottest = []
if comm.rank == 0:
    print(f"a rod of {n} points")

for step in range(steps):
    if step % 50 == 0:
        hottest.append(comm.allreduce(u.max(), MPI.MAX))
    padded = np.pad(u, 1, mode="edge")  # no heat leaves at the ends
    comm.Sendrecv(u[:1], left, 0, padded[-1:], right, 0)
    comm.Sendrecv(u[-1:], right, 0, padded[:1], left, 0)
    u += 0.25 * (padded[:-2] - 2 * u + padded[2:])

heat = comm.allreduce(u.sum())
if comm.rank == 0:
    for i, value in enumerate(hottest):
        print(f"step {50 * i:3}: {value:.6f} at the hottest")
    print(f"step {steps}: heat {heat:.6f}")
