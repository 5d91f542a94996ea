"""Skills as folders: reading them in the open Agent Skills format."""
