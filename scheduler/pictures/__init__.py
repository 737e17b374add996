"""Style and helpers that all pictures share."""
