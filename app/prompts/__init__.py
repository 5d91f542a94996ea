"""The prompt engine: what a turn knows becomes one system message and one block of data beside the input."""
