"""Environments: three of our own that step many instances at once, and adapters for what people have."""
