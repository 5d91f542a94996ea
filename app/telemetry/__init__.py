"""How well turns do, over all processes."""
