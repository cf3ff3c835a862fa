"""The Memories page."""
