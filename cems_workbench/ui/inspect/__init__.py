"""The Inspect page."""
