"""The decision core: ordered events in, orders with reasons out; no clock, no I/O, no threads."""
