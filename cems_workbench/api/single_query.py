"""One query: searched, replayed under another config, and explained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from cems_workbench.api.open_store import load_config, warn
from cems_workbench.errors import InputError, counted, one_line
from cems_workbench.progress import Progress, silent
from cems_workbench.results import EXCERPT_CHARS, Result, Table

if TYPE_CHECKING:
    from cems_workbench.analysis.fusion_shares import VariantContribution
    from cems_workbench.analysis.stage_mistakes import KnownMistake
    from cems_workbench.analysis.supersession import Staleness
    from cems_workbench.analysis.why.report import Why
    from cems_workbench.api.open_store import ConfigLike, OpenStore
    from cems_workbench.config import PipelineConfig
    from cems_workbench.pipeline import Evidence, Trace
    from cems_workbench.pipeline.gather import JudgeScope, Request
    from cems_workbench.records import Memory


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
        """The stages with the candidates that went in and came out of each, its milliseconds, and its warnings."""
        rows = ((s.name, s.candidates_in, s.candidates_out, s.elapsed_ms, len(s.warnings)) for s in self.trace.stages)
        return Table(("stage", "in", "out", "ms", "warnings"), tuple(rows), f"stages of {self.config.name}")

    def journey(self, memory_id: str) -> Table:
        """The way of one memory through the stages. Raises InputError where it is not among the candidates."""
        from cems_workbench.analysis.why.path import memory_path, require_known

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
        return Table(tuple(columns), tuple(map(tuple, rows)), f"{counted(len(rows), 'candidates')} side by side")

    def parts(self, grades: Mapping[str, int] | None = None) -> Table:
        """Of each result its rank and score in every list and after every stage that did something, and what the score is made of."""
        from cems_workbench.analysis.side_by_side import parts_words, side_by_side

        table, rows = side_by_side(self.trace, grades), list[tuple[Any, ...]]()
        for row in table.rows:
            if row.final_rank is None:
                break
            head: tuple[Any, ...] = (row.final_rank, row.memory_id)
            for key, cell in row.cells.items():
                column = table.column(key)
                last = column.kind == "rank"
                made_of = (parts_words(column.kind, cell.parts), row.moved_words if last else "")
                rows.append((*head, "final" if last else key, cell.rank, cell.score, "; ".join(filter(None, made_of))))
                head = ("", "")  # said once for each result
        return Table(("rank", "memory", "where", "rank there", "score", "made of"), tuple(rows))

    def ask(self, operation: str) -> Result:
        """What an operation on answered queries says, one of the workbench or of a package. Raises InputError for an unknown one."""
        from cems_workbench.analysis.of_query import OPERATIONS

        if operation not in OPERATIONS:
            raise InputError(f"{operation}: no such operation; there are {', '.join(OPERATIONS) or 'none'}")
        with OPERATIONS.guarded(operation, InputError):
            return OPERATIONS[operation].run(self.trace)

    @property
    def title(self) -> str:
        """How many results of which query under which config."""
        return f"{counted(len(self.trace.results), 'results')} of “{self.query}” under {self.config.name}"

    @property
    def tables(self) -> tuple[Table, ...]:
        """The results by rank; where several queries were searched at once, what each of them found and gave to a result."""
        from cems_workbench.analysis.fusion_shares import variant_contributions

        stale, several = self.staleness, len(self.evidence.variants) > 1
        shares = {one.memory_id: one for one in variant_contributions(self.trace)} if several else {}
        rows = []
        for one in self.trace.results:
            given = _given(shares[one.memory_id]) if several else None
            late = stale[one.memory_id].words if one.memory_id in stale else None
            rows.append((one.rank, one.score, one.memory_id, given, late, one.project, one.title, one.content))
        columns = ("rank", "score", "memory", "given by query", "out of date", "project", "title", "content")
        results = Table(columns, tuple(rows), unshown=("project", "title"))
        if not several:
            return (results,)
        queries = []
        for i, variant in enumerate(self.evidence.variants):
            found = [key for key, one in shares.items() if i in one.by_variant]
            text, returned = one_line(variant.text, EXCERPT_CHARS), sum(key in self.ids for key in found)
            queries.append((i, variant.kind, text, len(found), returned))
        return results, Table(("query", "kind", "text", "found", "in results"), tuple(queries))

    @property
    def staleness(self) -> Mapping[str, Staleness]:
        """By id, how results are out of date: by which memory they are superseded and where that one is, or when they expired."""
        from cems_workbench.analysis.supersession import result_staleness

        return result_staleness(self.trace)

    @property
    def lines(self) -> tuple[str, ...]:
        """Why nothing was returned, where that is so; that a result is superseded or has expired, the best one that is."""
        from cems_workbench.analysis.ranks import nothing_returned
        from cems_workbench.analysis.supersession import first_result_stale, first_result_words

        reason, first = nothing_returned(self.trace), first_result_stale(self.trace, anywhere=True)
        if reason is not None:
            return (f"Nothing returned: {reason[1]}.",)
        return () if first is None else (first_result_words(first),)

    @property
    def notes(self) -> tuple[str, ...]:
        """Tokens, what project and moment do, what was searched and who answered; known mistakes, warnings and what the evidence lacks."""
        from cems_workbench.analysis.known_mistakes import known_mistakes
        from cems_workbench.pipeline.stages.judge import JUDGE
        from cems_workbench.pipeline.stages.result import ScoreNeed

        mistakes = known_mistakes(self.trace)
        said = {mistake.words for mistake in mistakes}
        # The judge changes no ranking: its warnings are those of `trace`.
        warned = (line for line in self.trace.warnings if line[1] not in said and line[0] != JUDGE.name)
        lines = [*self._remarks(), *(f"known mistake: {mistake.line}" for mistake in mistakes)]
        lines += [f"warning: {stage}: {text}" for stage, text in warned]
        for need in self.trace.needs:
            what = (
                f"{counted(len(need.memory_ids), 'scores')} of {need.model}"
                if isinstance(need, ScoreNeed)
                else need.parameter
            )
            lines.append(f"warning: {need.stage}: needs a gather: {what}")
        return tuple(lines)

    @property
    def judge_warnings(self) -> tuple[str, ...]:
        """What the judge warns of. It changes no ranking."""
        from cems_workbench.pipeline.stages.judge import JUDGE

        return tuple(f"warning: {stage}: {text}" for stage, text in self.trace.warnings if stage == JUDGE.name)

    def _remarks(self) -> Iterator[str]:
        from cems_workbench.config import depth_notes
        from cems_workbench.pipeline.effects import effect_lines, later_words
        from cems_workbench.pipeline.explained import said_of
        from cems_workbench.pipeline.list_sources import answered_lists, searched_lines
        from cems_workbench.pipeline.stages.assembly import ASSEMBLY
        from cems_workbench.pipeline.stages.lists import LISTS

        trace, lists = self.trace, self.evidence.lists
        if trace.external:
            yield f"{trace.tokens_used} tokens; stages as another pipeline recorded them: no config changes them"
            return
        budget, left_out = trace.stage(ASSEMBLY).fields.budget, len(trace.skipped_for_budget)
        used = f"{trace.tokens_used} tokens" + (f" of {budget}" if budget is not None else "")
        yield f"{used}{f', {left_out} memories did not fit' if left_out else ''}; config {self.config.name}"
        yield from said_of(self.evidence, self.config)
        yield from depth_notes(self.config)
        yield from effect_lines(trace, self.request is None or self.request.as_of is not None)
        yield from searched_lines(self.evidence.notes)
        shown = trace.stage(LISTS).fields.shown(self.config, inner=True)
        answered = answered_lists(self.evidence.notes, [one.name for one in lists if one.name in shown])
        yield from filter(None, (later_words(trace), answered))
        if any(one.source == "source_hybrid" for one in lists):
            from cems_workbench.analysis.fusion_comparison import compare_fusions

            if fusions := compare_fusions(trace):
                yield fusions.line

    def to_json(self) -> dict[str, Any]:
        """The whole trace as plain values, and what is to be said of it, as `search --json` and `replay --json` print it."""
        from cems_workbench.analysis.known_mistakes import known_mistakes
        from cems_workbench.pipeline.effects import results_written_later

        return self.trace.to_json() | {
            "written_later": results_written_later(self.trace),
            "out_of_date": {memory_id: found.to_json() for memory_id, found in self.staleness.items()},
            "known_mistakes": [mistake.to_json() for mistake in known_mistakes(self.trace)],
        }

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


def _given(shares: VariantContribution) -> str:
    """What each query gave to the fused raw score, and the boost, as in "0: 0.0164, 2: 0.0161 ×1.1"."""
    terms = ", ".join(f"{i}: {gave:.4f}{'*' if i == shares.decisive else ''}" for i, gave in shares.by_variant.items())
    return terms + (f" ×{shares.boost:g}" if shares.boost != 1 else "")


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
    from cems_workbench.pipeline.gather import Request
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
    return answered(store, request, chosen, progress=progress)


def answered(
    store: OpenStore,
    request: Request,
    config: PipelineConfig,
    off: Sequence[int] = (),
    *,
    named: str = "off",
    judge: JudgeScope = "results",
    progress: Progress = silent,
) -> Answer:
    """The answer to a request; `judge` is what the judge scores. Raises InputError for a variant in `off` that is not there, as `named`."""
    from cems_workbench.models.minilm_embedder import MiniLMEmbedder
    from cems_workbench.pipeline.gather import gather_lists, gather_trace

    lists = gather_lists(request, config, store.resources, progress)
    if store.resources.of_command and isinstance(embedder := store.resources.embedder, MiniLMEmbedder):
        embedder.unload()  # before the cross-encoder is loaded
    left_out = known_variants(off, len(lists.variants), named)
    trace = gather_trace(
        lists, config, store.resources, progress, judge=judge, switched_off=left_out, clock=perf_counter
    )
    return Answer(trace, request, left_out)


def known_variants(off: Sequence[int], count: int, name: str) -> tuple[int, ...]:
    """The query variants to leave out; raises InputError when there is no such variant, under the argument's name."""
    missing = sorted(number for number in off if not 0 <= number < count)
    if missing:
        raise InputError(f"{name} {missing[0]}: there are {count} query variants, counted from 0")
    return tuple(off)


