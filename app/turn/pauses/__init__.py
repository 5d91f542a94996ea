"""Between turns: when a turn stops for its host, what is kept, and how calls are answered."""
