"""Stage 4: the GMI. A persona's steps with its model, its own tool rounds, and the point where it stops for the host."""
