"""One query: searched, replayed under another config, and explained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from cems_workbench.api.configs import load_config
from cems_workbench.api.results import Result, Table, warn
from cems_workbench.errors import InputError
from cems_workbench.progress import Progress, silent

if TYPE_CHECKING:
    from cems_workbench.analysis.supersession import Staleness
    from cems_workbench.analysis.why import Why
    from cems_workbench.api.configs import ConfigLike
    from cems_workbench.api.open_store import OpenStore
    from cems_workbench.config import PipelineConfig
    from cems_workbench.pipeline import Evidence, Trace
    from cems_workbench.pipeline.gather import Request


@dataclass(frozen=True, eq=False, repr=False)
class Answer(Result):
    """What the pipeline returned for a query, and everything that it did on the way.

    Attributes:
        trace: what every stage did with every candidate.
        request: what was asked of a store; None where the evidence was read from a file.
        off: the query variants that were left out.
    """

    trace: Trace
    request: Request | None = None
    off: tuple[int, ...] = ()

    @property
    def query(self) -> str:
        """The query."""
        return self.trace.evidence.query

    @property
    def config(self) -> PipelineConfig:
        """The config that it was answered under."""
        return self.trace.config

    @property
    def evidence(self) -> Evidence:
        """All that replay needs to answer it under another config."""
        return self.trace.evidence

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the memories that were returned, best first."""
        return tuple(result.memory_id for result in self.trace.results)

    @property
    def stages(self) -> Table:
        """The stages with the candidates that went in and came out of each, and its milliseconds."""
        rows = tuple((s.name, s.candidates_in, s.candidates_out, s.elapsed_ms) for s in self.trace.stages)
        return Table(("stage", "in", "out", "ms"), rows, f"stages of {self.config.name}")

    def journey(self, memory_id: str) -> Table:
        """The way of one memory through the stages. Raises InputError where it is not among the candidates."""
        from cems_workbench.analysis.why import memory_path, require_known

        require_known(memory_id, self.evidence.memories)
        path = memory_path(self.trace, memory_id, max(len(self.trace.results), 1))
        rows = tuple((step.stage, step.rank_in, step.rank, step.score, step.words) for step in path.steps)
        return Table(("stage", "rank in", "rank", "score", "what happened"), rows, f"the way of {memory_id}")

    def side_by_side(self, grades: Mapping[str, int] | None = None, before: Answer | None = None) -> Table:
        """Every candidate with its rank and score in each list and after each stage that did something, and what they are made of.

        Results come first, then the candidates that a stage dropped, with the stage and why.

        Args:
            grades: by memory id, for a column of grades.
            before: another answer to the query; moves are from its ranks. None: from the ranks after fusion.
        """
        from cems_workbench.analysis.side_by_side import side_by_side

        table = side_by_side(self.trace, grades, None if before is None else before.trace)
        columns, rows = table.to_table()
        return Table(tuple(columns), tuple(map(tuple, rows)), f"{len(rows)} candidates side by side")

    @property
    def title(self) -> str:
        """How many results of which query under which config."""
        return f"{len(self.trace.results)} results of “{self.query}” under {self.config.name}"

    @property
    def tables(self) -> tuple[Table, ...]:
        """The results by rank."""
        stale = self.staleness
        rows = tuple(
            (
                one.rank,
                one.score,
                one.memory_id,
                stale[one.memory_id].words if one.memory_id in stale else None,
                one.project,
                one.title,
                one.content,
            )
            for one in self.trace.results
        )
        return (Table(("rank", "score", "memory", "out of date", "project", "title", "content"), rows),)

    @property
    def staleness(self) -> Mapping[str, Staleness]:
        """By id, how results are out of date: by which memory they are superseded and where that one is, or when they expired."""
        from cems_workbench.analysis.supersession import result_staleness

        return result_staleness(self.trace)

    @property
    def lines(self) -> tuple[str, ...]:
        """Why nothing was returned, where that is so; that the first result is superseded or has expired, where it is."""
        from cems_workbench.analysis.ranks import nothing_returned
        from cems_workbench.analysis.supersession import first_result_stale, first_result_words

        reason, first = nothing_returned(self.trace), first_result_stale(self.trace)
        if reason is not None:
            return (f"Nothing returned: {reason[1]}.",)
        return () if first is None else (first_result_words(first),)

    @property
    def notes(self) -> tuple[str, ...]:
        """The warnings of the stages, and what this config asks for that the evidence does not hold."""
        from cems_workbench.pipeline.stages.result import ScoreNeed

        needs = (
            f"{len(need.memory_ids)} scores of {need.model}" if isinstance(need, ScoreNeed) else need.parameter
            for need in self.trace.needs
        )
        said = [f"warning: {stage}: {text}" for stage, text in self.trace.warnings]
        return (*said, *(f"the evidence does not hold: {need}; search again with this config" for need in needs))

    def to_json(self) -> dict[str, Any]:
        """The whole trace as plain values, as `replay --json` prints it."""
        return self.trace.to_json()

    def save(self, path: str | Path, *, redact: bool = False) -> Path:
        """Write the evidence as a bundle, which `replay` reads on any machine.

        Args:
            path: the file to write.
            redact: leave the texts out; it replays with the same numbers.

        Raises:
            InputError: it cannot be written.
        """
        from cems_workbench.pipeline import write_bundle
        from cems_workbench.pipeline.redact import redacted

        write_bundle(redacted(self.evidence) if redact else self.evidence, Path(path))
        return Path(path)


