"""The evidence of a query set, gathered or read from a file; what a config returns differently on two; a config for PyTerrier."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cems_workbench.api.open_store import load_config, warn
from cems_workbench.errors import InputError, counted, nearest
from cems_workbench.progress import Progress, silent
from cems_workbench.results import Result, Table

if TYPE_CHECKING:
    import pandas as pd

    from cems_workbench.analysis.drift import DriftReport
    from cems_workbench.api.open_store import ConfigLike, OpenStore
    from cems_workbench.config import PipelineConfig
    from cems_workbench.evaluation.evidence_file import EvidenceSet
    from cems_workbench.jobs.evaluation import LabelledEvidence
    from cems_workbench.pipeline import Evidence
    from cems_workbench.records import Judgment


JUDGES = (None, "human", "model")


def _batches() -> Callable[[Hashable, Callable[[], LabelledEvidence]], LabelledEvidence]:
    from cems_workbench.jobs.factory import RecentCache

    return RecentCache(size=2)


@dataclass(frozen=True, eq=False, repr=False)
class LoadedEvidence(Result):
    """What replay needs of every query of a set, with the judgments that results are measured by.

    Attributes:
        evidence: the evidence file.
        judgments: of the queries, of every kind of judge: those of the store where it was gathered here, else those of the file.
        relevant_from: the lowest grade that counts as relevant, as the query set says.
    """

    evidence: EvidenceSet
    judgments: tuple[Judgment, ...]
    relevant_from: int
    _made: Callable[[Hashable, Callable[[], LabelledEvidence]], LabelledEvidence] = field(default_factory=_batches)

    @property
    def path(self) -> Path:
        """The file."""
        return self.evidence.path

    @property
    def config(self) -> PipelineConfig:
        """The config that it was gathered with."""
        return self.evidence.header.config

    @property
    def qids(self) -> tuple[str, ...]:
        """The ids of the queries that were gathered."""
        return tuple(query.qid for query in self.evidence.queries if query.qid in self.evidence.evidences)

    @property
    def content_hash(self) -> str:
        """The hash, in hex, of all that moves a figure: evidence, judgments, relevance grade and config."""
        return self.labelled().content_hash

    def of(self, qid: str) -> Evidence:
        """The evidence of one query, for `replay`. Raises InputError where there is none, naming the nearest id."""
        if (found := self.evidence.evidences.get(qid)) is None:
            close = nearest(qid, self.evidence.evidences)
            raise InputError(f"{qid}: {self.path} has no such query" + (f"; did you mean {close}?" if close else ""))
        return found

    def labelled(self, judges: str | None = None) -> LabelledEvidence:
        """The evidence with the grades of `human` or `model` judges; with None of people before models.

        Raises InputError if `judges` is none of these.
        """
        from cems_workbench.jobs.evaluation import agreed, labelled

        if judges not in JUDGES:
            raise InputError(f"judges {judges}: expected human or model")
        return self._made(judges, lambda: labelled(self.evidence, agreed(self.judgments, judges)))

    @property
    def title(self) -> str:
        """Where it is, what it is of and how many queries it has."""
        header = self.evidence.header
        return f"evidence of {counted(len(self.qids), 'queries')} of {header.query_set or 'a file'}, gathered with {self.config.name}"

    @property
    def tables(self) -> tuple[Table, ...]:
        """The queries, with the number of candidates and of judgments of each."""
        from cems_workbench.evaluation.grades import agreed_grades

        grades, rows = agreed_grades(self.judgments), []
        for query in self.evidence.queries:
            if (found := self.evidence.evidences.get(query.qid)) is not None:
                given = grades.get(query.qid, {}).values()
                counts = len(found.memories), len(given), sum(grade >= self.relevant_from for grade in given)
                rows.append((query.qid, query.query, query.type, query.project, *counts))
        return (Table(("qid", "query", "type", "project", "candidates", "judged", "relevant"), tuple(rows)),)

    @property
    def notes(self) -> tuple[str, ...]:
        """How many queries were left out, and who answered its lists."""
        missing = len(self.evidence.queries) - len(self.qids)
        left_out = f"not gathered: {counted(missing, 'queries')}" if missing else ""
        answered = f"lists {self.evidence.answered}" if self.evidence.answered else ""
        return tuple(line for line in (left_out, answered) if line)


def load_evidence(path: str | Path) -> LoadedEvidence:
    """Read an evidence file, that of `gather`; no store and no model is needed.

    Args:
        path: the file.

    Raises:
        InputError: it is not there, is no evidence file, or was changed since it was gathered.
    """
    from cems_workbench.evaluation.evidence_file import read_evidence_file

    found = read_evidence_file(Path(path))
    return LoadedEvidence(found, found.judgments, found.header.relevant_from)


def loaded(evidence: LoadedEvidence | str | Path) -> LoadedEvidence:
    """The evidence, read if it is a path. Raises InputError as `load_evidence`."""
    return evidence if isinstance(evidence, LoadedEvidence) else load_evidence(evidence)


def gather(
    store: OpenStore,
    query_set: str = "all",
    config: ConfigLike | None = None,
    *,
    out: str | Path | None = None,
    judged: bool = True,
    only_project: bool = False,
    limit: int | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> LoadedEvidence:
    """The evidence of a query set, gathered a query at a time, or taken from where it was gathered before.

    Args:
        store: an open store.
        query_set: the name of a set, `all`, or the path of a file with queries.
        config: whose gather parameters are used: a config, the name of a preset, or the path of a config file.
        out: the file to write; None is the store's evidence cache, shared with the app and the commands. A partial file is resumed.
        judged: only queries that have a judgment.
        only_project: for each query that names a project, search only that project.
        limit: size of a random sample of the queries.
        seed: seed of the sample.
        progress: called with a label, a count and a total; it may raise `Cancelled`; finished queries are kept.

    Raises:
        InputError: there are no such queries, or `out` is of another store, set or config.
        ModelError, StoreError: a model or the store cannot be used.

    Queries that cannot be searched are left out, each with a `WorkbenchWarning`.
    """
    from cems_workbench.evaluation.evidence_file import read_evidence_file
    from cems_workbench.jobs.query_set_evidence import ensure_evidence, gather_evidence, selected

    if limit is not None and limit < 1:
        raise InputError(f"limit {limit}: draw at least one query")
    chosen, resources = load_config(config), store.resources
    selection, judgments = selected(query_set, resources, judged, only_project, limit, seed)
    if out is None:
        found = ensure_evidence(chosen, selection, judgments, resources, progress)
    else:
        report = gather_evidence(chosen, selection, judgments, resources, progress, Path(out))
        for error in report.left_out:
            warn(f"left out: {error}")
        found = read_evidence_file(report.path)
    return LoadedEvidence(found, tuple(judgments), resources.store.query_sets.relevant_from(query_set))


def drift(
    before: LoadedEvidence | str | Path,
    after: LoadedEvidence | str | Path,
    config: ConfigLike | None = None,
    *,
    k: int = 10,
) -> DriftReport:
    """What a config returns differently on two evidence files, as the command `drift` does; no store, no model, no judgment.

    Args:
        before: what `gather` or `load_evidence` gave, or the path of an evidence file.
        after: that of the same queries, gathered later, from another snapshot of the store, or with another embedder.
        config: a config, the name of a preset, or the path of a config file; None is the config that `before` was gathered with.
        k: how many results of each query are compared.

    Raises:
        InputError: a file cannot be read, or they have no query in common.
    """
    from cems_workbench.analysis.drift import drift as drifted

    old, new = map(loaded, (before, after))
    chosen = old.config if config is None else load_config(config)
    return drifted(old.evidence, new.evidence, chosen, k)


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
        """Search every query, and give a row for each result: the columns of the query, and `RESULT_COLUMNS`.

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
            project, as_of = _value(row, "project"), _value(row, "as_of")
            found = search(self.store, str(row["query"]), self.config, project=project, as_of=as_of)
            for place, one in enumerate(found.trace.results):
                result = (one.memory_id, 1 / (place + 1), place, one.score, one.content)
                rows.append(row | dict(zip(RESULT_COLUMNS, result, strict=True)))
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
