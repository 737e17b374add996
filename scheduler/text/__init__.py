"""Text: tables, times, counts, and data that knows its place in a file."""
