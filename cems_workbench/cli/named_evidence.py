"""What a command measures on: an evidence file, or a query set of the store by its name, which is gathered first where it has to be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cems_workbench.cli.options import progress_bar, read_evidence, settings_for
from cems_workbench.cli.terminal import say
from cems_workbench.errors import InputError

if TYPE_CHECKING:
    from cems_workbench.config import PipelineConfig
    from cems_workbench.evaluation.evidence_file import Header
    from cems_workbench.jobs.evaluation import LabelledEvidence

NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="EVIDENCE|QUERY_SET",
        help="An evidence file, or a query set of the store (or “all”) to gather first.",
    ),
]
NamesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="EVIDENCE...|QUERY_SET",
        help="Evidence files of one query set, or a query set of the store to gather first.",
    ),
]


def evidence_files(names: Sequence[str], gathering: bool = False) -> list[Path] | None:
    """The names as evidence files; None for one name that is none, which then is that of a query set.

    Raises InputError if one of several is no evidence file, and for a file together with options of `gathering`.
    """
    from cems_workbench.evaluation.evidence_file import is_evidence_file
    from cems_workbench.jobs.query_set_evidence import SUFFIX

    paths = [Path(name) for name in names]
    # A missing or damaged file is named as such, and not as a query set that the store lacks.
    are_files = [is_evidence_file(path) or path.suffix == SUFFIX for path in paths]
    if any(are_files) and gathering:
        raise InputError("--per-query-project and --limit are for gathering; the evidence file is gathered already")
    if len(paths) > 1 and not all(are_files):
        raise InputError(f"{paths[are_files.index(False)]}: of several names each has to be an evidence file")
    return paths if all(are_files) else None


def labelled_evidence(
    name: str,
    configs_of: Callable[[Header | None], Sequence[PipelineConfig]],
    judges: str | None,
    store: Path | None,
    quiet: bool,
    *,
    only_project: bool = False,
    judged: bool = True,
) -> tuple[dict[PipelineConfig, LabelledEvidence], int]:
    """The labelled evidence of each config, the same of a file or a separate one of a set, in their order; and the lowest relevant grade.

    `configs_of` is given the header of a file or of recorded stages, None for a set of the store; without `judged` a set has its queries
    without a judgment too. Raises InputError for a name that is neither, StoreError without a store.
    """
    from cems_workbench.jobs.evaluation import labelled_file
    from cems_workbench.jobs.traced_sets import traced_header

    if evidence_files([name], gathering=only_project) is not None:
        read = read_evidence(Path(name))
        of_file = labelled_file(read, judges)
        return dict.fromkeys(configs_of(read.header), of_file), read.header.relevant_from
    configs = configs_of(traced_header(settings_for(store).store, name))
    with gathered_evidence(name, judges, only_project, (None, 0), store, quiet, judged=judged) as (source, least):
        return {config: source(config) for config in configs}, least


@contextmanager
def gathered_evidence(
    name: str,
    judges: str | None,
    only_project: bool,
    drawing: tuple[int | None, int],
    store: Path | None,
    quiet: bool,
    *,
    judged: bool = True,
) -> Iterator[tuple[Callable[[PipelineConfig], LabelledEvidence], int]]:
    """The labelled evidence of a query set of the store, by config, and the set's lowest relevant grade.

    Uses cached evidence, or gathers and caches it.
    """
    from cems_workbench.jobs.caching import RecentCache
    from cems_workbench.jobs.evaluation import agreed, labelled
    from cems_workbench.jobs.factory import open_resources
    from cems_workbench.jobs.query_set_evidence import QuerySelection, ensure_evidence, queries_named, sample_queries

    begun = datetime.now(UTC)
    cache = RecentCache(size=2)  # consecutive configs often need the same evidence
    with closing(open_resources(settings_for(store), create=False)) as resources:
        queries, judgments = queries_named(name, resources, judged)
        selection = QuerySelection(name, tuple(sample_queries(queries, *drawing)), only_project)
        if selection.without_project:
            say(f"note: {selection.without_project}", err=True)
        grades = agreed(judgments, judges)

        def source(config: PipelineConfig) -> LabelledEvidence:
            with progress_bar(quiet) as progress:
                evidence = ensure_evidence(config, selection, judgments, resources, progress, cache, begun)
            return labelled(evidence, grades, cache, timed=False)

        yield source, resources.store.query_sets.relevant_from(name)
