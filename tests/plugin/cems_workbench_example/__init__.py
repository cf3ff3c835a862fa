"""A plugin of CEMS Workbench: a format, a measure, a reranker and a list source, a module each."""
