"""`judgments`, `agreement`, `dataset` and `sample`: judgments and how far judges agree, and data in and out."""

from __future__ import annotations

import dataclasses
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from cems_workbench.cli import options as cli
from cems_workbench.cli.terminal import put, repeated, say, say_next, unused, words_of
from cems_workbench.errors import InputError, counted
from cems_workbench.platform.atomic_write import write_text
from cems_workbench.results import Report, Table

if TYPE_CHECKING:
    from cems_workbench.formats import DataSet
    from cems_workbench.records import Judgment
    from cems_workbench.store import Store


QUERIES_FORMAT = "queries-jsonl"


@dataclass(frozen=True)
class Labels:
    """Which labels a command takes, raw or one per pair."""

    judge: str | None = None
    judge_kind: str = "human"
    rule: str | None = None

    def read(self, store: Store, qids: set[str]) -> list[Judgment]:
        """The labels of these queries; what a rule leaves open is named on stderr."""
        from cems_workbench.evaluation.labelling.agreement import choose_judgments

        try:
            chosen = choose_judgments(store, qids, self.judge, self.judge_kind, self.rule)  # type: ignore[arg-type]
        except InputError as error:
            raise InputError(f"--{error}") from None
        for line in chosen.still_open:
            say(f"open: {line}", err=True)
        return list(chosen.judgments)


def judgments_command(
    action: str | None = None,
    format: str = "judgments-jsonl",
    query_set: str | None = None,
    *,
    labels: Labels,
    out: Path | None = None,
    texts: Path | None = None,
    apply: bool = False,
    store: cli.StoreOption = None,
    as_json: cli.JsonOption = False,
) -> None:
    """Export judgments, or the queries; or say which memories were judged under other ids, and with --apply move their judgments.

    What the format cannot hold is listed on stderr, with exit code 1.
    """
    if action is not None:
        return _rebase(action, texts, store, apply=apply, as_json=as_json)
    if texts is not None or apply or as_json:
        raise InputError("--texts, --apply and --json are for judgments rebase")
    from cems_workbench.formats import write_judgments
    from cems_workbench.formats.queries import write as queries_written

    left_out: tuple[str, ...] = ()
    with cli.open_existing_store(store) as opened:
        every_label = opened.judgments.read()
        queries = {query.qid: query for query in cli.queries_of(opened, query_set)}
        if format == QUERIES_FORMAT:
            text = queries_written(queries.values())
        else:
            every = {query.qid: query for query in opened.queries.read()}  # others may have the same words
            written = write_judgments(format, labels.read(opened, set(queries)), every)
            text, left_out = written.text, written.left_out
    if out is None:
        put(text)
    else:
        write_text(out, text, newline="")
        if every_label:
            say_next(words_of("evaluate", query_set or "all", options=["--losses", *cli.given_options(store=store)]))
    for line in left_out:
        say(f"left out: {line}", err=True)
    if left_out:
        raise typer.Exit(1)


def _rebase(action: str, texts: Path | None, store: Path | None, *, apply: bool, as_json: bool) -> None:
    from cems_workbench.jobs.importing import rebase, texts_of

    if action != "rebase":
        raise InputError(f"judgments {action}: it is not rebase; without it judgments are exported")
    old = None if texts is None else texts_of(texts)
    with cli.open_existing_store(store) as opened:
        found = rebase(opened, old, apply=apply)
    cli.present(found, as_json, repeated("--apply") if found.values["written"] and not apply else None, titled=True)


