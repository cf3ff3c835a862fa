"""A config as a PyTerrier transformer, usable in its pipelines and experiments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cems_workbench.api.open_store import load_config
from cems_workbench.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from cems_workbench.api.open_store import ConfigLike, OpenStore
    from cems_workbench.config import PipelineConfig

RESULT_COLUMNS = ("docno", "score", "rank", "pipeline_score", "text")
"""The columns that are added to those of the queries."""


@dataclass(frozen=True, eq=False, repr=False)
class SearchTransformer:
    """A config over a store, as a stage that takes data frames of queries: `qid` and `query`, and what else there is.

    Attributes:
        store: the open store that is searched.
        config: the config that ranks.
    """

    store: OpenStore
    config: PipelineConfig

    def transform(self, queries: pd.DataFrame) -> pd.DataFrame:
        """Search every query, and give a row for each result: the columns of the query, and those of `RESULTS`.

        `score` is 1/(rank + 1), since PyTerrier sorts by it, and `rank` counts from 0; `pipeline_score` is the
        score that the last stage gave. Where `project` and `as_of` are columns, they are the query's. A query without results has no row.

        Raises:
            InputError: `qid` or `query` is not among the columns, or a query is empty.
        """
        import pandas as pd

        from cems_workbench.api.single_query import search
        from cems_workbench.jobs.query_set_evidence import EMBED_BATCH_SIZE, embed_queries

        missing = [name for name in ("qid", "query") if name not in queries.columns]
        if missing:
            raise InputError(f"expected the columns qid and query; {' and '.join(missing)} missing")
        kept = [name for name in queries.columns if name not in RESULT_COLUMNS]
        asked = queries[kept].drop_duplicates("qid")
        rows: list[dict[str, Any]] = []
        for i, values in enumerate(asked.to_dict("records")):
            row = {str(name): value for name, value in values.items()}
            if i % EMBED_BATCH_SIZE == 0:
                embed_queries(asked["query"].iloc[i : i + EMBED_BATCH_SIZE].astype(str).tolist(), self.store.resources)
            found = search(
                self.store, str(row["query"]), self.config, project=_value(row, "project"), as_of=_value(row, "as_of")
            )
            rows += [
                {
                    **row,
                    "docno": one.memory_id,
                    "score": 1 / rank,
                    "rank": rank - 1,
                    "pipeline_score": one.score,
                    "text": one.content,
                }
                for rank, one in enumerate(found.trace.results, 1)
            ]
        kinds = {"score": float, "rank": int, "pipeline_score": float}
        return pd.DataFrame(rows, columns=[*kept, *RESULT_COLUMNS]).astype(kinds)

    def __repr__(self) -> str:
        """Which config over which store."""
        return f"{type(self).__name__}({self.config.name!r}, {str(self.store.path)!r})"


def _value(row: dict[str, Any], name: str) -> Any:
    """A value of a row; None where it is missing, which a data frame says in several ways."""
    import pandas as pd

    value = row.get(name)
    if value is None or pd.isna(value):
        return None
    return value.to_pydatetime() if isinstance(value, pd.Timestamp) else value


class _CallableTransformer(SearchTransformer):
    """Where PyTerrier is not installed: it can be called as there, and has none of its operators."""

    def __call__(self, queries: pd.DataFrame) -> pd.DataFrame:
        """As `transform`."""
        return self.transform(queries)


def as_transformer(store: OpenStore, config: ConfigLike | None = None) -> SearchTransformer:
    """A config over a store as a transformer of PyTerrier, with its operators (`>>`, `%`, `+` …) where that is installed.

    Args:
        store: an open store; it has to stay open as long as the transformer is used.
        config: a config, the name of a preset, or the path of a config file; None is the default preset.

    Returns:
        A `pyterrier.Transformer` where PyTerrier can be imported, else an object with the same `transform` and call.

    Raises:
        InputError: the config cannot be read.
    """
    chosen = load_config(config)
    try:
        import pyterrier
    except ImportError:
        return _CallableTransformer(store, chosen)
    kind: type[SearchTransformer] = type("WorkbenchTransformer", (SearchTransformer, pyterrier.Transformer), {})
    return kind(store, chosen)
