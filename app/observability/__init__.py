"""What an operator sees of the service: its logs and its counts."""
