"""Text for users: tables, times, counts, and values that carry their place in a file."""