def replay(
    evidence: Answer | Evidence | str | Path, config: ConfigLike | None = None, *, off: Sequence[int] = ()
) -> Answer:
    """Answer a query again under another config, from its evidence alone: no store, no model, about a millisecond.

    Args:
        evidence: an answer, the evidence of one query, or the path of a bundle.
        config: a config, the name of a preset, or the path of a config file; None is that of the answer, of an explained answer the
            one that replays it, and for other evidence the default preset. An external trace has its recorded stages and takes none.
        off: query variants to leave out, 0 for the query itself.

    Returns:
        The answer; its notes name what the config asks for that the evidence does not hold.

    Raises:
        InputError: the bundle cannot be read, the config is not valid, or there is no such variant; or a config for an external trace.
    """
    from cems_workbench.jobs.traced_sets import NOT_REPLAYED
    from cems_workbench.jobs.traces import traced_config
    from cems_workbench.pipeline.bundle import read_bundle
    from cems_workbench.pipeline.explained import explained_config
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
        own = evidence.config if isinstance(evidence, Answer) else explained_config(found)
        chosen = own if own is not None and config is None else load_config(config)
    left_out = known_variants(off, len(found.variants), "off")
    return Answer(replayed(found, chosen, switched_off=left_out, clock=perf_counter), request, left_out)


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(Result):
    """Why a memory is not among the first results, and the smallest changes that bring it there.

    Attributes:
        why: path, cause, counterfactuals and verdict.
        answer: the answer that is explained.
        taken: which memory was taken for a piece of text; empty for an id.
        question: whether a later candidate replaces an earlier result, if their texts suggest it; empty otherwise.
        cannot: what the store's target cannot run of the fix, and of the changes; empty where it can, and without a target.
        memory: the memory; None where it is no candidate of evidence without a store.
    """

    why: Why
    answer: Answer
    taken: str = ""
    question: str = ""
    memory: Memory | None = None
    cannot: tuple[str, str] = ("", "")

    @property
    def memories(self) -> dict[str, Memory]:
        """The candidates and the memory, by id."""
        return {**self.answer.evidence.memories, **({self.memory.id: self.memory} if self.memory else {})}

    @property
    def config(self) -> PipelineConfig:
        """The config that is explained."""
        return self.answer.config

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
        """The memory that was meant, the fix, what the target cannot run of it, the cause, what is known of the memory, and the verdict."""
        fix, *further = self.why.lines if self.why.fix else ("", *self.why.lines)
        lost = self.cannot[0] and f"{self.cannot[0]}."
        return tuple(line for line in (self.taken, fix, lost, *further, self.question) if line)

    @property
    def tables(self) -> tuple[Table, ...]:
        """The counterfactuals, or what comes nearest; the way through the stages; the place in each list."""
        return self.why.tables

    @property
    def notes(self) -> tuple[str, ...]:
        """How to read the changes, what project and moment do, and who answered; warnings of recorded stages."""
        from cems_workbench.pipeline.effects import effect_lines
        from cems_workbench.pipeline.list_sources import answered_lists

        evidence, asked = self.answer.evidence, self.answer.request
        answered = answered_lists(evidence.notes, [ranked.name for ranked in evidence.lists])
        if evidence.external:
            said = {mistake.words for mistake in self.why.mistakes}
            warned = self.answer.trace.warnings
            further: Iterator[str] = (f"warning: {stage}: {text}" for stage, text in warned if text not in said)
        else:
            further = effect_lines(self.answer.trace, asked is not None and asked.as_of is not None)
        of_changes = f"Of these changes, {self.cannot[1]}." if self.cannot[1] != self.cannot[0] else ""
        return (*self.why.notes, *further, *(line for line in (of_changes, answered) if line))

    def to_json(self) -> dict[str, Any]:
        """The whole answer as plain values, as `why --json` prints it."""
        said = {"question": self.question, "cannot": self.cannot[1]}
        return self.why.to_json() | {name: text for name, text in said.items() if text}