def agreement_command(
    query_set: str | None = None,
    weights: str = "quadratic",
    level: str = "ordinal",
    seed: int = 0,
    ids: cli.IdsOption = False,
    store: cli.StoreOption = None,
    as_json: cli.JsonOption = False,
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
    with cli.open_existing_store(store) as opened:
        queries = {query.qid: query for query in cli.queries_of(opened, query_set)}
        every = Labels().read(opened, set(queries))
        labels, of_store = of_memories(every)
        relevant_from = opened.query_sets.relevant_from_of([judgment.qid for judgment in of_store])
        scale = [grade for grade, _ in opened.query_sets.get(query_set).scale.grades] if query_set else []
        memories = opened.memories.read({label.memory_id for label in labels})
    table = agreement.label_table(labels, scale)
    rows: list[tuple[str, agreement.Estimate, str]] = [
        (f"{agreement.KAPPA_NAME}, {' and '.join(both)}", kappa, agreement.kappa_reading(kappa))
        for both, kappa in agreement.pairwise_kappa(table, weights, seed=seed).items()  # type: ignore[arg-type]
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
    values = {name: {**dataclasses.asdict(estimate), "reading": reading} for name, estimate, reading in rows}
    no_answer = {"no_answer": dataclasses.asdict(whole_queries)} if whole_queries.queries else {}
    shared = tuple((name, str(one), one.pairs, read) for name, one, read in rows if one.pairs or one is whole)
    pairs = tuple(
        (one.qid, one.memory_id, ", ".join(f"{who} {grade}" for who, grade in one.grades.items())) for one in differing
    )
    found = Report(
        tables=[
            Table(("", "coefficient", "pairs", "read as"), shared),
            Table(("query", "memory", "grades"), pairs, f"{counted(len(differing), 'pairs')} with different grades"),
        ],
        notes=[line] if (line := str(whole_queries)) else (),
        values={"coefficients": values, "disagreements": list(map(dataclasses.asdict, differing)), **no_answer},
    )
    texts = {qid: query.query for qid, query in queries.items()}
    again = ("app",) if differing else ("evaluate", query_set or "all")
    then = words_of(*again, options=cli.given_options(store=store))
    cli.present(found, as_json, then, memories=None if ids else memories, queries=texts)


def dataset_command(
    format: str,
    out: Path,
    query_set: str | None = None,
    project: str | None = None,
    *,
    labels: Labels,
    store: cli.StoreOption = None,
    as_json: cli.JsonOption = False,
) -> None:
    """Export memories, queries and judgments together.

    `judgments` exports judgments alone, `export` a config. What the format cannot hold is listed on stderr, with exit code 1.
    """
    from cems_workbench.formats import dataset_writers, write_dataset

    with cli.open_existing_store(store) as opened, cli.progress_bar(as_json) as progress:
        dataset = _dataset(opened, query_set, project, labels)
        done = write_dataset(format, dataset, out, progress)
    kinds = dataset_writers()[format].kinds
    others = () if len(kinds) == 1 else [name for name in ("relations", "queries", "judgments") if name not in kinds]
    left = {name: len(rows) for name in others if (rows := list(getattr(dataset, name)))}
    notes = []
    for kind, count in left.items():
        other = "judgments --format judgments-jsonl" if kind == "judgments" else f"dataset --format {kind}-jsonl"
        notes.append(f"{format} cannot hold the {count} {kind}; `{other}` writes them")
    counted = ", ".join(f"{count} {kind}" for kind, count in done.rows.items())
    report = Report(
        lines=[f"{counted} written to {out} as {format}", *notes, *done.notes],
        values={**dataclasses.asdict(done), "no_place_for": left, "out": str(out)},
    )
    cli.present(report, as_json)
    if not as_json:
        for line in done.not_kept:
            say(f"not kept: {line}", err=True)
        cli.say_left_out(done.left_out)
        say_next(words_of("import", out, options=["--store", unused(f"{out.stem}-store")]))
    if done.left_out or done.not_kept:
        raise typer.Exit(1)


def _dataset(store: Store, query_set: str | None, project: str | None, labels: Labels) -> DataSet:
    """What is asked for; the memories pass through, the rest is in memory. Raises InputError for an unknown project."""
    from cems_workbench.formats import DataSet

    queries = cli.queries_of(store, query_set)
    counts = dict(store.memories.projects())
    if problem := store.memories.project_problem(project):
        raise InputError(f"--project: {problem}")
    relations = store.relations.read()
    judgments = labels.read(store, {query.qid for query in queries})
    if project is not None:
        queries = [query for query in queries if query.project in (None, project)]
        about = {memory.id for memory in store.memories.iterate(project)}
        asked = {query.qid for query in queries}
        judgments = [label for label in judgments if label.memory_id in about and label.qid in asked]
        relations = [one for one in relations if one.source_id in about and one.target_id in about]
    total = store.memories.count() if project is None else counts[project]
    memories = store.memories.iterate(project)
    return DataSet(memories, total, relations, queries, judgments, store.memories.any_validity())


def sample_command(
    log: Path, query_set: str, strategy: str = "frequent", size: int = 100, seed: int = 0, store: cli.StoreOption = None
) -> None:
    """Sample a query log into a query set.

    Exits 2 if rows of the log were left out.
    """
    from cems_workbench.evaluation import log_sampling
    from cems_workbench.formats import log_format, logs, read
    from cems_workbench.formats.logs import askings, not_recorded
    from cems_workbench.jobs.factory import open_resources

    if strategy not in log_sampling.STRATEGIES:
        raise InputError(f"--strategy: {strategy!r} is not one of {', '.join(log_sampling.STRATEGIES)}")
    with cli.progress_bar() as progress:
        parsed = read(log, log_format(log) or logs.NAME, progress)
        errors = parsed.errors
        if not parsed.queries:
            raise InputError(f"{log} has no query that can be read" + (f"; {errors[0]}" if errors else ""))
        with closing(open_resources(cli.settings_for(store))) as resources:
            answers = resources.store.recorded_answers.resolved(parsed.answers, parsed.extra.get("id_length"))
            entries = askings(parsed.queries, answers)
            chosen, scores = log_sampling.sampled(entries, strategy, size, seed, resources, progress)
            made = resources.store.query_sets.put(query_set, [logged.query for logged in chosen], log.name)
    rows = [[logged.query.qid, logged.query.query, logged.times, scores.get(logged.query.qid)] for logged in chosen]
    cli.print_table(["qid", "query", "times", "judge"], rows)
    if len(answers) < len(entries):
        say(not_recorded(len(entries) - len(answers), len(entries)))
    say(f"query set {made.name}, version {made.version}: {counted(made.size, 'queries')}")
    options = ["--out", unused(f"{made.name}.evidence"), *cli.given_options(store=store)]
    say_next(words_of("gather", made.name, options=options))
    cli.say_left_out(errors, all_in_json=False)
    if errors:
        raise typer.Exit(2)
