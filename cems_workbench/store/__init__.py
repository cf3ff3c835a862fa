"""The store: DuckDB is the source of truth; Chroma and the lexical index are derived from it and can be rebuilt.

`Store` is the entry point. Importing this package does not load DuckDB, Chroma or bm25s; they load when a store or an index is opened.
"""

from typing import TYPE_CHECKING

from cems_workbench.platform.start_up import lazy_names

if TYPE_CHECKING:
    from cems_workbench.store.caches import LearnedPair as LearnedPair
    from cems_workbench.store.chunks import ChunkStatistics as ChunkStatistics
    from cems_workbench.store.configs import ConfigRecord as ConfigRecord
    from cems_workbench.store.filter import ANY as ANY
    from cems_workbench.store.filter import Filter as Filter
    from cems_workbench.store.importing import ImportOptions as ImportOptions
    from cems_workbench.store.importing import ImportReport as ImportReport
    from cems_workbench.store.label_events import LabelEvent as LabelEvent
    from cems_workbench.store.labels import Decision as Decision
    from cems_workbench.store.memories import DeletedMemory as DeletedMemory
    from cems_workbench.store.memories import Facets as Facets
    from cems_workbench.store.memories import Page as Page
    from cems_workbench.store.query_sets import QuerySet as QuerySet
    from cems_workbench.store.queues import QueueRecord as QueueRecord
    from cems_workbench.store.rows import RowCounts as RowCounts
    from cems_workbench.store.search.indexes import Indexes as Indexes
    from cems_workbench.store.search.indexes import IndexState as IndexState
    from cems_workbench.store.search.indexes import RefreshReport as RefreshReport
    from cems_workbench.store.search.vocabulary import Vocabulary as Vocabulary
    from cems_workbench.store.statistics import Duplicates as Duplicates
    from cems_workbench.store.statistics import Selection as Selection
    from cems_workbench.store.statistics import Statistics as Statistics
    from cems_workbench.store.store import Store as Store
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
