"""Overview of the store, its query sets and configs, and the parameters of a config."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

from pydantic import Field

from cems_workbench.builtin import default_preset, preset_names
from cems_workbench.config import FieldSpec, field_specs
from cems_workbench.errors import InputError
from cems_workbench.jobs.access import may
from cems_workbench.mcp.arguments import MOST_NAME, Changes, ConfigName, Limit, Offset
from cems_workbench.mcp.responses import TITLE, UNTRUSTED, Paged, Reply, cut, page
from cems_workbench.mcp.served_store import MAX_NAMES, ServedStore

MAX_PROJECTS = 20
SECTION_HINT = "Name a section, such as the stage that dropped the memory, or words."


class QuerySetRow(Reply):
    """A query set: its number of queries, and how many of them are judged."""

    name: str
    queries: int
    judged: int


class ProjectRow(Reply):
    """A project and its number of memories; no name for memories without a project."""

    project: str | None
    memories: int


class Overview(Reply):
    """The served store, and the names that other tools accept."""

    memories: int
    query_sets: tuple[QuerySetRow, ...] = ()
    default_config: str
    presets: tuple[str, ...] = ()
    kept_configs: tuple[str, ...] = ()
    more_kept_configs: int | None = None
    labels: str
    untrusted: tuple[ProjectRow, ...] = ()
    more_projects: int | None = None
    notes: tuple[str, ...] = ()
    untrusted_note: str = UNTRUSTED


class ParameterRow(Reply):
    """A parameter of the pipeline: its value, the allowed values, and whether a change needs a new gather."""

    path: str
    value: Any
    allowed: str
    gathers: bool
    help: str


class Parameters(Paged):
    """Parameters of a config; or its sections, with their number of parameters."""

    config: str
    said: tuple[str, ...] = ()
    sections: dict[str, int] = Field(default_factory=dict)
    parameters: tuple[ParameterRow, ...] = ()


class OverviewTools:
    """`overview` and `parameters` of a served store."""

    def __init__(self, served: ServedStore) -> None:
        self._served = served

    def overview(self) -> Overview:
        """What the store holds, and the names that other tools accept: query sets, presets, saved configs, projects."""
        served = self._served
        store = served.resources.store
        judged = {row.qid for row in store.judgments.read()}
        sets = [
            QuerySetRow(
                name=known.name,
                queries=known.size,
                judged=sum(q.qid in judged or q.answerable is False for q in store.query_sets.queries(known.name)),
            )
            for known in store.query_sets.latest()
        ]
        projects, kept = store.memories.projects(), served.kept_configs()
        rows = [
            ProjectRow(project=name and cut(name, TITLE), memories=count) for name, count in projects[:MAX_PROJECTS]
        ]
        writes = may(served.role, "reviewer")
        return Overview(
            memories=store.memories.count(),
            query_sets=sets,
            default_config=default_preset(served.settings.preset)[0],
            presets=list(preset_names()),
            kept_configs=kept[:MAX_NAMES],
            more_kept_configs=len(kept) - MAX_NAMES if len(kept) > MAX_NAMES else None,
            labels=f"label saves a model's grades under the name {served.judge}"
            if writes
            else "read-only: the server was started without --write",
            untrusted=rows,
            more_projects=len(projects) - MAX_PROJECTS if len(projects) > MAX_PROJECTS else None,
            notes=[line for line in (*served.resources.notices, served.resources.behind) if line],
        )

    def parameters(
        self,
        section: Annotated[
            str,
            Field(
                max_length=MOST_NAME,
                description="A stage, such as fusion or rerank; without section and words: a list of the sections.",
            ),
        ] = "",
        words: Annotated[
            str, Field(max_length=MOST_NAME, description="Only parameters whose name or help contains these words.")
        ] = "",
        config: ConfigName = "",
        changes: Changes = None,
        limit: Limit = 30,
        offset: Offset = 0,
    ) -> Parameters:
        """The parameters for `changes`: value, allowed values and meaning of each."""
        chosen = self._served.config(config, changes)
        sections = Counter(spec.section for spec in field_specs())
        if section and section not in sections:
            raise InputError(f"section: there is no section {section[:80]!r}; there are {', '.join(sections)}")
        wanted = words.lower().split()
        found = [
            spec
            for spec in field_specs()
            if section in ("", spec.section) and all(word in _words(spec) for word in wanted)
        ]
        if not section and not wanted:
            return Parameters(config=chosen.name, sections=dict(sections), said=[SECTION_HINT], total=len(found))
        rows, counts = page(found, offset, limit)
        return Parameters(
            config=chosen.name,
            parameters=[
                ParameterRow(
                    path=spec.path,
                    value=chosen.get(spec.path),
                    allowed=spec.range_text,
                    gathers=spec.cost == "gather",
                    help=spec.help,
                )
                for spec in rows
            ],
            **counts,
        )


def _words(spec: FieldSpec) -> str:
    """The text that `words` are matched against."""
    return f"{spec.path} {spec.label} {spec.help}".lower()
