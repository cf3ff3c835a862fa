"""Earlier name of `pipeline.retrievers`, for packages that import it; their entry-point group is reported as deprecated."""

from __future__ import annotations

from cems_workbench.pipeline.retrievers import Retriever as ListSearch
from cems_workbench.pipeline.retrievers import SearchRequest

__all__ = ["ListSearch", "SearchRequest"]
