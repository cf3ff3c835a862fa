"""The tables of `workbench.duckdb`: numbered .sql files, and the module that applies them."""
