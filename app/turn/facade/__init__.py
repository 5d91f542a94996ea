"""Stage 1: the public face of the runtime. Starts operations, judges and publishes what they say, answers queries."""
