"""The agent of a node, its folders and files, and the groups that it starts."""
