"""Commands that act on many jobs of one service in a single call."""
