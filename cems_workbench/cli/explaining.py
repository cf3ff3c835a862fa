"""`why`: the stage that lost a memory, and the smallest changes that bring it back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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
from cems_workbench.cli.searching import parse_moment
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
    project: Annotated[str | None, typer.Option("--project", help="The query's project, org/repo.")] = None,
    only_project: Annotated[bool, typer.Option("--only-project", help="Search that project's memories only.")] = False,
    as_of: Annotated[
        str | None, typer.Option("--as-of", help="Moment ages are counted from, ISO 8601 (default: now).")
    ] = None,
    expand: Annotated[list[str] | None, typer.Option("--expand", help="A further query variant; repeatable.")] = None,
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
    moment = parse_moment(as_of)
    from cems_workbench.cli.explained import print_why
    from cems_workbench.config import with_values
    from cems_workbench.pipeline import read_bundle
    from cems_workbench.pipeline.gather import Request
    from cems_workbench.resources import open_resources
    from cems_workbench.why import explain, require_known

    if only_project and not project:
        raise InputError("--only-project needs a --project")
    if expand and chosen.expansion.backend == "none":
        chosen = with_values(chosen, {"expansion.backend": "manual"})
    if evidence is not None:
        if labelled:
            raise InputError("--labelled needs the store; leave --evidence out")
        bundle = _of(query, read_bundle(evidence), evidence)
        require_known(memory_id, bundle.memories)
        with progress_bar(as_json) as progress:
            found = explain(memory_id, bundle, chosen, k=k, progress=progress)
    else:
        request = Request(query, project, moment, only_project, tuple(expand or ()))
        with progress_bar(as_json) as progress:
            resources = open_resources(settings_for(store), create=False)
            try:
                if not resources.store.count():
                    raise StoreError(f"the store {resources.store.path} is empty; import something first")
                require_known(memory_id, resources.store.memories())
                gathered, judged = _gathered(request, chosen, resources, labelled, progress)
                found = explain(
                    memory_id, gathered, chosen, k=k, request=request, resources=resources, labelled=judged,
                    progress=progress,
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
    request: Request, config: PipelineConfig, resources: Resources, labelled: bool, progress: Progress
) -> tuple[Evidence, LabelledSet | None]:
    """The query's evidence, and that of the judged queries when they are to be measured. No judge is asked."""
    from cems_workbench.pipeline.gather import Request, gather_lists
    from cems_workbench.pipeline.rescoring import score_missing
    from cems_workbench.why import LabelledSet

    def evidence_of(request: Request) -> Evidence:
        return score_missing(gather_lists(request, config, resources), config, resources)

    own = evidence_of(request)
    if not labelled:
        return own, None
    grades: dict[str, dict[str, int]] = {}
    for judgment in resources.store.judgments():
        grades.setdefault(judgment.qid, {})[judgment.memory_id] = judgment.grade
    queries = [query for query in resources.store.queries() if query.qid in grades]
    evidences = {}
    for i, query in enumerate(queries):
        progress("gathering the judged queries", i, len(queries))
        evidences[query.qid] = evidence_of(Request(query.query, query.project, query.as_of))
    progress("gathering the judged queries", len(queries), len(queries))
    return own, LabelledSet(evidences, grades)
