"""`search` and `replay`: one query through the whole pipeline, and its evidence under a config."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from cems_workbench.cli.options import (
    AskedInFull,
    ConfigChoice,
    JsonOption,
    StoreOption,
    given_options,
    opened_store,
    present,
    print_rows,
    progress_bar,
)
from cems_workbench.cli.terminal import put_json, repeated, say, say_next, say_wrapped
from cems_workbench.command_words import asked_options, why_command, words_of
from cems_workbench.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cems_workbench.analysis.known_mistakes import NextStep
    from cems_workbench.api.single_query import Answer
    from cems_workbench.pipeline import Trace


def search_command(
    query: str,
    choice: ConfigChoice,
    asked: AskedInFull,
    bundle: Path | None = None,
    redact: bool = False,
    explain: bool = False,
    stages: bool = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Run the pipeline for one query.

    Shows the ranking first, and what each stage did with --stages.
    """
    chosen = asked.config(choice.read())
    from cems_workbench.analysis.known_mistakes import next_step
    from cems_workbench.api.single_query import answered
    from cems_workbench.jobs.query_grades import QueryGrades, query_grades
    from cems_workbench.pipeline.evidence import Request

    request = Request(query, **asked.fields())

    if redact and bundle is None:
        raise InputError("--redact needs a --bundle to write")
    with progress_bar(as_json) as progress, opened_store(store) as opened:
        asked.check_project(opened.resources.store)
        answer = answered(opened, request, chosen, asked.without or (), named="--without-variant", progress=progress)
        judged = QueryGrades() if as_json and not explain else query_grades(request, opened.resources.store)
    if bundle is not None:
        answer.save(bundle, redact=redact)
    _print(answer, as_json, stages, explain, judged.grades)
    if as_json:
        return
    step = next_step(answer.trace, judged.grades, judged.relevant_from, judged.answerable)
    if step.kind not in ("nothing", "superseded", "expired"):  # printed with the ranking
        say_wrapped(step.words)
    label = words_of("app", options=given_options(store=store)) if step.place == "label" else None
    again = asked_options(**asked.fields(), without=answer.off)
    say_next(*_after_search(step, answer.trace, again, choice.words(store)), label)


def _after_search(step: NextStep, trace: Trace, asked: Sequence[str], options: Sequence[str]) -> list[list[str]]:
    """What to type after a search: what explains it, or for a query without judgments the first memory that is not returned."""

    def why(memory_id: str, k: int | None = None) -> list[str]:
        return why_command(trace.evidence.query, memory_id, cutoff=k, options=asked).words(options)

    if step.place in ("why", "supersession") and step.memory_id is not None:
        return [why(step.memory_id, step.k)]
    if step.place in ("stages", "lists", "abstain"):
        return [repeated("--stages")] if "--stages" not in sys.argv else [words_of("doctor", options=options)]
    if step.place == "evaluate":
        return [words_of("evaluate", "all", options=["--losses", *options])]
    returned = {row.memory_id for row in trace.results}
    found = (hit.memory_id for ranked in trace.evidence.lists for hit in ranked.hits)
    below = next((memory_id for memory_id in found if memory_id not in returned), None)
    return [why(below)] if below is not None else [words_of("doctor", options=options)]


def replay_command(
    bundle: Path,
    choice: ConfigChoice,
    explain: bool = False,
    stages: bool = False,
    spans: Path | None = None,
    as_json: JsonOption = False,
) -> None:
    """Replay an evidence bundle under a config.

    The same bundle and config give the same trace on any machine. No store and no model is needed.
    """
    chosen = choice.read()
    from cems_workbench.api.single_query import Answer
    from cems_workbench.pipeline import read_bundle, replay
    from cems_workbench.pipeline.trace_spans import trace_spans
    from cems_workbench.platform.atomic_write import write_text

    evidence = read_bundle(bundle)
    answer = Answer(replay(evidence, chosen, clock=time.perf_counter))
    if spans is not None:
        write_text(spans, "".join(f"{line}\n" for line in trace_spans(answer.trace)))
    _print(answer, as_json, stages, explain)
    if as_json:
        return
    missing = next((memory_id for memory_id in evidence.memories if memory_id not in answer.ids), None)
    if missing is not None:
        options = ["--evidence", str(bundle), *choice.words()]
        say_next(why_command(evidence.query, missing, options=options).words())


def _print(answer: Answer, as_json: bool, stages: bool, explain: bool, grades: Mapping[str, int] | None = None) -> None:
    """Print an answer, with `explain` the parts of each score, with `stages` a row for each stage; `grades` are by memory id."""
    if as_json and explain:
        from cems_workbench.analysis.side_by_side import side_by_side

        return put_json(answer.to_json() | {"side_by_side": side_by_side(answer.trace, grades).to_json()})
    present(answer, as_json, also=[answer.parts(grades)] if explain and not as_json else [])
    if (stages or explain) and not as_json:  # the judge changes no ranking: it warns only if the stages are shown
        for line in answer.judge_warnings:
            say(line, err=True)
    if stages and not as_json:
        say()
        print_rows(answer.stages)
