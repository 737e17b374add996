"""Points of the Mandelbrot set, one column of the picture in an iteration."""

import numpy as np

import reshape

with reshape.application() as app:
    picture = app.rows("picture", (20, 32), dtype=np.int32)
    for column in app.iterations(32):
        (own, *_) = picture.layout.global_indices(app.comm.rank)
        c = -2 + 3 * column / 32 + 1j * (own / 10 - 1)
        z, count = np.zeros(len(own), complex), np.zeros(len(own), np.int32)
        for _ in range(50):
            z = np.where(abs(z) < 2, z * z + c, z)
            count += abs(z) < 2
        picture.local[:, column] = count
    whole = picture.gather()
    if whole is not None:
        print("\n".join("".join(" .:*#"[min(n // 12, 4)] for n in row) for row in whole))
