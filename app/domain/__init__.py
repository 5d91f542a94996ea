"""Values and rules without I/O: what a turn is made of, and what may happen to a pause."""
