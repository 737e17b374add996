"""One simulation as a value: what it simulates, what it gives, and grids of such values."""
