"""One file per stage of the pipeline."""
