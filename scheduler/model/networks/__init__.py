"""How nodes are connected: flat networks, trees, meshes and tori."""
