"""Tuning job: a search for a better config on labelled evidence; page and command resume each other's search.

    TuningData       the baseline, and the labelled evidence of a query set
    PlannedSearch    space, goal, split, number of configs, seed
    SearchResult     proposal, gains, missing evidence

`run_search` searches and saves every score in a file next to the evidence, under evidence, grades, measures, seed and queries: the same
search on the same evidence file resumes, with the same result. `with_stability` measures how far each value of the proposal can move.
`open_holdout` scores the sealed queries; page and command count the looks together (`looks_at`). `card_of` makes the evidence card.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np

from cems_workbench.config import EvidenceCard, PipelineConfig
from cems_workbench.config.forms.targets import NAMED, System, exported, preset_behind
from cems_workbench.errors import InputError, StoreError, StoreLockedError
from cems_workbench.evaluation.batch import UNSCORED, LabelledBatch, missing_score_lines
from cems_workbench.evaluation.evidence_file import EvidenceSet, replace_judgments
from cems_workbench.evaluation.metrics import relevance_words
from cems_workbench.jobs.evaluation import AgreedGrades, LabelledEvidence, labelled, labelled_selection
from cems_workbench.jobs.factory import Cache, uncached
from cems_workbench.jobs.query_set_evidence import EVIDENCE_FOLDER, QuerySelection
from cems_workbench.jobs.traces import require_replayable
from cems_workbench.pipeline.effects import idle_parameters
from cems_workbench.pipeline.list_sources import SOURCES
from cems_workbench.pipeline.missing_evidence import gather_parameters, unmet
from cems_workbench.pipeline.resources import Resources
from cems_workbench.pipeline.supersession import SUPERSEDED
from cems_workbench.progress import Cancelled, Progress
from cems_workbench.tuning import tune as protocol
from cems_workbench.tuning.holdout import (
    GROUP_WORDS,
    MIN_SEALED,
    Gain,
    GroupBy,
    HoldoutLooks,
    Split,
    few_sealed,
    groups_of,
    looks_path,
    mean_of,
    natural_grouping,
    split,
)
from cems_workbench.tuning.learned import Region, stability
from cems_workbench.tuning.objective import Goal, Scored
from cems_workbench.tuning.scorer import BatchScorer, ScoreCache, measurable, search_marks
from cems_workbench.tuning.space import Axis, SearchSpace, axis_for, parse_axis, replaced, searchable, value_at
from cems_workbench.tuning.tune import Plan, Tuned, Watch, WatchFactory, evidence_card, unwatched
from cems_workbench.tuning.unlabelled import (
    AGAINST_RERANKER,
    TOP_GRADE,
    before_reranker,
    candidate_lists,
    reference_reranker,
    require_tunable_unlabelled,
    reranker_grades,
)

if TYPE_CHECKING:
    from cems_workbench.settings import Settings
    from cems_workbench.store import Store

DEFAULT_SPACE = (
    "lists.vector.weight",
    "lists.lexical.weight",
    "fusion.k",
    "fusion.score_blend",
    "fusion.top_rank_bonus.rank1",
    "lists.lexical.normalization",
)
"""The searched parameters by default, where the config runs in no target."""
HOW_MANY = frozenset({"assembly.limit", "assembly.max_tokens"})
"""Searched only where they are named: more results raise most measures, at a cost that no measure has."""
MAIN_SEARCH = "search"
"""The name of the search over all open queries; the others are folds."""


@dataclass(frozen=True, eq=False)
class TuningData:
    """The input of a search: a baseline, and the labelled evidence of a query set that was gathered for it."""

    baseline: PipelineConfig
    query_set: str
    labelled: LabelledEvidence
    relevant_from: int = 1
    """The lowest relevant grade of the query set."""
    stands_in: str = ""
    """The reranker whose order replaces judgments (`unlabelled_data`); empty with judgments."""
    before_reranker: bool = False
    """Is the fused ranking measured, before the reranker?"""

    @property
    def evidence(self) -> EvidenceSet:
        """The evidence, with its header."""
        return self.labelled.evidence

    @property
    def batch(self) -> LabelledBatch:
        """Every judged query that was gathered; some may have no relevant memory."""
        return self.labelled.batch

    @property
    def unscored(self) -> Mapping[str, int]:
        """What the evidence lacks for the baseline, as `Rankings.needs`, if that includes scores of its reranker."""
        ranked = before_reranker(self.baseline) if self.before_reranker else self.baseline
        needs = self.batch.rankings(ranked).needs
        return needs if UNSCORED in needs else {}


NO_CONFIG_HOLDS_GUARDS = "No tried config holds every guard, nor does the baseline."


@dataclass(frozen=True)
class SearchSettings:
    """Settings of a search: the grouping, folds, the sealed share, the number of configs, and the seed."""

    group_by: GroupBy
    folds: int = 5
    sealed: float = 0.2
    trials: int = 200
    seed: int = 0

    def split(self, batch: LabelledBatch) -> Split:
        """The queries in folds and hold-out. Raises InputError for too few groups."""
        return split(groups_of(batch, self.group_by), self.folds, self.sealed, self.seed)


@dataclass(frozen=True, eq=False)
class PlannedSearch:
    """A search that can run: the plan, the scorer, and the file of its scores."""

    data: TuningData
    plan: Plan
    score: BatchScorer
    """The scorer of configs on the scored queries."""
    group_by: GroupBy
    beyond: Sequence[str] = ()
    """A line for each axis whose values need evidence that was not gathered, and one if the hold-out is too small."""

    @property
    def batch(self) -> LabelledBatch:
        """The scored queries, in the rows of the plan."""
        return self.score.batch

    @property
    def relevance(self) -> str:
        """Description of the relevance grade and the denominator."""
        if self.data.stands_in:
            return (
                f"Unlabelled: the order of {self.data.stands_in} stands in for judgments, its first {TOP_GRADE} with grades "
                f"{TOP_GRADE} to 1; means of {len(self.batch.queries)} of {len(self.data.evidence.queries)} queries, ranked as fused"
            )
        grade, judged = self.plan.goal.objectives[0].grade, self.data.batch
        counted, without = (~self.batch.without_answer(grade)).sum(), judged.without_answer(grade).sum()
        return relevance_words(grade, int(counted), len(judged.queries), int(without))

    @property
    def measure(self) -> str:
        """Display name of the deciding measure, marked if a reranker's order replaces judgments."""
        return f"{self.plan.goal.objectives[0]}{AGAINST_RERANKER if self.data.stands_in else ''}"

    @property
    def kept_scores(self) -> ScoreCache:
        """The file of the scores, next to the evidence."""
        evidence = self.data.evidence
        marks = search_marks(evidence.replay_hash, self.batch, self.plan.goal.measures, self.plan.seed)
        return ScoreCache.beside(evidence.path, marks)

    @property
    def sealed(self) -> list[str]:
        """The ids of the queries of the hold-out."""
        return [self.batch.qids[row] for row in self.plan.split.holdout.tolist()]

    @property
    def most_configs(self) -> int:
        """Maximum number of configs to score, including the folds, which share the configs of a grid."""
        plan = self.plan
        return min(plan.trials, plan.space.size) if plan.space.is_grid else plan.trials * (1 + len(plan.split.folds))


