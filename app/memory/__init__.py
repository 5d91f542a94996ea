"""What is known beside the conversation: documents that can be searched, and what was remembered of earlier ones."""
