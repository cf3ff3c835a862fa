"""The audit of a store, its leaks, and the receipt of a deleted memory, of an open store: what command, page and MCP server show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cems_workbench.api.open_store import load_config
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress, silent
from cems_workbench.settings import settings_for
from workbench_audit.audit import NEAR, audit_store
from workbench_audit.audit import Audit as Audit
from workbench_audit.forgotten import Receipt as Receipt
from workbench_audit.forgotten import receipt_of
from workbench_audit.leaks import Leaks as Leaks
from workbench_audit.leaks import leaks_of
from workbench_transcripts.transcript import opened_transcript, transcript_version

if TYPE_CHECKING:
    from cems_workbench.api.open_store import ConfigLike, OpenStore


@contextmanager
def _transcript(resources: Resources) -> Iterator[Resources | None]:
    """The transcript of an open store; None without one."""
    if not transcript_version(resources.store.path):
        yield None
        return
    with opened_transcript(resources, settings_for(resources.store.path)) as turns:
        yield turns


def audit(
    store: OpenStore,
    query_set: str | None = None,
    config: ConfigLike | None = None,
    *,
    kinds: Sequence[str] = (),
    near: float = NEAR,
    progress: Progress = silent,
) -> Audit:
    """What a store holds that it should not, which judged queries it costs, and what removing it would do; nothing is changed.

    Args:
        store: an open store.
        query_set: the judged queries, a set of the store or `all`; None: all of them, where there are any.
        config: a config, the name of a preset, or the path of a config file.
        kinds: the kinds that are looked for, such as `near duplicate`; none for all.
        near: cosine from which memories are near duplicates, 0.5 to 1.
        progress: called with a label, a count and a total.

    Raises:
        InputError: there is no such kind, set or cosine.
    """
    with _transcript(store.resources) as turns:
        chosen = load_config(config)
        return audit_store(
            store.resources, chosen, query_set, kinds=kinds, near=near, transcript=turns, progress=progress
        )


def leak(
    store: OpenStore,
    query_set: str = "all",
    config: ConfigLike | None = None,
    *,
    by: str = "project",
    only_project: bool = False,
    progress: Progress = silent,
) -> Leaks:
    """Which memories cross when each judged query is asked as every other project or author, and what a filter after the cut loses.

    Args:
        store: an open store.
        query_set: a set of the store, or `all`.
        config: a config, the name of a preset, or the path of a config file.
        by: `project`, or `author`: a user or an agent.
        only_project: search within the project that a query is asked as.
        progress: called with a label, a count and a total.

    Raises:
        InputError: no query is judged, or the store has memories of fewer than two projects or authors.
    """
    chosen = load_config(config)
    return leaks_of(store.resources, chosen, query_set, by=by, only_project=only_project, progress=progress)


def forgotten(
    store: OpenStore,
    memory_id: str,
    text: str | None = None,
    config: ConfigLike | None = None,
    *,
    progress: Progress = silent,
) -> Receipt:
    """Whether a deleted memory is gone: every place that was searched, and what still holds its text or says the same.

    Args:
        store: an open store.
        memory_id: the memory.
        text: what it said, where the store has no row of it any more.
        config: whose lists are searched.
        progress: called with a label, a count and a total.

    Raises:
        InputError: no row has its text and none was passed, or it is empty.
    """
    with _transcript(store.resources) as turns:
        chosen = load_config(config)
        return receipt_of(memory_id, store.resources, chosen, text=text, transcript=turns, progress=progress)
