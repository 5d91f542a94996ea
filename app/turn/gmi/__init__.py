"""Stage 4: the GMI. A persona's model steps, its own tool rounds, and the point where it stops for the host."""