@dataclass(frozen=True)
class ByJudgments:
    """The gains by judgments of a proposal that was tuned without them, compared with a search on judgments. All gains
    are over the baseline, on the same judged queries: those that a labelled search with the same settings would not
    seal."""

    query_set: str
    proposal: Gain
    """Of the fused ranking."""
    as_ranked: Gain
    """Of the final ranking of the config."""
    labelled: Gain
    """Of the same ranking, cross-validated: the choices of a search on judgments, on other folds."""
    hindsight: Gain
    """Of the same ranking: the proposal of that search, on the queries that it was chosen on."""
    labelled_values: Mapping[str, object]
    """The proposal of that search, by parameter."""
    lacking: Sequence[str] = ()
    """What baseline and proposal need with their rerankers and the evidence lacks."""

    @property
    def share(self) -> float | None:
        """The proposal's gain divided by the gain in hindsight, an upper bound of the labelled gain; None if that is not significant."""
        sure = min(self.hindsight.direction * edge for edge in (self.hindsight.low, self.hindsight.high)) > 0
        return self.proposal.improvement / self.hindsight.improvement if sure else None

    @property
    def share_words(self) -> str:
        """Description of `share`."""
        if self.share is None:
            return "no share of a labelled gain can be given: with judgments no gain is shown either"
        return f"{self.share:.0%} of what judgments gain in hindsight, on the very queries that they chose on"


