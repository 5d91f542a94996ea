"""What an operator sees of the service: its logs."""