def why(
    answer: Answer,
    memory_id: str,
    *,
    store: OpenStore | None = None,
    k: int | None = None,
    labelled: bool = False,
    graph: bool = False,
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
        graph: open the store's Chroma collection, to say whether a search of its graph would have missed the memory.
        progress: called with a label, a count and a total.

    Raises:
        InputError: there is no such memory, or several have the text, naming the nearest; or the store is needed and was not given.
    """
    if k is not None and k < 1:
        raise InputError(f"k {k}: it is counted from 1")
    if store is None and (named := "labelled" if labelled else "graph" if graph else ""):
        raise InputError(f"{named} needs the store: why(answer, memory_id, store=store, {named}=True)")
    if store is not None and answer.request is None:
        raise InputError("this answer was read from a file; search the store for the query, or leave the store out")
    return explanation(answer, memory_id, store, k, labelled, graph, progress=progress)


def explanation(
    answer: Answer,
    named: str,
    store: OpenStore | None = None,
    k: int | None = None,
    labelled: bool = False,
    graph: bool = False,
    *,
    of_set: Sequence[KnownMistake] = (),
    progress: Progress = silent,
) -> Explanation:
    """As `why`, with the known mistakes of the set that the query is of, where it is one of external traces."""
    from cems_workbench.analysis.why.path import known_memory, stored_memory, taken
    from cems_workbench.analysis.why.report import explain
    from cems_workbench.jobs.evidence_memory import checking_set
    from cems_workbench.pipeline.explained import not_shown

    evidence, config, of_store = answer.evidence, answer.config, dict[str, Any]()
    if store is None:
        memory_id = known_memory(named, evidence.memories, not_shown(evidence, named))
        memory = evidence.memories.get(memory_id)
    else:
        memory_id = stored_memory(named, store.resources)
        memory = store.resources.store.memories.get(memory_id)
        if graph:
            store.resources.graph(progress)
        checked = checking_set(config, store.resources, labelled, progress)
        of_store = {"request": answer.request, "resources": store.resources, "labelled": checked}
    found = explain(
        memory_id, evidence, config, k=k, **of_store, switched_off=answer.off, of_set=of_set, progress=progress
    )
    question, lost = "", ("", "")
    if store is not None and not evidence.external:
        from cems_workbench.analysis.proposed_edges import contradicting
        from cems_workbench.config.forms.targets import cannot
        from cems_workbench.jobs.query_grades import QueryGrades, query_grades
        from cems_workbench.settings import saved_target

        runs, fix = saved_target(store.resources.store.path), None if found.fix is None else found.fix.change
        of_fix = () if fix is None else (fix.values,)
        lost = (cannot(runs, config, *of_fix), cannot(runs, config, *(one.values for one in found.counterfactuals)))
        judged = query_grades(answer.request, store.resources.store) if answer.request is not None else QueryGrades()
        pair = contradicting(answer.trace, store.resources, judged.grades, judged.relevant_from)
        if pair is not None:
            question = (
                f"{pair.question} Signs: {pair.why}. Inspect, Label › Superseded and supersessions save the answer, which "
                "supersession.mode then follows."
            )
    return Explanation(found, answer, "" if memory is None else taken(named, memory), question, memory, lost)
