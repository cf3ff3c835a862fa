"""The sections of the pipeline config."""
