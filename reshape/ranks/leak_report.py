"""A fault of MPICH 5.0 by which a rank may crash in MPI_Finalize, and how it is avoided.

`MPI_Comm_connect` sends a first message to the world that accepts. If the connection takes a
moment, as one over TCP to another host does, MPICH gives the request of this message back to UCX in
its callback, and once more when it has waited for it. The second time UCX takes the next free
request for the pool of requests, and loses it. At the end it reports a request that is missing in
the pool, and describes its operation. This one may never have had an operation: then its memory has
contents of earlier data of the process, in which UCX follows an address. It does so even if it
prints no warnings.

Without the function that describes a request, the report is without a description.
"""

from __future__ import annotations

import ctypes
import os

#: Release of UCX of which the table of functions of a pool is known, and that it can be written: of
#: chunks, allocate and release; of objects, initialize, clean up and describe.
_KNOWN = (1, 20)
_TABLE = 5 * ctypes.c_void_p
_DESCRIBE = 4


def omit_descriptions() -> None:
    """Let UCX not describe requests that are missing at its end, once MPI is initialized.

    Nothing is changed if MPI is without UCX or with another release of it, or if the table is
    another one.
    """
    try:
        ucx = ctypes.CDLL("libucp.so.0", os.RTLD_NOLOAD | os.RTLD_NOW)
        table = _TABLE.in_dll(ucx, "ucp_request_mpool_ops")
        of_chunks = ucx.ucs_mpool_hugetlb_malloc, ucx.ucs_mpool_hugetlb_free
        release = [ctypes.c_uint() for _ in range(3)]
        ucx.ucp_get_version(*map(ctypes.byref, release))
    except (OSError, ValueError, AttributeError):
        return
    addresses = [ctypes.cast(each, ctypes.c_void_p).value for each in of_chunks]
    is_known = (release[0].value, release[1].value) == _KNOWN
    if is_known and list(table)[: len(addresses)] == addresses:
        table[_DESCRIBE] = None
