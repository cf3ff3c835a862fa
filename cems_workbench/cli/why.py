"""`why`: the stage that dropped a memory, and the smallest config changes that return it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cems_workbench.cli.next_command import request_options, say_next
from cems_workbench.cli.options import (
    AsOfOption,
    ConfigOption,
    CutoffOption,
    EngineQueryOption,
    JsonOption,
    OnlyProjectOption,
    PresetOption,
    ProjectOption,
    SearchedOption,
    SetOption,
    StoreOption,
    VariantOption,
    WithoutVariantOption,
    chosen_config,
    filled_resources,
    given_options,
    open_existing_store,
    print_table,
    progress_bar,
    request_and_config,
    require_variants,
    settings_for,
    warn_unknown_project,
)
from cems_workbench.cli.terminal import put_json, say, say_wrapped
from cems_workbench.command_words import words_of
from cems_workbench.errors import InputError

if TYPE_CHECKING:
    from cems_workbench.analysis.why import Counterfactual, LabelledSet, Why
    from cems_workbench.config import PipelineConfig
    from cems_workbench.evaluation.evidence_file import Header
    from cems_workbench.pipeline import Evidence
    from cems_workbench.pipeline.gather import Request
    from cems_workbench.pipeline.resources import Resources
    from cems_workbench.progress import Progress


def why_command(
    query: Annotated[str, typer.Argument(help="The query.")],
    memory_id: Annotated[
        str, typer.Argument(metavar="MEMORY", help="The memory that is missing: its id, or a piece of its text.")
    ],
    preset: PresetOption = None,
    config: ConfigOption = None,
    changes: SetOption = None,
    cutoff: CutoffOption = None,
    project: ProjectOption = None,
    only_project: OnlyProjectOption = False,
    as_of: AsOfOption = None,
    variants: VariantOption = None,
    searched_text: SearchedOption = None,
    engine_queries: EngineQueryOption = None,
    without: WithoutVariantOption = None,
    evidence: Annotated[
        Path | None,
        typer.Option(
            "--evidence",
            metavar="FILE|QUERY_SET",
            help="Use the query's evidence instead of the store: a bundle, an evidence file, or a set of external traces. Only changes "
            "that need no new gather are tried.",
        ),
    ] = None,
    labelled: Annotated[
        bool, typer.Option("--labelled", help="Sort the changes by their gain on the store's judged queries.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explain why a memory is missing, and what would return it.

    Names the stage that dropped the memory and the smallest config changes that return it. Nothing is changed.
    """
    chosen = chosen_config(preset, config, changes)
    request, chosen = request_and_config(
        query, project, only_project, as_of, variants, chosen, searched_text, engine_queries
    )
    from cems_workbench.analysis.why import explain, known_memory, require_stored, stored_memory, taken
    from cems_workbench.cli.tracing import print_effects
    from cems_workbench.jobs.traced_sets import require_no_config
    from cems_workbench.pipeline import replay
    from cems_workbench.pipeline.list_provenance import answered_lists

    if evidence is not None:
        if labelled:
            raise InputError("--labelled needs the store; leave --evidence out")
        from cems_workbench.jobs.traces import traced_mistakes

        bundle, own, path = _evidence_of(query, evidence, store)
        if own is not None and bundle.external:
            if preset or config or changes:
                require_no_config(evidence, own, True, [chosen])
            chosen = own.config
        named = memory_id
        if named in bundle.memories or len(named.split()) > 1 or evidence.exists():
            memory_id = known_memory(named, bundle.memories)
        else:  # a set of the store: no list of the trace had it
            with open_existing_store(store) as opened:
                require_stored(memory_id, opened)
        if not as_json and memory_id != named:
            say(taken(named, bundle.memories[memory_id]))
        with progress_bar(as_json) as progress:
            left_out = require_variants(without, bundle.variants)
            of_set = traced_mistakes(path) if bundle.external and path is not None else ()
            found = explain(
                memory_id, bundle, chosen, k=cutoff, switched_off=left_out, of_set=of_set, progress=progress
            )
        searched = bundle
    else:
        with progress_bar(as_json) as progress, filled_resources(store) as resources:
            named, memory_id = memory_id, stored_memory(memory_id, resources)
            memory = resources.store.memories.get(memory_id)
            if not as_json and memory is not None and memory_id != named:
                say(taken(named, memory))
            warn_unknown_project(resources.store, project, only_project)
            gathered, judged, left_out = _gathered(request, chosen, resources, without, labelled, progress)
            found = explain(
                memory_id,
                gathered,
                chosen,
                k=cutoff,
                request=request,
                resources=resources,
                labelled=judged,
                switched_off=left_out,
                progress=progress,
            )
        searched = gathered
    if as_json:
        engine = searched.notes.get("engine")
        put_json(found.to_json() | ({"engine": engine} if engine else {}))
    else:
        print_why(found)
        if searched.external:
            said = {mistake.words for mistake in found.mistakes}
            for stage, text in replay(searched, chosen).warnings:
                if text not in said:
                    say(f"warning: {stage}: {text}", err=True)
        else:
            print_effects(searched, chosen, request.as_of is not None)
        if answered := answered_lists(searched, [ranked.name for ranked in searched.lists]):
            say(answered)
        given = given_options(preset, config, changes, store)
        if searched.external and evidence is not None:
            say_next(_after_traced(memory_id, evidence, store))
        elif evidence is None:
            say_next(*next_commands(found, request, left_out, given))
        else:
            say_next(_applied(found, "replay", str(evidence), given) or words_of("replay", evidence, options=given))


