"""Study of LOC: contiguous allocations."""
