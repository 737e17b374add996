"""Resize points and the resize transaction, on the side of the application."""
