"""The Label page."""
