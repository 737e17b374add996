"""Thresholds between methods of copying and sending; all were measured, none changes a result."""

from __future__ import annotations

import msgspec


class Tuning(msgspec.Struct):
    """Thresholds of `redistribution.copies` and `redistribution.messages`.

    The ranks of a communicator may differ in all of them except ``piece_bytes`` and
    ``mailbox_bytes``.

    Attributes
    ----------
    use_kernel : whether copies use the compiled kernel, if there is one, or NumPy alone.
    kernel_run_bytes : runs that are shorter on average are copied by NumPy, whose loops over
        single elements are faster.
    streamed_bytes : arrays from this size on are written past the caches, because no part of them
        would still be in a cache when it is read. Messages are not: MPI reads them soon. Arrays and
        messages from this size on are prefetched.
    streamed_run_bytes : shorter runs on average are written past the caches only if they are whole
        lines.
    fused_run_bytes : NumPy copies contiguous runs up to this size as one opaque element, which is
        up to four times as fast as a short inner loop and never slower.
    pooled_buffer_bytes : buffers up to this size come from the allocator, which keeps them itself;
        larger ones come from the pool.
    pool_bytes : most memory in the pool that is not in use.
    sent_range_bytes, received_range_bytes : MPI takes a message out of the source array, or puts it
        into the target array, if its contiguous ranges have at least this many bytes on average.
    sent_ranges : most ranges of different distances in a message that MPI sends from the array.
    piece_bytes : transfers up to this size travel in one message. On a busy node messages of 4 MB
        are slower because of the waits between ranks, and messages of 32 MB are not faster.
    mailbox_bytes : bytes of each of the two mailboxes of a rank. A communicator keeps the boxes of
        its first use.
    mailed_bytes : moves in which a rank sends more than this are made by messages, even if there
        are mailboxes, if MPI copies them out of the arrays.
    small_move_bytes : if all messages of a rank have at most this many bytes, each has a buffer of
        its own, without mailboxes.
    """

    use_kernel: bool = True
    kernel_run_bytes: int = 16
    streamed_bytes: int = 1 << 21
    streamed_run_bytes: int = 512
    fused_run_bytes: int = 4096
    pooled_buffer_bytes: int = 1 << 17
    pool_bytes: int = 1 << 25
    sent_range_bytes: int = 1 << 16
    received_range_bytes: int = 1 << 11
    sent_ranges: int = 16
    piece_bytes: int = 1 << 23
    mailbox_bytes: int = 1 << 23
    mailed_bytes: int = 1 << 21
    small_move_bytes: int = 1 << 22


# The thresholds in use in this process.
tuning = Tuning()
