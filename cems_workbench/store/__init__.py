"""The store: DuckDB is the source of truth, Chroma and the lexical index are derived from it and can be rebuilt.

`Store` is the way in. Importing this package loads neither DuckDB nor Chroma nor bm25s; they load when a store opens
or an index is asked for.
"""

from cems_workbench.store.browsing import DeletedMemory, Facets, Page, Selection
from cems_workbench.store.config_history import ConfigRecord
from cems_workbench.store.filter import ANY, Filter
from cems_workbench.store.learned_pairs import LearnedPair
from cems_workbench.store.reports import (
    Decision,
    Experiment,
    ImportReport,
    IndexState,
    LabelEvent,
    QuerySet,
    QueueRecord,
    RefreshReport,
    RowCounts,
)
from cems_workbench.store.search.indexes import Indexes
from cems_workbench.store.search.vocabulary import Vocabulary
from cems_workbench.store.statistics import Duplicates, Statistics
from cems_workbench.store.store import Store

__all__ = [
    "ANY",
    "ConfigRecord",
    "Decision",
    "DeletedMemory",
    "Duplicates",
    "Experiment",
    "Facets",
    "Filter",
    "ImportReport",
    "IndexState",
    "Indexes",
    "LabelEvent",
    "LearnedPair",
    "Page",
    "QuerySet",
    "QueueRecord",
    "RefreshReport",
    "RowCounts",
    "Selection",
    "Statistics",
    "Store",
    "Vocabulary",
]
