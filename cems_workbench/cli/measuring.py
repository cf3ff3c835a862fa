"""What commands measure on, and with what: evidence files, or a query set of the store that is gathered first where it has to be."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cems_workbench.cli import options as cli
from cems_workbench.cli.terminal import flat, say, say_next, words_of
from cems_workbench.errors import InputError

if TYPE_CHECKING:
    from cems_workbench.analysis.losses_of_set import LossCollector, Losses
    from cems_workbench.config import PipelineConfig
    from cems_workbench.evaluation.assertions import Asserted, Outcome
    from cems_workbench.evaluation.batch import LabelledBatch, Rankings
    from cems_workbench.evaluation.comparison import Comparison
    from cems_workbench.evaluation.evaluate import Evaluation
    from cems_workbench.evaluation.evidence_file import EvidenceSet, Header
    from cems_workbench.evaluation.evidence_stream import EvidenceStream, StreamEvaluation
    from cems_workbench.evaluation.metrics import Measure
    from cems_workbench.jobs.evaluation import EvaluationReport, LabelledEvidence
    from cems_workbench.jobs.regression import Regression

NameArgument = Annotated[str, cli.option("NameArgument")]
NamesArgument = Annotated[list[str], cli.option("NamesArgument")]
PerQueryProjectOption = Annotated[bool, cli.option("PerQueryProjectOption")]
LimitOption = Annotated[int | None, cli.option("LimitOption")]
SeedOption = Annotated[int, cli.option("SeedOption")]
CI_GUARD, WATCH_GUARD = "nDCG@10 p<0.05", "nDCG@10 p<0.01"
"""What `ci check` and `watch` assert by default. Measured daily, a p below 0.05 comes by chance every three weeks."""
Options = Sequence[tuple[str, str]]
"""Command line options with their values that name a config for `fill-scores`."""
MetricOption = Annotated[list[str] | None, cli.option("MetricOption")]
GradeOption = Annotated[int | None, cli.option("GradeOption")]
JudgeKindOption = Annotated[Literal["human", "model"] | None, cli.option("JudgeKindOption")]
CreditOption = Annotated[Literal["successors"] | None, cli.option("CreditOption")]
ToleranceOption = Annotated[float | None, cli.option("ToleranceOption")]
BoundsOption = Annotated[list[str] | None, cli.option("BoundsOption")]


@dataclass(frozen=True)
class Guards:
    """What must not be lost against the baseline: the first config, the version of a commit, or the last measurement."""

    no_loss: list[str] | None = None
    tolerance: ToleranceOption = None
    cannot_tell: Literal["pass", "fail"] | None = None

    def asserted(self, default: Sequence[str] = (), bounds: Sequence[str] | None = None) -> Asserted:
        """What is asserted, with bounds; `default` where no guard was given. Raises InputError."""
        from cems_workbench.evaluation.assertions import Asserted

        no_loss = default if self.no_loss is None else self.no_loss
        return Asserted(no_loss, bounds or (), self.tolerance, self.cannot_tell)


@dataclass(frozen=True)
class ConfigsChoice:
    """The configs of a command."""

    config: cli.ConfigsOption = None
    preset: cli.PresetsOption = None
    changes: cli.SetOption = None

    def read(
        self, header: Header | None, ablate: str | None = None, store: Path | None = None
    ) -> list[tuple[PipelineConfig, Options]]:
        """The configs on evidence with this header, as `configs_for`."""
        return configs_for(header, self.config, self.preset, self.changes, ablate, store)

    def require_two(self, command: str, evidence: Sequence[str]) -> None:
        """Raise InputError unless at least two configs are named; a missing file is named first."""
        for path in evidence_files(evidence) or ():
            if not path.exists():
                raise InputError(f"{path}: no such evidence file")
        if len(self.config or ()) + len(self.preset or ()) < 2:
            raise InputError(f"{command} needs at least two configs: --config A --config B (files, or presets by name)")

    def words(self) -> list[str]:
        """The options that were given, as words for the command that goes on."""
        return flat([*_named(self.config, self.preset), *(("--set", text) for text in self.changes or ())])


@dataclass(frozen=True)
class ComparedConfigs(ConfigsChoice):
    """The configs of a command that compares: there is no default."""

    preset: list[str] | None = None


@dataclass(frozen=True)
class Measuring:
    """How configs are measured."""

    metric: MetricOption = None
    grade: GradeOption = None
    judge_kind: JudgeKindOption = None
    credit: CreditOption = None
    per_query_project: PerQueryProjectOption = False
    seed: SeedOption = 0
    store: cli.StoreOption = None


@dataclass(frozen=True, eq=False)
class Measured:
    """Configs measured on named evidence, in their order; a stream of evidence is open meanwhile."""

    files: list[Path]
    configs: list[tuple[PipelineConfig, Options]]
    how: Measuring
    losses: Callable[..., Losses | None]
    """Where configs lose relevant memories, so many of each branch; None if they were not counted, or `if_any` there are none."""
    source: EvidenceSet | EvidenceStream
    """The evidence of the first config, or the stream."""
    evaluations: Sequence[Evaluation]
    made_on: Sequence[tuple[str, str]]
    """Of each config the hash of its evidence and who answered its lists."""
    rows: Sequence[EvaluationReport] = ()
    """Without those of a stream, whose `overlaps` are those of the results, as `compare` takes them."""
    overlaps: Sequence[float] = ()

    @property
    def comparison(self) -> Comparison:
        """The configs compared with the first of them."""
        from cems_workbench.evaluation.comparison import compare

        return compare(self.evaluations, seed=self.how.seed, overlaps=self.overlaps)

    def to_json(self) -> list[dict[str, Any]]:
        """The evaluations as plain values; for very many queries without the values of each."""
        from cems_workbench.jobs.evaluation import MAX_QUERIES_PRINTED

        return [
            one.to_json(len(one.qids) <= MAX_QUERIES_PRINTED)
            | {"content_hash": made_on}
            | ({"lists": answered} if answered else {})
            for one, (made_on, answered) in zip(self.evaluations, self.made_on, strict=True)
        ]

    def score_commands(self) -> list[list[str]]:
        """The commands that add missing reranker scores, one per evidence file; a stream names none."""
        options: dict[Path, list[tuple[str, str]]] = {}
        for row, (_, named) in zip(self.rows, self.configs, strict=False):
            if row.evaluation.rankings.unscored:
                options.setdefault(row.labelled.evidence.path, []).extend(named)
        return [score_command(path, named, self.how.store) for path, named in options.items()]


@contextmanager
def measured(
    names: Sequence[str],
    choice: ConfigsChoice,
    how: Measuring,
    quiet: bool = False,
    *,
    further: Callable[[int], Sequence[Measure]] = lambda relevant_from: (),
    ablate: str | None = None,
    limit: int | None = None,
    count_losses: int | None = None,
    run_out: Path | None = None,
) -> Iterator[Measured]:
    """Measure configs on named evidence; files that are too large for memory are streamed, and stay open meanwhile.

    Args:
        further: measures beside the chosen ones, by the lowest relevant grade.
        limit: size of a random sample of the queries to gather.
        count_losses: count the relevant memories that are lost below this rank.
        run_out: write the rankings of the only config as a TREC run.

    Raises InputError for arguments that do not fit, before anything is gathered.
    """
    from cems_workbench.analysis.losses_of_set import LossCollector, stream_words
    from cems_workbench.evaluation.evidence_stream import EvidenceStream
    from cems_workbench.evaluation.report import write_run
    from cems_workbench.jobs.evaluation import evaluate_configs, measured_losses, refuse_nothing, streamed

    def wanted(relevant_from: int) -> tuple[int, tuple[Measure, ...]]:
        least = relevant_from if how.grade is None else how.grade
        return least, chosen_measures(how.metric, least, further(least))

    def configs_of(header: Header | None) -> list[tuple[PipelineConfig, Options]]:
        configs = choice.read(header, ablate, how.store)
        if run_out is not None and len(configs) > 1:
            raise InputError(f"--run-out holds one run, and there are {len(configs)} configs")
        return configs

    wanted(1)
    paths = evidence_files(names, gathering=how.per_query_project or limit is not None)
    if paths is not None and streamed(paths):
        if how.credit is not None:
            raise InputError("--credit reads the results of every query, which evidence of this size or of several files does not keep")
        with EvidenceStream(paths) as stream:
            configs = configs_of(stream.header)
            least, measures = wanted(stream.header.relevant_from)
            counted = LossCollector([one for one, _ in configs], least, count_losses) if count_losses else None
            found = _streamed(stream, configs, measures, how, run_out, quiet, counted)

            def of_stream(shown: int, if_any: bool = False) -> Losses | None:
                if counted is None or (if_any and not counted.relevant):
                    return None
                return stream_words(counted, stream, shown)

            made_on = [(stream.content_hash, found.answered)] * len(configs)
            yield Measured(paths, configs, how, of_stream, stream, found.evaluations, made_on, overlaps=found.overlaps)
        return
    chosen: list[tuple[PipelineConfig, Options]] = []

    def plain_configs(header: Header | None) -> list[PipelineConfig]:
        chosen.extend(configs_of(header))
        return [one for one, _ in chosen]

    within, drawing = how.per_query_project, (limit, how.seed)
    labelled, relevant_from = labelled_evidence(
        names[0], plain_configs, how.judge_kind, how.store, quiet, only_project=within, drawing=drawing, successors=how.credit is not None
    )
    least, measures = wanted(relevant_from)
    refuse_nothing(labelled[chosen[0][0]].batch.queries, names[0])
    with cli.progress_bar(quiet) as progress:
        named = [(one.name, one) for one, _ in chosen]
        rows, _ = evaluate_configs(named, labelled.__getitem__, measures, seed=how.seed, progress=progress)
    if run_out is not None:
        write_run(run_out, rows[0].batch, rows[0].evaluation)

    def losses(shown: int, if_any: bool = False) -> Losses | None:
        none = not any((row.batch.ideal >= least).any() for row in rows)
        return None if not count_losses or (if_any and none) else measured_losses(rows, least, count_losses, shown)

    evaluations, of_rows = [row.evaluation for row in rows], [(row.content_hash, row.answered) for row in rows]
    yield Measured(paths or [], chosen, how, losses, rows[0].labelled.evidence, evaluations, of_rows, rows)


def _streamed(
    stream: EvidenceStream,
    configs: Sequence[tuple[PipelineConfig, Options]],
    measures: Sequence[Measure],
    how: Measuring,
    run_out: Path | None,
    quiet: bool,
    counted: LossCollector | None,
) -> StreamEvaluation:
    """Measure the configs on a stream; the run is written as it is computed, and losses are counted."""
    from cems_workbench.evaluation.report import run_lines
    from cems_workbench.jobs.evaluation import evaluate_streamed
    from cems_workbench.platform.atomic_write import write_atomically

    with cli.progress_bar(quiet) as progress, ExitStack() as stack:
        file = None
        try:
            if run_out is not None:
                part = stack.enter_context(write_atomically(run_out))
                file = stack.enter_context(part.open("w", encoding="utf-8", newline="\n"))

            def each(batch: LabelledBatch, found: Sequence[Rankings]) -> None:
                if file is not None:
                    file.write(run_lines(batch, found[0]))
                if counted is not None:
                    counted(batch, found)

            chosen = [one for one, _ in configs]
            return evaluate_streamed(
                stream, chosen, measures, how.judge_kind, seed=how.seed, each=each, progress=progress
            )
        except (OSError, ValueError) as error:
            if run_out is None:
                raise
            raise InputError(f"{run_out}: cannot be written: {error}") from None


def evidence_files(names: Sequence[str], gathering: bool = False) -> list[Path] | None:
    """The names as evidence files; None for one name that is none, which then is that of a query set. Raises InputError
    if one of several is no evidence file, and for a file together with options of `gathering`."""
    from cems_workbench.evaluation.evidence_file import is_evidence_file
    from cems_workbench.jobs.query_set_evidence import SUFFIX

    paths = [Path(name) for name in names]
    # A missing or damaged file is named as such, and not as a query set that the store lacks.
    are_files = [is_evidence_file(path) or path.suffix == SUFFIX for path in paths]
    if any(are_files) and gathering:
        raise InputError("--per-query-project and --limit are for gathering; the evidence file is gathered already")
    if len(paths) > 1 and not all(are_files):
        raise InputError(f"{paths[are_files.index(False)]}: of several names each has to be an evidence file")
    return paths if all(are_files) else None


def labelled_evidence(
    name: str,
    configs_of: Callable[[Header | None], Sequence[PipelineConfig]],
    judges: str | None,
    store: Path | None,
    quiet: bool,
    *,
    only_project: bool = False,
    judged: bool = True,
    drawing: tuple[int | None, int] = (None, 0),
    successors: bool = False,
) -> tuple[dict[PipelineConfig, LabelledEvidence], int]:
    """The labelled evidence of each config, the same of a file or a separate one of a set, in their order; and the lowest relevant grade.

    That of a set is cached, or gathered and cached; `drawing` is the size of a sample of its queries, and the seed. `configs_of` is given
    the header of a file or of recorded stages, None for a set of the store; without `judged` a set has its queries without a judgment too.
    Raises InputError for a name that is neither, StoreError without a store.
    """
    from cems_workbench.jobs.evaluation import agreed, labelled, labelled_file
    from cems_workbench.jobs.factory import RecentCache, open_resources
    from cems_workbench.jobs.query_set_evidence import ensure_evidence, selected
    from cems_workbench.jobs.traced_sets import traced_header

    if evidence_files([name], gathering=only_project) is not None:
        read = cli.read_evidence(Path(name))
        of_file = labelled_file(read, judges, successors=successors)
        return dict.fromkeys(configs_of(read.header), of_file), read.header.relevant_from
    configs = configs_of(traced_header(cli.settings_for(store).store, name))
    begun = datetime.now(UTC)
    found: dict[PipelineConfig, LabelledEvidence] = {}
    cache = RecentCache(size=2)  # consecutive configs often need the same evidence
    with closing(open_resources(cli.settings_for(store), create=False)) as resources:
        selection, judgments = selected(name, resources, judged, only_project, *drawing)
        if selection.without_project:
            say(f"note: {selection.without_project}", err=True)
        grades = agreed(judgments, judges, successors)
        for config in configs:
            with cli.progress_bar(quiet) as progress:
                evidence = ensure_evidence(config, selection, judgments, resources, progress, cache, begun)
            found[config] = labelled(evidence, grades, cache, timed=False)
        return found, resources.store.query_sets.relevant_from(name)


def configs_for(
    header: Header | None,
    files: Sequence[Path] | None,
    presets: Sequence[str] | None,
    changes: Sequence[str] | None,
    ablate: str | None,
    store: Path | None = None,
) -> list[tuple[PipelineConfig, Options]]:
    """The named configs, or the default one, and their ablations, each with the options that name it for `fill-scores`.
    The default is the config that a file with this header was gathered with, and for a query set (None) the default
    preset."""
    from cems_workbench.evaluation.evaluate import ablations

    configs = chosen_configs(files, presets, changes, store) or [default_config(header, changes, store)]
    named = [[option] for option in _named(files, presets)]
    further = [("--set", text) for text in changes or ()] + ([("--ablate", ablate)] if ablate else [])
    return [
        (variant, [*options, *further])
        for chosen, options in zip(configs, named or [[]], strict=True)
        for variant in (ablations(ablate, chosen) if ablate else [chosen])
    ]


def _named(files: Sequence[Path] | None, presets: Sequence[str] | None) -> list[tuple[str, str]]:
    """The options in the order in which they were typed: the first config is the baseline, be it a file or a preset."""
    named = [*(("--config", str(path)) for path in files or ()), *(("--preset", name) for name in presets or ())]
    typed = [word for word in (word.partition("=")[0] for word in sys.argv[1:]) if word in ("--config", "--preset")]
    if sorted(typed) != sorted(option for option, _ in named):
        return named
    each = {option: iter([value for name, value in named if name == option]) for option in typed}
    return [(option, next(each[option])) for option in typed]


def score_command(evidence: Path, named: Options, store: Path | None = None) -> list[str]:
    """What adds the missing scores of a file for the configs that these options name."""
    return words_of("fill-scores", evidence, options=[*flat(named), *cli.given_options(store=store)])


def decide(found: Regression, as_json: bool, *then: Sequence[str] | None) -> None:
    """Print what got worse, and exit as `finish` does."""
    cli.present(found, as_json)
    finish(found.outcomes, *(() if as_json else then))


def finish(outcomes: Sequence[Outcome], *then: Sequence[str] | None) -> None:
    """Print what to type next; exit with 1 if something asserted does not hold, with 3 if otherwise a verdict cannot tell."""
    from cems_workbench.evaluation.assertions import exit_code

    say_next(*then)
    if code := exit_code(outcomes):
        raise typer.Exit(code)


def default_config(header: Header | None, changes: Sequence[str] | None, store: Path | None = None) -> PipelineConfig:
    """The config that a file was gathered with; the default preset for a query set."""
    from cems_workbench.config import parse_assignment, with_values

    if header is None:
        return cli.chosen_config(None, None, changes, store)
    return with_values(header.config, dict(parse_assignment(text) for text in changes or ()), "--set")


def chosen_configs(
    files: Sequence[Path] | None,
    presets: Sequence[str] | None,
    changes: Sequence[str] | None,
    store: Path | None = None,
) -> list[PipelineConfig]:
    """The named configs with the changes applied, each under a unique name."""
    from cems_workbench.jobs.catalogue import with_unique_names

    named = ((None, Path(name)) if option == "--config" else (name, None) for option, name in _named(files, presets))
    return with_unique_names([cli.chosen_config(preset, path, changes, store) for preset, path in named])


def chosen_measures(names: Sequence[str] | None, grade: int, further: Sequence[Measure] = ()) -> tuple[Measure, ...]:
    """The named measures, or those of a full report, and the further ones. A name may hold several, separated by spaces."""
    from cems_workbench.evaluation.metrics import parse_measures, standard_measures

    wanted = parse_measures(" ".join(names), grade) if names else standard_measures(grade)
    return tuple(dict.fromkeys([*wanted, *further]))
