"""How the processes of a group start, and how they end."""
