"""What can be worked out about one query from its trace and from replays; each file is one question."""
