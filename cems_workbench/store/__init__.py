"""The store: DuckDB is the source of truth; Chroma and the lexical index are derived from it and can be rebuilt.

`Store` is the entry point. Importing this package does not load DuckDB, Chroma or bm25s; they load when a store or an index is opened.
"""

from typing import TYPE_CHECKING

from cems_workbench.platform.start_up import lazy_names

if TYPE_CHECKING:
    from cems_workbench.store.caches import LearnedPair
    from cems_workbench.store.chunks import ChunkStatistics
    from cems_workbench.store.configs import ConfigRecord
    from cems_workbench.store.filter import ANY, Filter
    from cems_workbench.store.importing import ImportOptions, ImportReport
    from cems_workbench.store.label_events import LabelEvent
    from cems_workbench.store.labels import Decision
    from cems_workbench.store.memories import DeletedMemory, Facets, Page
    from cems_workbench.store.query_sets import QuerySet
    from cems_workbench.store.queues import QueueRecord
    from cems_workbench.store.rows import RowCounts
    from cems_workbench.store.search.indexes import Indexes, IndexState, RefreshReport
    from cems_workbench.store.search.vocabulary import Vocabulary
    from cems_workbench.store.statistics import Duplicates, Selection, Statistics
    from cems_workbench.store.store import Store
else:
    __getattr__ = lazy_names(
        __name__,
        {
            "chunks": "ChunkStatistics",
            "configs": "ConfigRecord",
            "caches": "LearnedPair",
            "labels": "Decision",
            "filter": "ANY Filter",
            "importing": "ImportOptions ImportReport",
            "label_events": "LabelEvent",
            "memories": "DeletedMemory Facets Page",
            "query_sets": "QuerySet",
            "queues": "QueueRecord",
            "rows": "RowCounts",
            "search.indexes": "Indexes IndexState RefreshReport",
            "search.vocabulary": "Vocabulary",
            "statistics": "Duplicates Selection Statistics",
            "store": "Store",
        },
    )

__all__ = [
    "ANY",
    "ChunkStatistics",
    "ConfigRecord",
    "Decision",
    "DeletedMemory",
    "Duplicates",
    "Facets",
    "Filter",
    "ImportOptions",
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
