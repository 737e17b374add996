"""Conjugate gradients for the Laplacian of a rod, on a Cartesian grid that each iteration makes."""

import numpy as np

import reshape


def laplacian(cart, p):
    """Apply the operator; the ends are fixed."""
    left, right = cart.Shift(0, 1)
    before, after = np.zeros(1), np.zeros(1)
    cart.Sendrecv(p[-1:].copy(), right, 0, before, left, 0)
    cart.Sendrecv(p[:1].copy(), left, 1, after, right, 1)
    padded = np.concatenate([before, p, after])
    return 2 * p - padded[:-2] - padded[2:]


with reshape.application() as app:
    x, r, p = (app.rows(name, (60,)) for name in "xrp")
    if app.is_fresh_start:
        r.local[:] = p.local[:] = 1.0
        app.state["rr"] = 60.0
    for _ in app.iterations(20):
        cart = app.comm.Create_cart([app.comm.size])
        ap = laplacian(cart, p.local)
        alpha = app.state["rr"] / cart.allreduce(p.local @ ap)
        x.local[:] += alpha * p.local
        r.local[:] -= alpha * ap
        rr = cart.allreduce(r.local @ r.local)
        p.local[:] = r.local + rr / app.state["rr"] * p.local
        app.state["rr"] = rr
        cart.Free()
    x.save("x.npy")