@dataclass(frozen=True, eq=False)
class SearchResult:
    """A finished or stopped search."""

    planned: PlannedSearch
    tuned: Tuned
    regions: Sequence[Region] = field(default_factory=tuple)
    """The stability region of every searched parameter; empty before `with_stability`."""
    needs: Sequence[tuple[PipelineConfig, Mapping[str, int]]] = field(default_factory=tuple)
    """Baseline and proposal, if the evidence lacks something that they need, with their `Rankings.needs`."""
    not_kept: str = ""
    """Why its scores could not be saved; empty if they were."""
    by_judgments: ByJudgments | None = None
    """The gains by judgments of a proposal that was tuned without them; None before that is measured, and for a labelled search."""

    @property
    def better(self) -> bool:
        """Is another config than the baseline proposed?"""
        return not self.tuned.kept

    @property
    def lacking(self) -> list[str]:
        """Lines about what baseline and proposal need and the evidence lacks."""
        return missing_score_lines((config.name, needs) for config, needs in self.needs)


def tuning_data(
    baseline: PipelineConfig,
    selection: QuerySelection,
    grades: AgreedGrades,
    resources: Resources,
    cache: Cache = uncached,
) -> TuningData | None:
    """The input of a search over the queries of a store; None if the evidence of the baseline must be gathered first.
    Raises InputError for damaged evidence."""
    if (labelled := labelled_selection(baseline, selection, grades, resources, cache)) is None:
        return None
    relevant_from = resources.store.query_sets.relevant_from(selection.query_set)
    return TuningData(baseline, selection.query_set, labelled, relevant_from)


def unlabelled_data(
    baseline: PipelineConfig, query_set: str, evidence: EvidenceSet, cache: Cache = uncached
) -> TuningData:
    """The input of a search without judgments, from the order of a reranker that scored the evidence. No judgment is
    read. Raises InputError if the evidence has no scores of a suitable reranker."""
    found = evidence.evidences
    reranker = reference_reranker(baseline, found.values())
    grades = reranker_grades(found, reranker) if reranker is not None else {}
    if reranker is None or not grades:
        raise InputError(
            f"{evidence.path}: no reranker whose order can replace judgments has scored enough of its candidates; one that reads with the "
            "embedder cannot. Gather it with another, or score it: --set rerank.backend=cross_encoder"
        )
    digest = hashlib.sha256(repr((reranker, sorted(map(repr, grades.items())))).encode()).hexdigest()[:16]
    unsaid = dict.fromkeys((query.qid for query in evidence.queries), None)
    standing = AgreedGrades(grades, evidence.judgments, digest, unsaid)  # the judgments in the file stay
    on = labelled(evidence, standing, cache)
    return TuningData(baseline, query_set, on, stands_in=reranker, before_reranker=True)


def scored_queries(data: TuningData, measures: Sequence[Scored], seed: int, cache: Cache = uncached) -> BatchScorer:
    """A scorer of the queries that a measure is defined for, which remembers its scores as long as `cache` keeps it."""
    ranks_as = before_reranker if data.before_reranker else None
    return cache(
        ("scorer", *data.labelled.key, tuple(measures), seed, data.before_reranker),
        lambda: BatchScorer(measurable(data.batch, measures), measures, seed, ranks_as=ranks_as),
    )


def plan_search(
    data: TuningData, score: BatchScorer, space: SearchSpace, goal: Goal, settings: SearchSettings
) -> PlannedSearch:
    """Plan a search over the queries of a scorer. Raises InputError if they cannot be split by the settings."""
    made = "unlabelled" if data.stands_in else "tuned"
    plan = Plan(space, goal, settings.split(score.batch), score.batch.types, settings.trials, settings.seed, made)
    beyond = [line for axis in space.axes if (line := _beyond(axis, data))]
    if 0 < (sealed := len(plan.split.holdout)) < MIN_SEALED:
        beyond.append(few_sealed(sealed))
    return PlannedSearch(data, plan, score, settings.group_by, beyond)


