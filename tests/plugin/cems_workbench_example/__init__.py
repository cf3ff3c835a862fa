"""A plugin of CEMS Workbench: a format, a measure, a reranker and a retriever, a module each."""
