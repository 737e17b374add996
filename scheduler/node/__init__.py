"""The agent of a node and the processes it starts."""
