"""Helpers for what every layer needs of the operating system and of input: locks, timeouts, atomic writes, size limits."""
