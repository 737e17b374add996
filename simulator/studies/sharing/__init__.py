"""Shared nodes: tables 6.1 to 6.4 of GUIM, and runs for those of chapter 7."""