def tunable(system: System, config: PipelineConfig) -> dict[str, str]:
    """The parameters that a target has under a config, by path with the name of their setting: those that replay can search and that are
    not idle, here or with one list and no further wordings. Which model or part is used is no parameter to tune."""
    idle, known = {*idle_parameters(config)}, {spec.path for spec in searchable()}
    if config.expansion.backend == "none":
        idle |= {"variants.expansion_weight", "variants.decomposed_weight"}
    lists = [name for name in SOURCES if config.get(f"lists.{name}.enabled")]
    if len(lists) == 1 and config.expansion.backend == "none" and config.fusion.single_list != "fuse":
        idle |= {f"lists.{lists[0]}.weight", "fusion.k"}
    found = {
        spec.path: export.name
        for spec, export in exported(system.form)
        if export.codec not in NAMED and spec.path in known and spec.path not in idle
    }
    return {path: name for path, name in found.items() if not gathers_anew(config, axis_for(path))}


def gathers_anew(config: PipelineConfig, axis: Axis) -> bool:
    """Whether each value of a parameter needs separate evidence, such as engram's limit, of which its pool is three times."""
    least, most = (replaced(config, {axis.path: axis.value(place)}) for place in (0, axis.size - 1))
    return bool(unmet(least, {"gathered": gather_parameters(most), SUPERSEDED: ()}, lambda characters: False))


def no_program(system: System | None, baseline: PipelineConfig) -> list[str]:
    """A line where the baseline is of a preset that is no program of the target."""
    behind = preset_behind(baseline)
    if system is None or behind is None or behind in system.presets:
        return []
    return [f"baseline {baseline.name} is no program of {system.title}; its presets: {', '.join(system.presets)}"]


def default_axes(data: TuningData, system: System | None) -> list[Axis]:
    """What is searched by default: what the target has and can use but `HOW_MANY`, within the evidence; of no target
    `DEFAULT_SPACE` without what is idle. Raises InputError if the target has nothing to search."""
    baseline, gathered = data.baseline, data.evidence.header.config
    if data.stands_in:
        return [parse_axis(f"lists.{name}.weight", gathered) for name in candidate_lists(baseline)]
    if system is None:
        idle = idle_parameters(baseline)
        return [parse_axis(path, gathered) for path in DEFAULT_SPACE if path not in idle]
    axes, has = [], tunable(system, baseline)
    for spec, export in exported(system.form):
        if spec.path in has and spec.path not in HOW_MANY:
            axis = axis_for(spec.path, gathered)
            if not axis.choices:
                low, high = (
                    (axis.low if export.low is None else export.low),
                    axis.high if export.high is None else export.high,
                )
                axis = replace(axis, low=max(axis.low, low), high=min(axis.high, high))
            if (axis := _gathered(axis, data)).size > 1:
                axes.append(axis)
    if not axes:
        named = ", ".join(sorted(HOW_MANY & has.keys())) or "one"
        raise InputError(
            f"{system.title} has no parameter to tune by default under {baseline.name}; --space names {named}, --target own has all"
        )
    return axes


def _needs(axis: Axis, place: int, data: TuningData) -> set[str]:
    """What the evidence lacks with a value of the axis, and has with the baseline's."""
    config = replaced(data.baseline, {axis.path: axis.value(place)})
    return set(data.batch.unmet(config)) - set(data.batch.unmet(data.baseline))


def _gathered(axis: Axis, data: TuningData) -> Axis:
    """The axis without the values that need other evidence: of a range those around the baseline's that need none."""
    if axis.choices:
        return replace(axis, choices=tuple(axis.value(i) for i in range(axis.size) if not _needs(axis, i, data)))
    start = axis.place(value_at(data.baseline, axis.path))
    first = bisect_left(range(start), True, key=lambda place: not _needs(axis, place, data))
    after = bisect_left(range(axis.size), True, lo=start + 1, key=lambda place: bool(_needs(axis, place, data)))
    return replace(axis, low=float(axis.value(first)), high=float(axis.value(after - 1)))


def _beyond(axis: Axis, data: TuningData) -> str:
    lacking = set() if data.evidence.external else _needs(axis, 0, data) | _needs(axis, axis.size - 1, data)
    if not lacking:
        return ""
    within, mend = _gathered(axis, data), f"gather with --set {axis.path}={axis.value(axis.size - 1)}"
    upto = "" if within.choices else f" above {within.high:g}"
    if not within.choices and within.low > axis.low:
        upto, mend = f" other than {within.low:g}", "each value needs separate evidence"
    return f"{axis.path}{upto}: the evidence lacks {'; '.join(sorted(lacking))}: those figures are of what is there; {mend}"