def _after_traced(memory_id: str, evidence: Path, store: Path | None) -> list[str]:
    """What a memory does in the other traced queries; without judgments, which preset comes closest."""
    from cems_workbench.jobs.traces import is_judged

    options = given_options(None, None, None, store)
    if not evidence.exists():
        with open_existing_store(store) as opened:
            if not is_judged(opened, str(evidence)):
                return words_of("fidelity", options=[f"--recorded={evidence}", "--nearest", *options])
    return words_of("memory", memory_id, evidence, options=options)


def next_commands(found: Why, request: Request, without: Sequence[int], given: Sequence[str]) -> list[list[str] | None]:
    """The query under the fix, and gathering the judged queries if that would check it; without a fix, what is known of the memory."""
    from cems_workbench.analysis.why.first_fix import NOT_GATHERED

    fix, memory_id = found.fix, found.path.memory_id
    if found.vector is not None and (fix is None or fix.vector is not None):
        store = given[given.index("--store") :] if "--store" in given else ()
        return [words_of("reindex", memory_id, options=store)]
    if fix is None or fix.change is None:
        return [words_of("memory", memory_id, options=given)]
    gather = fix.unchecked == NOT_GATHERED and not fix.change.gathers
    asked = request_options(fix.change.request(request), without)
    return [
        _applied(found, "search", request.query, [*asked, *given]),
        words_of("gather", "all", options=["--judged", *given]) if gather else None,
    ]


def _applied(found: Why, name: str, argument: str, options: Sequence[str]) -> list[str] | None:
    """The command that shows the results under the fix; None without one."""
    from cems_workbench.config import assigned_value

    if found.fix is None or found.fix.change is None:
        return None
    values = found.fix.change.values
    changes = [f"--set={path}={assigned_value(value)}" for path, value in values.items()]
    return words_of(name, argument, options=[*options, *changes])


def _evidence_of(query: str, name: Path, store: Path | None) -> tuple[Evidence, Header | None, Path | None]:
    """The evidence of a query in a bundle, an evidence file or a set of external traces, and header and path of the file.

    The query may be named by its id.
    """
    from cems_workbench.evaluation.evidence_file import is_evidence_file
    from cems_workbench.evaluation.evidence_stream import EvidenceStream
    from cems_workbench.jobs.traced_sets import traced_header, traced_path
    from cems_workbench.pipeline import read_bundle

    folder = settings_for(store).store
    path = name if name.exists() or traced_header(folder, str(name)) is None else traced_path(folder, str(name))
    if not is_evidence_file(path):
        return _require_same_query(query, read_bundle(path), path), None, None
    with EvidenceStream([path]) as stream:
        found = stream.of_queries(stream.qids_of(query.strip())).evidences
        if not found:
            raise InputError(
                f"{name} has no evidence of the query {query.strip()!r}, neither as its words nor as its id"
            )
        return next(iter(found.values())), stream.header, path


