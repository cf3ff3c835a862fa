"""A plugin of CEMS Workbench: a format, a measure, a reranker, a retriever, a fusion method and a live source, a module each."""
