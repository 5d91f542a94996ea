"""Bodies as they come and go. Input refuses what it does not know; output has no defaults, so no field is missing."""
