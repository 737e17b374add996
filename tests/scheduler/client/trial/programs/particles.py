"""Particles that move to the process of their cell."""

import reshape

with reshape.application() as app:
    particles = app.items("particles", [(k / 40, 0.01 + 0.001 * (k % 7)) for k in range(40)])
    for _ in app.iterations(40):
        size = app.comm.size
        gone = [[] for _ in range(size)]
        for x, v in particles.local:
            x = (x + v) % 1.0
            gone[int(x * size)].append((x, v))
        particles.local[:] = [p for part in app.comm.alltoall(gone) for p in part]
    parts = app.comm.gather(particles.local)
    if parts is not None:
        for x, v in sorted(p for part in parts for p in part):
            print(f"{x!r} {v!r}")
