"""State of a decision core: queue, allocations, expected releases, reservations."""
