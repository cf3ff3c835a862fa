"""The written forms of a config."""
