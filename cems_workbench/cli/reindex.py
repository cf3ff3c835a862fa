"""`reindex`: vectors of the store's memories from the configured embedder."""

from __future__ import annotations

from typing import Annotated

import typer

from cems_workbench.cli.next_command import first_search, say_next
from cems_workbench.cli.options import JsonOption, StoreOption, filled_resources, given_options, progress_bar
from cems_workbench.cli.terminal import put_json, say

GraphOption = Annotated[
    bool,
    typer.Option("--graph", help="Also make or refresh Chroma's graph, which `lists.vector.index: graph` searches."),
]


MismatchedOption = Annotated[
    bool,
    typer.Option(
        "--mismatched",
        help="Embed the memories whose vectors from a source are not of their texts, as connect and doctor name them.",
    ),
]


def reindex_command(
    memory_ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MEMORY_ID]...", help="Embed these memories instead of taking the vectors of their source."
        ),
    ] = None,
    store: StoreOption = None,
    mismatched: MismatchedOption = False,
    graph: GraphOption = False,
    as_json: JsonOption = False,
) -> None:
    """Re-embed with the configured model.

    Vectors of the previous model are kept so that you can switch back. Vectors of this model with another dimension are deleted.
    """
    from cems_workbench.analysis.why import require_stored
    from cems_workbench.jobs.embedder_match import mismatched_memories

    with progress_bar(as_json) as progress, filled_resources(store) as resources:
        for memory_id in memory_ids or ():
            require_stored(memory_id, resources.store)
        named = mismatched_memories(resources.store, resources.embedder, progress) if mismatched else []
        resources.store.sources.re_embed([*(memory_ids or ()), *named])
        report = resources.embed_anew(progress)
        if graph:
            resources.store.indexes.graph(resources.embedder, progress)
        told = resources.store.notices
        to_search = first_search(resources.store, given_options(store=store))
        embedder, total = resources.embedder.model_id, resources.store.memories.count()
    embedded = report.embedded if report else 0
    if as_json:
        put_json({"embedder": embedder, "memories_in_store": total, "embedded": embedded})
        return
    for note in report.notes if report else ():
        if note not in told:
            say(f"note: {note}")
    say(f"{total} memories in the store, {embedded} texts embedded now by {embedder}")
    say_next(to_search)
