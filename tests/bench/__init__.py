"""The benchmark: Fermata beside the limit and the parts it stands on, in one run. `make bench` runs it."""
