"""`why`: the stage that lost a memory, and the smallest changes that bring it back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cems_workbench.cli.asking import (
    AsOfOption,
    ExpandOption,
    OffOption,
    OnlyProjectOption,
    ProjectOption,
    asked,
    require_variants,
)
from cems_workbench.cli.options import (
    ConfigOption,
    JsonOption,
    PresetOption,
    SetOption,
    StoreOption,
    chosen_config,
    print_json,
    progress_bar,
    settings_for,
)
from cems_workbench.errors import InputError, StoreError

if TYPE_CHECKING:
    from cems_workbench.config import PipelineConfig
    from cems_workbench.pipeline import Evidence
    from cems_workbench.pipeline.gather import Request
    from cems_workbench.pipeline.resources import Resources
    from cems_workbench.progress import Progress
    from cems_workbench.why import LabelledSet


def why_command(
    query: Annotated[str, typer.Argument(help="What was looked for.")],
    memory_id: Annotated[str, typer.Argument(metavar="MEMORY_ID", help="The memory that is missing.")],
    preset: PresetOption = None,
    config: ConfigOption = None,
    changes: SetOption = None,
    k: Annotated[
        int | None,
        typer.Option("--k", min=1, help="It should be among the first K results (default: the result limit)."),
    ] = None,
    project: ProjectOption = None,
    only_project: OnlyProjectOption = False,
    as_of: AsOfOption = None,
    expand: ExpandOption = None,
    off: OffOption = None,
    evidence: Annotated[
        Path | None,
        typer.Option(
            "--evidence", help="The query's evidence bundle, instead of the store: parameters only, no gathering."
        ),
    ] = None,
    labelled: Annotated[
        bool, typer.Option("--labelled", help="Order the changes by what they do to the store's judged queries.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say why a memory is not among the results, and which change would bring it there. Nothing is changed."""
    chosen = chosen_config(preset, config, changes)
    request, chosen = asked(query, project, only_project, as_of, expand, chosen)
    from cems_workbench.cli.explained import print_why
    from cems_workbench.pipeline import read_bundle
    from cems_workbench.resources import open_resources
    from cems_workbench.why import explain, require_known

    if evidence is not None:
        if labelled:
            raise InputError("--labelled needs the store; leave --evidence out")
        bundle = _of(query, read_bundle(evidence), evidence)
        require_known(memory_id, bundle.memories)
        with progress_bar(as_json) as progress:
            left_out = require_variants(off, bundle)
            found = explain(memory_id, bundle, chosen, k=k, switched_off=left_out, progress=progress)
    else:
        with progress_bar(as_json) as progress:
            resources = open_resources(settings_for(store), create=False)
            try:
                if not resources.store.count():
                    raise StoreError(f"the store {resources.store.path} is empty; import something first")
                require_known(memory_id, resources.store.memories())
                gathered, judged, left_out = _gathered(request, chosen, resources, off, labelled, progress)
                found = explain(
                    memory_id, gathered, chosen, k=k, request=request, resources=resources, labelled=judged,
                    switched_off=left_out, progress=progress,
                )  # fmt: skip
            finally:
                resources.close()
    if as_json:
        print_json(found.to_json())
    else:
        print_why(found)


def _of(query: str, bundle: Evidence, path: Path) -> Evidence:
    if query.strip() != bundle.query:
        raise InputError(f"{path} holds the evidence of another query: {bundle.query}")
    return bundle


def _gathered(
    request: Request,
    config: PipelineConfig,
    resources: Resources,
    off: Sequence[int] | None,
    labelled: bool,
    progress: Progress,
) -> tuple[Evidence, LabelledSet | None, tuple[int, ...]]:
    """The query's evidence, that of the judged queries when they are to be measured, and the variants left out. No judge is asked."""
    from cems_workbench.evaluation.grades import agreed_grades
    from cems_workbench.pipeline.gather import Request, gather_lists
    from cems_workbench.pipeline.rescoring import score_missing
    from cems_workbench.why import LabelledSet

    lists = gather_lists(request, config, resources)
    left_out = require_variants(off, lists)
    own = score_missing(lists, config, resources, switched_off=left_out)
    if not labelled:
        return own, None, left_out
    grades = agreed_grades(resources.store.judgments(kind="human"))
    queries = [query for query in resources.store.queries() if query.qid in grades]
    evidences = {}
    for i, query in enumerate(queries):
        progress("gathering the judged queries", i, len(queries))
        found = gather_lists(Request(query.query, query.project, query.as_of), config, resources)
        evidences[query.qid] = score_missing(found, config, resources)
    progress("gathering the judged queries", len(queries), len(queries))
    return own, LabelledSet(evidences, grades), left_out
