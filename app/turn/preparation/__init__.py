"""Stage 3: twelve phases, one file each, that turn an input into a `PreparedTurn`."""
