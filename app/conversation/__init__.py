"""What of a conversation is told to a model: limits, summaries, the token budget, the form that servers take."""
