"""Formats of public benchmarks of memory: conversations with questions, and the folders that mteb loads."""