def planned_search(
    data: TuningData,
    goal: Goal,
    space: Sequence[str] = (),
    *,
    group_by: GroupBy | None = None,
    folds: int = 5,
    sealed: float = 0.2,
    trials: int = 200,
    seed: int = 0,
    system: System | None = None,
) -> PlannedSearch:
    """Plan a search from text: `space` is parsed by `parse_axis`; by default it has the parameters of the target `system`, else
    weights of lists and fusion, and without labels the weight of each list that adds candidates. `group_by` None is the natural grouping of
    the queries.

    Raises InputError for an invalid axis, queries that cannot be split, no query with a relevant memory, and where the baseline's
    reranker has not scored its candidates: the search would compare what is missing.
    """
    require_replayable(data.query_set or data.evidence.path, data.evidence.external, "tuning")
    queries = scored_queries(data, goal.measures, seed)
    if not queries.batch.queries:
        known = "has a relevant memory" + (", or is known to have no answer" if goal.of_no_answer else "")
        raise InputError(f"{data.evidence.path}: no query in it {known}; label some first")
    if needs := data.unscored:
        raise InputError(
            f"{data.evidence.path}: {'; '.join(missing_score_lines([(data.baseline.name, needs)]))}; score them first with fill-scores"
        )
    axes = [parse_axis(text, data.evidence.header.config) for text in space] or default_axes(data, system)
    if data.stands_in:
        require_tunable_unlabelled(axes)
    settings = SearchSettings(group_by or natural_grouping(queries.batch), folds, sealed, trials, seed)
    return plan_search(data, queries, SearchSpace.of(data.baseline, axes), goal, settings)


def run_search(planned: PlannedSearch, watch_for: WatchFactory = lambda name: unwatched) -> SearchResult:
    """Search, choose and cross-validate, starting with the saved scores of an earlier job of the same search.

    The judgments in the evidence file are replaced by those of the search. `watch_for` makes the watch of each: `search`, `fold 1`, …
    A watch may raise `Cancelled`: the trials so far stay in the result and in the score file; it is passed on if there are none.
    """
    _share_judgments(planned.data.labelled)
    planned.score.recall(planned.kept_scores.read())

    def started(name: str) -> Watch:
        if name != MAIN_SEARCH:
            keep_scores(planned)
        return watch_for(name)

    try:
        tuned = protocol.tune(planned.plan, planned.score, started)
    except BaseException:
        keep_scores(planned)
        raise
    configs = [planned.plan.space.baseline, *([] if tuned.kept else [tuned.config])]
    judged = planned.data.batch  # queries without a relevant memory count too, as in an evaluation
    ranked = [before_reranker(config) if planned.data.before_reranker else config for config in configs]
    needs = [(config, judged.rankings(one).needs) for config, one in zip(configs, ranked, strict=True)]
    needed = tuple(row for row in needs if row[1])
    return SearchResult(planned, tuned, needs=needed, not_kept=keep_scores(planned))


def searched_anew(planned: PlannedSearch, evidence: EvidenceSet) -> PlannedSearch:
    """The same search on the same queries, with extended evidence."""
    data = replace(planned.data, labelled=labelled(evidence, planned.data.labelled.grades))
    score = scored_queries(data, planned.plan.goal.measures, planned.plan.seed)
    return replace(planned, data=data, score=score)


def _share_judgments(labelled: LabelledEvidence) -> None:
    """Refresh the judgments in the evidence file, so that a search on the file alone has the same grades."""
    asked, both = {query.qid for query in labelled.evidence.queries}, (labelled.evidence, labelled.grades)
    there, present = ({row for row in one.judgments if row.qid in asked} for one in both)
    if there != present:
        # The file may be in use or write-protected: this search has its grades anyway.
        with suppress(InputError):
            replace_judgments(labelled.evidence.path, labelled.grades.judgments)


def keep_scores(planned: PlannedSearch) -> str:
    """Save all scores; returns why that failed, empty if it succeeded."""
    try:
        planned.kept_scores.write(planned.score.known())
    except OSError as error:
        return error.strerror or str(error)
    return ""


