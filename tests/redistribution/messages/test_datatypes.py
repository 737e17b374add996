"""Which messages MPI sends from an array, without a message buffer."""

import numpy as np
import pytest

from redistribution import BlockCyclic, Plan
from redistribution.copies.regions import array_region
from redistribution.messages.datatypes import send_from_array


@pytest.mark.parametrize("to_host", [False, True])
@pytest.mark.parametrize(("block", "ranges"), [(512, 1), (256, 2)])
def test_only_one_range_is_sent_to_another_host_directly(block, ranges, to_host):
    """From one process to two, by columns: it sends `ranges` blocks of columns to the second."""
    plan = Plan(*(BlockCyclic((1024, 1024), (1024, block), (1, p)) for p in (1, 2)))
    (sent,) = (transfer for transfer in plan.outgoing(0) if transfer.peer == 1)
    part = np.zeros(plan.source.local_shape(0), order="F")
    region = array_region(part, "source")
    arguments = send_from_array(sent, 8, region, "F", to_host)
    assert (arguments is None) == (to_host and ranges > 1), arguments
    if arguments is not None:
        arguments[2].Free()
