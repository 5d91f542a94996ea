"""Stage 1: the public face of the runtime. It starts operations, judges and publishes what they say, and answers queries."""
