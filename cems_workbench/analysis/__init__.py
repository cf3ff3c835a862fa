"""Analyses of one query from its trace and from replays; one module per question."""
