"""The journal of a service: written, recovered from, explained, replayed."""
