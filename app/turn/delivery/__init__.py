"""Stage 5: GMI chunks become stream chunks. One emitter builds them, one function builds the final response."""
