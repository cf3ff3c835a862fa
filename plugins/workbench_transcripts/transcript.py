"""The transcript of a store: its turns, as a store of their own in the folder `transcript`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from cems_workbench.errors import InputError, counted
from cems_workbench.jobs.factory import open_filled, open_resources
from cems_workbench.jobs.importing import Imported, import_inputs, import_options
from cems_workbench.jobs.traces import inputs_of
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress
from cems_workbench.records import ParsedInput, RowError
from cems_workbench.settings import Settings
from cems_workbench.store.database import FILE_NAME

FEW_NEAR = 0.02
"""The share of memories or turns that are near one of the other side, up to which a transcript fits none of the memories."""


def transcript_folder(store: Path) -> Path:
    """Where the transcript of a store is."""
    return store / "transcript"


def transcript_version(store: Path) -> int:
    """When the transcript of a store was last written, in nanoseconds; 0 without one."""
    file = transcript_folder(store) / FILE_NAME
    return file.stat().st_mtime_ns if file.exists() else 0


@contextmanager
def opened_transcript(beside: Resources, settings: Settings) -> Iterator[Resources]:
    """The turns of an open store, read with its loaded models. Raises InputError if it has none."""
    folder = transcript_folder(beside.store.path)
    if not folder.exists():
        raise InputError(f"{beside.store.path} has no transcript; `transcript FILE` imports one")
    with closing(open_filled(settings.model_copy(update={"store": folder}))) as turns:
        turns.take_models(beside)
        yield turns


UNFIT = "the transcript fits none of the memories"


def unfit(near: int, turns: int, resources: Resources, transcript: Resources) -> str:
    """The line on a transcript that fits no memory of a store: `near` of its turns have one that is near."""
    ours, theirs = resources.store.language.current, transcript.store.language.current
    why = f"its language is {theirs}, theirs {ours}" if ours != theirs else "other people, or another time?"
    return f"{UNFIT}, which are near {near:,} of {counted(turns, 'turns')}: {why}"


def import_transcript(
    path: Path, format: str, settings: Settings, progress: Progress
) -> tuple[Imported, Sequence[RowError], bool]:
    """Import the turns of a file, and its questions also as a query set of the store: what came, the questions that were left out of the
    set, and whether it has any. Raises InputError."""
    with closing(open_resources(settings)) as resources:  # first, as a folder with a transcript alone is no store
        return import_beside(path, format, resources, settings, progress)


def import_beside(
    path: Path, format: str, resources: Resources, settings: Settings, progress: Progress
) -> tuple[Imported, Sequence[RowError], bool]:
    """The same beside an open store."""
    inputs, options = inputs_of(path, format), import_options(path.stem)
    asked = [ParsedInput(one.source, one.format, queries=one.queries) for one in inputs if one.queries]
    left = [error for one in asked for error in resources.store.add(one, progress, options).errors]
    beside = settings.model_copy(update={"store": transcript_folder(resources.store.path)})
    with closing(open_resources(beside)) as turns:
        turns.take_models(resources)
        return import_inputs(path, inputs, turns, options, progress=progress), left, bool(asked)