def search(
    store: OpenStore,
    query: str,
    config: ConfigLike | None = None,
    *,
    project: str | None = None,
    only_project: bool = False,
    as_of: datetime | str | None = None,
    variants: Sequence[str] = (),
    searched: str | None = None,
    engine_queries: Mapping[str, str] | None = None,
    progress: Progress = silent,
) -> Answer:
    """Search the memories of a store, as the command `search` does.

    Args:
        store: an open store.
        query: what is looked for.
        config: a config, the name of a preset, or the path of a config file; None is the default preset.
        project: project of the query, org/repo; adjust.project of the config decides its effect.
        only_project: search only memories of that project.
        as_of: the moment of the query, a datetime or ISO 8601 text; None is now.
        variants: additional query variants to search.
        searched: a text to search instead of the query, as given, such as a recording of another system has; rerankers read the query.
        engine_queries: what a list searches instead, as given, by its name, such as {"lexical": "deploy rollback"}.
        progress: called with a label, a count and a total.

    Returns:
        The answer, with the evidence that `replay` and `why` work on.

    Raises:
        InputError: the query is empty, or an argument does not fit.
        ModelError, StoreError: a model or the store cannot be used.

    A project that no memory is of is a `WorkbenchWarning`; with `only_project` an InputError.
    """
    from cems_workbench.config import with_values
    from cems_workbench.pipeline.gather import Request, gather
    from cems_workbench.pipeline.replay import replay as replayed
    from cems_workbench.platform.parsing import parse_datetime

    chosen = load_config(config)
    if only_project and not project:
        raise InputError("only_project needs a project")
    if variants and chosen.expansion.backend == "none":
        chosen = with_values(chosen, {"expansion.backend": "manual"})
    problem = store.resources.store.memories.project_problem(project)
    if problem and only_project:
        raise InputError(f"project: {problem}")
    if problem:
        warn(f"project: {problem}")
    as_of = parse_datetime(as_of, "as_of") if isinstance(as_of, str) else as_of
    if as_of is not None and as_of.tzinfo is None:
        raise InputError(f"as_of {as_of.isoformat()}: a datetime needs a time zone, such as tzinfo=UTC")
    request = Request(query, project, as_of, only_project, tuple(variants), searched, dict(engine_queries or {}))
    evidence = gather(request, chosen, store.resources, progress)
    return Answer(replayed(evidence, chosen, clock=perf_counter), request)