def guard_lines(result: SearchResult) -> list[str]:
    """Each guard with the values of baseline and proposal on the tuning queries, and whether it holds."""
    planned, tuned = result.planned, result.tuned
    types = np.array([planned.plan.types[row] for row in planned.plan.split.open.tolist()], dtype=object)
    lines = []
    for guard in planned.plan.goal.guards:
        column = planned.plan.goal.measures.index(guard.measure)
        asked = np.full(len(types), True) if guard.query_type is None else types == guard.query_type
        if asked.any():
            both = (tuned.search.baseline, tuned.proposal)
            scores = [guard.measure.direction * trial.scores[asked, column] for trial in both]
            was, now = map(mean_of, scores)
            held = "Broken" if guard in tuned.proposal.broken else "Guarded"
            lines.append(f"{held}: {guard} ({was:.3f} → {now:.3f}, {int((~np.isnan(scores[0])).sum())} queries)")
    if not any(trial.usable for trial in tuned.search.trials):
        lines.append(NO_CONFIG_HOLDS_GUARDS)
    return lines


def with_stability(result: SearchResult, progress: Progress) -> SearchResult:
    """The result with the stability region of every searched parameter; without them if `progress` raises `Cancelled`."""
    with suppress(Cancelled):
        result = replace(result, regions=stability(result.tuned, result.planned.score, progress=progress))
    return replace(result, not_kept=keep_scores(result.planned))


def looks_at(data: TuningData, store: Store | None, who: str = "") -> HoldoutLooks:
    """The count of looks at the query set of some evidence: in its store, if that is open, and in a file next to the
    evidence. The store records `who` looks. Raises InputError if the file cannot be read."""
    path = looks_path(data.evidence.path, data.query_set)
    if store is None or store.identity != data.evidence.header.store_id:
        return HoldoutLooks(path)
    return HoldoutLooks(path, store.holdouts, store.identity, who)


@contextmanager
def store_of(evidence: EvidenceSet, settings: Settings) -> Iterator[Store | None]:
    """The opened store of evidence: the store that contains the file, or that of the settings; None if it is neither.
    Raises StoreLockedError if it may be a store that another process holds."""
    from cems_workbench.store import Store

    folder = evidence.path.resolve().parent
    places = [*([folder.parent] if folder.name == EVIDENCE_FOLDER else []), settings.store]
    locked: StoreLockedError | None = None
    # Both places may be the same store, which opens only once.
    for place in dict.fromkeys(place.resolve() for place in places):
        try:
            store = Store.open(place, create=False, chroma_url=settings.chroma_url, team=settings.team)
        except StoreLockedError as error:
            locked = locked or error
            continue
        except StoreError:
            continue
        with store:
            if store.identity == evidence.header.store_id:
                yield store
                return
    if locked is not None:
        raise locked
    yield None


def open_holdout(result: SearchResult, looks: HoldoutLooks) -> SearchResult:
    """The result with proposal and baseline scored on the sealed queries. Every call counts as a look."""
    planned = result.planned
    tuned = protocol.open_holdout(result.tuned, planned.score, looks, planned.data.query_set, planned.sealed)
    return replace(result, tuned=tuned)


def card_of(result: SearchResult, date: str | None = None) -> EvidenceCard:
    """The evidence card of the proposal. `date` is an ISO date, by default that of today."""
    planned, found = result.planned, result.by_judgments
    measured: list[tuple[str, Gain]] = []
    if found is not None:
        chose_nothing = "judged queries that chose nothing, as"
        measured = [(f"{chose_nothing} fused", found.proposal), (f"{chose_nothing} the config ranks", found.as_ranked)]
    return evidence_card(
        result.tuned,
        planned.data.evidence.header,
        planned.data.labelled.content_hash,
        GROUP_WORDS[planned.group_by],
        date or datetime.now(UTC).date().isoformat(),
        planned.relevance,
        result.lacking,
        unlabelled=_unlabelled_lines(result) if planned.data.stands_in else (),
        by_judgments=measured,
    )


def _unlabelled_lines(result: SearchResult) -> tuple[str, ...]:
    """The lines on a card about a proposal that was tuned without judgments."""
    planned, found = result.planned, result.by_judgments
    said = (
        f"no judgment chose it: the order of {planned.data.stands_in} over {len(planned.batch.queries)} queries of "
        f"“{planned.data.query_set}” stands in for them"
    )
    if found is None:
        return said, "it was not measured by judgments"
    gained = found.labelled
    return said, (
        f"a search with the judgments on “{found.query_set}”, cross-validated: {gained.baseline:.4f} → {gained.tuned:.4f}, difference "
        f"{gained.difference:+.4f} [{gained.low:+.4f}, {gained.high:+.4f}]; {found.share_words}"
    )
