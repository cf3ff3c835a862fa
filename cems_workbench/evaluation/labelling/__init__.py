"""Labelling: queues, agreement, people against the judge."""
