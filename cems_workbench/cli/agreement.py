"""`agreement`: inter-rater agreement of reviewers."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import typer

from cems_workbench.cli.judgments import QuerySetOption, chosen_labels
from cems_workbench.cli.next_command import say_next, words_of
from cems_workbench.cli.options import (
    JsonOption,
    StoreOption,
    given_options,
    open_existing_store,
    print_table,
    queries_of,
)
from cems_workbench.cli.terminal import put_json, say
from cems_workbench.errors import InputError


def agreement_command(
    query_set: QuerySetOption = None,
    weights: Annotated[
        str, typer.Option("--weights", help="Disagreement weights of kappa: linear or quadratic.")
    ] = "quadratic",
    level: Annotated[
        str, typer.Option("--level", help="Level of measurement of alpha: nominal, ordinal or interval.")
    ] = "ordinal",
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the bootstrap.")] = 0,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure how far reviewers agree.

    Cohen's kappa of each pair of reviewers, Krippendorff's alpha of all and by query type, each with its 95 % interval.
    """
    from cems_workbench.evaluation.labelling import agreement
    from cems_workbench.formats.base.judgments import of_memories

    if weights not in ("linear", "quadratic"):
        raise InputError(f"--weights: {weights!r} is not one of linear, quadratic")
    if level not in ("nominal", "ordinal", "interval"):
        raise InputError(f"--level: {level!r} is not one of nominal, ordinal, interval")
    with open_existing_store(store) as opened:
        queries = {query.qid: query for query in queries_of(opened, query_set)}
        every = chosen_labels(opened, set(queries), None, "human", None)
        labels, of_store = of_memories(every)
        relevant_from = opened.query_sets.relevant_from_of([judgment.qid for judgment in of_store])
        scale = [grade for grade, _ in opened.query_sets.get(query_set).scale.grades] if query_set else []
    table = agreement.label_table(labels, scale)
    rows: list[tuple[str, agreement.Estimate, str]] = [
        (f"{agreement.KAPPA_NAME}, {one.first} and {one.second}", one.kappa, agreement.kappa_reading(one.kappa))
        for one in agreement.pairwise_kappa(table, weights, seed=seed)  # type: ignore[arg-type]
    ]
    whole = agreement.alpha(table, level, seed=seed)  # type: ignore[arg-type]
    rows.append((f"{agreement.ALPHA_NAME}, all", whole, agreement.alpha_reading(whole)))
    types = {qid: query.type for qid, query in queries.items()}
    by_type = agreement.alpha_by_type(labels, types, scale, level, seed=seed)  # type: ignore[arg-type]
    rows += [
        (f"{agreement.ALPHA_NAME}, {name or 'no type'}", estimate, agreement.alpha_reading(estimate))
        for name, estimate in by_type.items()
    ]
    differing = agreement.disagreements(labels)
    whole_queries = agreement.no_answer_agreement(every, relevant_from)
    if as_json:
        values: dict[str, Any] = {
            name: {**dataclasses.asdict(estimate), "reading": reading} for name, estimate, reading in rows
        }
        said = {"no_answer": dataclasses.asdict(whole_queries)} if whole_queries.queries else {}
        put_json({"coefficients": values, "disagreements": [dataclasses.asdict(one) for one in differing], **said})
        return
    shared = [(name, estimate, reading) for name, estimate, reading in rows if estimate.pairs or estimate is whole]
    print_table(
        ["", "coefficient", "pairs", "read as"], [[name, str(e), e.pairs, reading] for name, e, reading in shared]
    )
    print_table(
        ["query", "memory", "grades"],
        [
            [one.qid, one.memory_id, ", ".join(f"{who} {grade}" for who, grade in one.grades.items())]
            for one in differing
        ],
        title=f"{len(differing)} pairs with different grades",
    )
    if line := str(whole_queries):
        say(line)
    options = given_options(store=store)
    say_next(
        words_of("app", options=options) if differing else words_of("evaluate", query_set or "all", options=options)
    )
