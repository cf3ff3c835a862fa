"""The Python API: the names of `from cems_workbench import …`, over the functions that pages and commands call.

    open_store, load_config, save_config    what is asked, and with which config       open_store
    search, replay, why                     one query                                  single_query
    memory_use, what_if, supersessions      memories                                   memories
    what_if_vectors                         another embedder or chunk rule             memories
    blame                                   what an agent said, back to its memories   memories
    gather, load_evidence, drift            the evidence of a query set                evidence
    as_transformer                          a config as a stage of PyTerrier           evidence
    evaluate, compare, check                configs measured on it                     measures
    compare_stores                          two states of a memory                     measures
    tune                                    a better config searched                   tuning

Every result is frozen, prints as a table, has `to_pandas()` and shows itself in a notebook (`results`). What a user can mend is a
`WorkbenchError` of one line; what a command says on stderr is a `WorkbenchWarning`. docs/start/python.md is the reference.
"""
