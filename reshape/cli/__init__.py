"""Shared parts of the command line: lazy loading, option types, help texts."""