def replay(
    evidence: Answer | Evidence | str | Path, config: ConfigLike | None = None, *, off: Sequence[int] = ()
) -> Answer:
    """Answer a query again under another config, from its evidence alone: no store, no model, about a millisecond.

    Args:
        evidence: an answer, the evidence of one query, or the path of a bundle.
        config: a config, the name of a preset, or the path of a config file; None is that of the answer, and for other evidence the
            default preset. An external trace has its recorded stages and takes none.
        off: query variants to leave out, 0 for the query itself.

    Returns:
        The answer; its notes name what the config asks for that the evidence does not hold.

    Raises:
        InputError: the bundle cannot be read, the config is not valid, or there is no such variant; or a config for an external trace.
    """
    from cems_workbench.jobs.traced_sets import NOT_REPLAYED
    from cems_workbench.jobs.traces import traced_config
    from cems_workbench.pipeline.bundle import read_bundle
    from cems_workbench.pipeline.replay import replay as replayed

    request = evidence.request if isinstance(evidence, Answer) else None
    if isinstance(evidence, Answer):
        found = evidence.evidence
    else:
        found = read_bundle(Path(evidence)) if isinstance(evidence, str | Path) else evidence
    if found.recorded is not None:
        if config is not None:
            raise InputError(f"this query {NOT_REPLAYED}; leave config out")
        chosen = traced_config()
    else:
        chosen = evidence.config if isinstance(evidence, Answer) and config is None else load_config(config)
    missing = sorted(number for number in off if not 0 <= number < len(found.variants))
    if missing:
        raise InputError(f"off {missing[0]}: there are {len(found.variants)} query variants, counted from 0")
    return Answer(replayed(found, chosen, switched_off=tuple(off), clock=perf_counter), request, tuple(off))


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(Result):
    """Why a memory is not among the first results, and the smallest changes that bring it there.

    Attributes:
        why: path, cause, counterfactuals and verdict.
        config: the config that is explained.
    """

    why: Why
    config: PipelineConfig

    @property
    def cause(self) -> str:
        """The stage that lost it, in a sentence."""
        return self.why.cause

    @property
    def verdict(self) -> str:
        """How many changes would bring it in, in a sentence."""
        return self.why.verdict

    @property
    def fix(self) -> str | None:
        """The change to try first, which `counterfactual` applies, with its effect on the judged queries; None if none is needed."""
        return None if self.why.fix is None else self.why.fix.sentence

    @property
    def lost_at(self) -> str | None:
        """The name of the stage that lost it; None where none did."""
        return self.why.path.lost_at

    @property
    def rank(self) -> int | None:
        """Its rank among the results; None where it is not among them."""
        return self.why.path.rank

    def counterfactual(self, number: int = 0) -> PipelineConfig:
        """The config with one of the changes that bring the memory in, by default the one to try first (`fix`).

        A change that says “(gathers)” needs a new `search` with this config, any other a `replay`. Pass terms that it names to `search`
        as `variants`. Raises InputError if there is no such change.
        """
        if not 0 <= number < len(self.why.counterfactuals):
            raise InputError(f"change {number}: there are {len(self.why.counterfactuals)}, counted from 0")
        return self.why.counterfactuals[number].config(self.config)

    @property
    def title(self) -> str:
        """Which memory, query and config it is of."""
        return f"{self.why.path.memory_id} for “{self.why.query}” under {self.config.name}"

    @property
    def lines(self) -> tuple[str, ...]:
        """The fix, the cause, a vector that is not of the text, known mistakes and the verdict."""
        vector = [self.why.vector.sentence] if self.why.vector else []
        mistakes = (f"known mistake: {one.line}" for one in self.why.mistakes)
        return (*([self.fix] if self.fix else []), self.cause, *vector, *mistakes, self.verdict)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The counterfactuals, or what comes nearest; the way through the stages; the place in each list."""
        found = self.why
        counterfactuals = found.counterfactuals or ((found.nearest,) if found.nearest else ())
        title = (
            "changes that bring it in"
            if found.counterfactuals
            else "what comes nearest"
            if found.nearest
            else "changes"
        )
        changes = tuple(
            (
                one.words,
                one.rank,
                one.gathers,
                one.side_effects.tau,
                one.side_effects.gone,
                one.needs,
                one.labelled.gain if one.labelled else None,
            )
            for one in counterfactuals
        )
        columns = ("change", "rank", "gathers", "tau of others", "others dropped", "scores lacking", "gain nDCG@10")
        steps = tuple((step.stage, step.rank_in, step.rank, step.score, step.words) for step in found.path.steps)
        places = tuple((place.list, place.rank, place.score, place.words) for place in found.path.places)
        tables = [Table(columns, changes, title)] if changes else []
        tables.append(Table(("stage", "rank in", "rank", "score", "what happened"), steps, "its way"))
        return (*tables, Table(("list", "rank", "score", "whole store"), places, "its place in each list"))[
            : len(tables) + bool(places)
        ]

    def to_json(self) -> dict[str, Any]:
        """The whole answer as plain values, as `why --json` prints it."""
        return self.why.to_json()


def why(
    answer: Answer,
    memory_id: str,
    *,
    store: OpenStore | None = None,
    k: int | None = None,
    labelled: bool = False,
    progress: Progress = silent,
) -> Explanation:
    """Why a memory is not among the first results of an answer, and what would bring it there, as the command `why` does.

    Args:
        answer: what `search` or `replay` gave.
        memory_id: the memory that is missing: its id, or a piece of its text; `title` says which it is.
        store: the store that was searched; with it lists are searched in full and changes that need a gather are tried too.
            None: parameters alone, on the evidence of the answer.
        k: it counts as missing below rank k; None is the config's limit of results.
        labelled: order the changes by what they gain on the store's judged queries.
        progress: called with a label, a count and a total.

    Raises:
        InputError: there is no such memory, or several have the text, naming the nearest; or the store is needed and was not given.
    """
    from cems_workbench.analysis.why import explain, known_memory, stored_memory
    from cems_workbench.jobs.evidence_memory import checking_set

    if k is not None and k < 1:
        raise InputError(f"k {k}: it is counted from 1")
    if store is None:
        if labelled:
            raise InputError("labelled needs the store: why(answer, memory_id, store=store, labelled=True)")
        memory_id = known_memory(memory_id, answer.evidence.memories)
        return Explanation(
            explain(memory_id, answer.evidence, answer.config, k=k, switched_off=answer.off, progress=progress),
            answer.config,
        )
    if answer.request is None:
        raise InputError("this answer was read from a file; search the store for the query, or leave the store out")
    memory_id = stored_memory(memory_id, store.resources)
    judged = checking_set(answer.config, store.resources, labelled, progress)
    found = explain(
        memory_id,
        answer.evidence,
        answer.config,
        k=k,
        request=answer.request,
        resources=store.resources,
        labelled=judged,
        switched_off=answer.off,
        progress=progress,
    )
    return Explanation(found, answer.config)
