"""`judgments`: the labels of the store, or its queries, in the form another tool reads; `agreement`: how far reviewers agree."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cems_workbench.cli.options import JsonOption, StoreOption, print_json, print_table, settings_for
from cems_workbench.errors import InputError

if TYPE_CHECKING:
    from cems_workbench.records import Judgment, Query
    from cems_workbench.store import Store

QUERIES = "queries-jsonl"
SetNameOption = Annotated[str | None, typer.Option("--set", help="Only the queries of this query set.")]


def judgments_command(
    to: Annotated[str, typer.Option("--to", help="Form: as named by import, or queries-jsonl.")] = "judgments-jsonl",
    query_set: SetNameOption = None,
    judge: Annotated[str | None, typer.Option("--judge", help="Only the labels of this judge.")] = None,
    kind: Annotated[str, typer.Option("--kind", help="human, model or all.")] = "human",
    rule: Annotated[
        str | None,
        typer.Option("--rule", help="One grade per pair: majority, strictest or decided; raw labels otherwise."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write to this file instead of printing.")] = None,
    store: StoreOption = None,
) -> None:
    """Write judgments, or the queries. What the form cannot hold is named on stderr; then the exit code is 1."""
    from cems_workbench.formats import queries_jsonl, write_judgments

    left_out: tuple[str, ...] = ()
    with opened_store(store) as opened:
        queries = {query.qid: query for query in asked_queries(opened, query_set)}
        if to == QUERIES:
            text = queries_jsonl.write(queries.values())
        else:
            every = {query.qid: query for query in opened.queries.read()}  # others may have the same words
            written = write_judgments(to, chosen_labels(opened, set(queries), judge, kind, rule), every)
            text, left_out = written.text, written.left_out
    if out is None:
        typer.echo(text, nl=False)
    else:
        try:
            out.write_text(text, encoding="utf-8", newline="")
        except OSError as error:
            raise InputError(f"{out}: cannot be written: {error.strerror}") from None
    for line in left_out:
        typer.echo(f"left out: {line}", err=True)
    if left_out:
        raise typer.Exit(1)


def agreement_command(
    query_set: SetNameOption = None,
    weights: Annotated[str, typer.Option("--weights", help="Of kappa: linear or quadratic.")] = "quadratic",
    level: Annotated[str, typer.Option("--level", help="Of alpha: nominal, ordinal or interval.")] = "ordinal",
    seed: Annotated[int, typer.Option("--seed", help="Of the bootstrap.")] = 0,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """How far reviewers agree: kappa of every two, alpha of all and by query type, each with its 95% interval."""
    from cems_workbench.evaluation.labelling import agreement

    if weights not in ("linear", "quadratic"):
        raise InputError(f"--weights: {weights!r} is not one of linear, quadratic")
    if level not in ("nominal", "ordinal", "interval"):
        raise InputError(f"--level: {level!r} is not one of nominal, ordinal, interval")
    with opened_store(store) as opened:
        queries = {query.qid: query for query in asked_queries(opened, query_set)}
        labels = chosen_labels(opened, set(queries), None, "human", None)
        scale = [grade for grade, _ in opened.query_sets.get(query_set).scale.grades] if query_set else []
    table = agreement.label_table(labels, scale)
    rows: list[tuple[str, agreement.Estimate]] = [
        (f"kappa {one.first} / {one.second}", one.kappa)
        for one in agreement.pairwise_kappa(table, weights, seed=seed)  # type: ignore[arg-type]
    ]
    rows.append(("alpha of all", agreement.alpha(table, level, seed=seed)))  # type: ignore[arg-type]
    types = {qid: query.type for qid, query in queries.items()}
    by_type = agreement.alpha_by_type(labels, types, scale, level, seed=seed)  # type: ignore[arg-type]
    rows += [(f"alpha of {name or 'no type'}", estimate) for name, estimate in by_type.items()]
    differing = agreement.disagreements(labels)
    if as_json:
        values: dict[str, Any] = {name: dataclasses.asdict(estimate) for name, estimate in rows}
        print_json({"coefficients": values, "disagreements": [dataclasses.asdict(one) for one in differing]})
        return
    print_table(["", "value", "from", "to", "pairs"], [[name, e.value, e.low, e.high, e.pairs] for name, e in rows])
    print_table(
        ["query", "memory", "grades"],
        [
            [one.qid, one.memory_id, ", ".join(f"{who} {grade}" for who, grade in one.grades.items())]
            for one in differing
        ],
        title=f"{len(differing)} pairs with different grades",
    )


def opened_store(store: Path | None) -> Store:
    from cems_workbench.store import Store

    return Store.open(settings_for(store).store, create=False)


def asked_queries(store: Store, query_set: str | None) -> list[Query]:
    """The queries of a set, or all of them when none is named; raises StoreError for a set that is not there."""
    return store.queries.read() if query_set is None else store.query_sets.queries(query_set)


def chosen_labels(store: Store, qids: set[str], judge: str | None, kind: str, rule: str | None) -> list[Judgment]:
    """The labels asked for, raw or one per pair; what a rule leaves open is named on stderr."""
    from cems_workbench.evaluation.labelling.adjudication import choose_judgments

    try:
        chosen = choose_judgments(store, qids, judge, kind, rule)  # type: ignore[arg-type]
    except InputError as error:
        raise InputError(f"--{error}") from None
    for line in chosen.still_open:
        typer.echo(f"open: {line}", err=True)
    return list(chosen.judgments)