def _require_same_query(query: str, bundle: Evidence, path: Path) -> Evidence:
    if query.strip() != bundle.query:
        raise InputError(f"{path} holds the evidence of another query: {bundle.query}")
    return bundle


def _gathered(
    request: Request,
    config: PipelineConfig,
    resources: Resources,
    without: Sequence[int] | None,
    labelled: bool,
    progress: Progress,
) -> tuple[Evidence, LabelledSet | None, tuple[int, ...]]:
    """The query's evidence, that of the judged queries when they are to be measured, and the variants left out.

    A judge is asked only where abstain has a threshold on its score.
    """
    from cems_workbench.jobs.evidence_memory import checking_set
    from cems_workbench.pipeline.gather import gather_lists, gather_scores

    lists = gather_lists(request, config, resources)
    left_out = require_variants(without, lists.variants)
    own = gather_scores(lists, config, resources, judge="decisive", switched_off=left_out)
    return own, checking_set(config, resources, labelled, progress), left_out


MAX_CHANGES = 12


def print_why(found: Why) -> None:
    """Print the fix to try first in a sentence, the cause in another, the memory's path and all counterfactuals."""
    from cems_workbench.analysis.why.counterfactual import order_text
    from cems_workbench.pipeline.wording import list_label

    path = found.path
    if found.fix is not None:
        say_wrapped(found.fix.sentence)
    say(found.cause)
    if found.vector:
        say_wrapped(found.vector.sentence)
    if found.standing:
        say(found.standing)
    say()
    if path.steps:
        rows = [
            [
                step.stage,
                step.rank_in,
                step.rank,
                step.score,
                ("lost here: " if step.stage == path.lost_at else "") + step.words,
            ]
            for step in path.steps
        ]
        print_table(["stage", "rank in", "rank", "score", "what happened"], rows)
        say()
    if path.places:
        rows = [[list_label(place.list), place.rank, place.score, place.words] for place in path.places]
        print_table(["list", "rank", "score", "whole store"], rows)
        say()
    for mistake in found.mistakes:
        say(f"known mistake: {mistake.line}")
    say(found.verdict)
    shown = list(found.counterfactuals[:MAX_CHANGES]) or ([found.nearest] if found.nearest else [])
    if shown:
        labelled = any(counterfactual.labelled for counterfactual in shown)
        columns = ["change", "rank", "breakpoint", "side effects", *(["on the judged queries"] if labelled else [])]
        print_table(columns, [_row(counterfactual, labelled) for counterfactual in shown])
        say(order_text(found.counterfactuals))
        if labelled:
            say(
                "on the judged queries: verdict and gain of mean nDCG@10, its 95 % interval, and those that gain and lose their only hit"
            )
    if len(found.counterfactuals) > MAX_CHANGES:
        say(f"and {len(found.counterfactuals) - MAX_CHANGES} more; --json lists them all")
    if any(counterfactual.needs for counterfactual in shown):
        say(
            "* some candidates were never scored by the reranker under this change; the result may differ once they are"
        )


def _row(counterfactual: Counterfactual, labelled: bool) -> list[Any]:
    from cems_workbench.analysis.why.counterfactual import moved_text

    moved = counterfactual.side_effects
    return [
        counterfactual.words + ("*" if counterfactual.needs else ""),
        counterfactual.rank,
        ", ".join(_point(change.breakpoint.succeeds) for change in counterfactual.changes if change.breakpoint) or None,
        f"{moved_text(moved)}, {moved.gone or 'none'} dropped",
        *([_judged(counterfactual)] if labelled else []),
    ]


def _judged(counterfactual: Counterfactual) -> str | None:
    from cems_workbench.analysis.why.counterfactual import interval_text

    effect = counterfactual.labelled
    if effect is None:
        return None
    unscored = f"; reranker has not read all in {effect.unscored}" if effect.unscored else ""
    return f"{effect.verdict.kind}: {effect.gain:+.3f}, {interval_text(effect)}; hits +{len(effect.gained)} −{len(effect.lost)}{unscored}"


def _point(value: float) -> str:
    return f"{value:.6g}"
