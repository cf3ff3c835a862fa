"""The row types every layer shares: memories, relations, queries and judgments, and the scale a judge is read by.

They are plain frozen dataclasses with no behaviour beyond (de)serialisation, so that formats can produce them, the store
can keep them and the pipeline can read them without importing one another. Field names follow `memories.jsonl`
(docs/reference/formats.md). Times are timezone-aware UTC datetimes; text files carry them as ISO 8601.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, get_args

from cems_workbench.platform.typed_json import written

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


IMPORTANCE = ("low", "normal", "high")
"""How much a memory may matter."""


@dataclass(frozen=True, slots=True)
class Memory:
    """One memory. `content` is untrusted text and is only ever shown literally.

    It holds from `valid_from` until before `valid_until`: from that moment on it is expired. None: no such bound is known.
    """

    id: str
    content: str
    title: str | None = None
    category: str | None = None
    project: str | None = None
    session: str | None = None
    author: str | None = None
    tags: tuple[str, ...] = ()
    priority: float = 1.0
    pinned: bool = False
    importance: str = "normal"
    created_at: datetime | None = None
    last_accessed: datetime | None = None
    access_count: int = 0
    relevant_count: int = 0
    noise_count: int = 0
    scope: str = "personal"
    source_ref: str | None = None
    updated_at: datetime | None = None
    valid_from: datetime | None = None
    valid_until: datetime | None = None

    def expired(self, moment: datetime) -> bool:
        """Whether it no longer holds at a moment."""
        return self.valid_until is not None and self.valid_until <= moment

    def out_of_date(self, moment: datetime) -> str:
        """ "expired 2026-03-01" or "not valid before 2027-08-02"; empty if it holds at the moment."""
        if self.expired(moment):
            return f"expired {self.valid_until:%Y-%m-%d}"
        begins = self.valid_from is not None and self.valid_from > moment
        return f"not valid before {self.valid_from:%Y-%m-%d}" if begins else ""


VALIDITY = ("valid_from", "valid_until")
TIMES = ("created_at", "last_accessed", "updated_at", *VALIDITY)
"""The fields of a memory that are moments."""

PROJECT_REFERENCE = "project:"
"""How a source reference begins that names a project."""


def source_reference(memory: Memory) -> str | None:
    """What CEMS keeps as source_ref: the memory's own, else "project:" + its project, None without either."""
    return memory.source_ref or (PROJECT_REFERENCE + memory.project if memory.project else None)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a memory with its own index entries; a memory without chunks is indexed as one text (`titled`).

    `seq` counts from 0; `start` is where the text begins in the memory's content, in characters, None when that is not known.
    """

    memory_id: str
    seq: int
    text: str
    start: int | None = None


TextEscape = Literal["", "strip", "json", "ascii_json"]
"""What becomes of a content within an embedded text: nothing; white space at both ends of the whole is left out; it is escaped as in JSON,
with characters beyond ASCII as they are, or escaped too."""


@dataclass(frozen=True, slots=True)
class EmbeddedText:
    """A text that a vector may be made of: a content with text before and after it."""

    before: str = ""
    after: str = ""
    escape: TextEscape = ""

    def of(self, content: str) -> str:
        if self.escape in ("json", "ascii_json"):
            content = json.dumps(content, ensure_ascii=self.escape == "ascii_json")[1:-1]
        whole = self.before + content + self.after
        return whole.strip() if self.escape == "strip" else whole


OWN_TEXT = "the workbench's own text"
"""The name of the text that a store makes of a title and a content (`titled`), where another workbench embedded it."""


@dataclass(frozen=True, slots=True, eq=False)
class TakenChunk:
    """A chunk of a running system; `seq` is that system's number, `vector` has shape (dimension,), None if it has none.

    `titled`: it is searched with the title before it, as chunks that are cut here. `embedded` are other texts than its own that the vector
    may be made of, by what they are called.
    """

    seq: int
    text: str
    vector: NDArray[np.float32] | None
    start: int | None = None
    embedded: Mapping[str, EmbeddedText] = field(default_factory=dict)
    titled: bool = False


@dataclass(frozen=True, slots=True)
class RowProblem:
    """A row that was not imported, or only in part: its id, the field and the reason."""

    memory_id: str
    field: str
    reason: str
    duplicate: bool = False
    """Whether another row has its id already."""


DELETED_MARK = "deleted:"
"""How the marker of a memory begins that its system has deleted."""


@dataclass(frozen=True, slots=True, eq=False)
class TakenMemory:
    """A memory of a running system.

    `marker` changes when the memory, one of its chunks or a vector does; it begins with DELETED_MARK if its system has deleted the memory
    and still keeps it. `vector` is that of a memory without chunks; `embedded` are other texts than the content that it may be made of.
    """

    memory: Memory
    marker: str
    chunks: tuple[TakenChunk, ...] = ()
    vector: NDArray[np.float32] | None = None
    embedded: Mapping[str, EmbeddedText] = field(default_factory=dict)


ChunkRule = Literal["whole", "embedder", "cems", "qmd", "openclaw"]
"""How memories are cut into chunks: not, into what the embedder reads, as CEMS does, as QMD does."""
CHUNK_RULES: tuple[ChunkRule, ...] = get_args(ChunkRule)
DEFAULT_CHUNK_RULE: ChunkRule = "embedder"
"""Of a new store."""


ENGLISH, CJK, NO_LANGUAGE = "english", "cjk", "none"
_STEMMED = """
    arabic armenian basque catalan czech danish dutch esperanto estonian finnish french german greek hungarian
    indonesian irish italian lithuanian norwegian polish portuguese romanian russian serbian spanish swedish
    turkish yiddish
"""
LANGUAGES: tuple[str, ...] = (ENGLISH, *_STEMMED.split(), CJK, NO_LANGUAGE)
"""In which lexical search can work: those with a Snowball stemmer whose words are runs of letters; Chinese, Japanese and Korean, by
characters; none, which takes words unchanged."""
_STOPPED = "danish dutch french german italian norwegian portuguese russian spanish swedish turkish"
STOPWORD_LANGUAGES = tuple(_STOPPED.split())
"""Languages other than English with a stop word list, which is that of bm25s."""


TEXT_FIELDS = ("category", "project", "author", "session", "tags", "importance", "scope", "created_at")
"""Fields of a memory that its searched text may have as lines."""


@dataclass(frozen=True, slots=True)
class TextRule:
    """Which text of a memory is embedded and searched: with its title or without, after a line "name: value" for each of `fields` that it
    has, and of that the first so many cl100k tokens, all of them when None."""

    title: bool = True
    fields: tuple[str, ...] = ()
    first_tokens: int | None = None

    def __str__(self) -> str:
        """ "title and content, after lines category, project; the first 256 tokens"."""
        said = "title and content" if self.title else "content without the title"
        said += f", after the lines {', '.join(self.fields)}" if self.fields else ""
        return said if self.first_tokens is None else f"{said}; the first {self.first_tokens:,} tokens"


DEFAULT_TEXT_RULE = TextRule()
"""Of a store for which none was chosen."""


@dataclass(frozen=True, slots=True)
class Relation:
    """A directed edge between two memories; `weight` in 0..1 is its strength.

    `author` is the person who accepted a proposed edge; None for the edge of a file or a source.
    """

    source_id: str
    target_id: str
    kind: str = "related"
    weight: float = 1.0
    author: str | None = None


SUPERSEDES = "supersedes"
"""The kind of the edges from a newer memory to the older one that it replaces."""
NEWER_FIRST, OLDER_FIRST = (SUPERSEDES, "replaces"), ("superseded_by", "replaced_by")
"""The kinds of superseding edges whose source is the newer memory, and whose source is the older one."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query of a query set. `as_of` is the moment ages are counted from; `type` groups queries in reports.

    `answerable` is False if it was judged that nothing in the store answers it, True if something does, None if nobody judged that. It does
    not depend on judgments of memories. `searched` and `engine_queries` are taken as given, as a recording of another system has them:
    the text that is searched instead of the query, and what the engine of a list got, by list source. `wordings` are further forms of the
    query, searched as variants. `answer` is the right one as a person wrote it; no search reads it, so it makes no other query.
    """

    qid: str
    query: str
    project: str | None = None
    as_of: datetime | None = None
    type: str | None = None
    answerable: bool | None = None
    searched: str | None = field(default=None, repr=False)
    engine_queries: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    wordings: tuple[str, ...] = field(default=(), repr=False)
    answer: str | None = field(default=None, repr=False, compare=False)

    @property
    def given(self) -> dict[str, Any]:
        """What is searched as given, as JSON values; empty for a query that is searched by the config alone."""
        values = {
            "searched": self.searched,
            "engine_queries": dict(self.engine_queries),
            "wordings": list(self.wordings),
        }
        return {name: value for name, value in values.items() if value}


StageKind = Literal["list", "fusion", "filter", "rerank", "adjust", "dedup", "assembly", "other"]
STAGE_KINDS: tuple[StageKind, ...] = get_args(StageKind)
"""What a stage of a traced pipeline does."""

HUMAN = "human"
"""The kind of a person's judgment, and the judge of one from a file that names none."""


WHOLE_STORE = ""
"""The memory id of a judgment of the whole store: whether anything in it answers the query."""


@dataclass(frozen=True, slots=True)
class Judgment:
    """A relevance grade of one memory for one query, on the scale of the query's set: 0 not relevant .. 3 perfect by default.

    `kind` is "human" or "model"; `judged_at` is None where the input did not say when. A `memory_id` of WHOLE_STORE judges all memories
    together: a grade of 0 says that nothing in the store answers the query, 1 that something does.
    """

    qid: str
    memory_id: str
    grade: int
    judge: str = HUMAN
    kind: str = HUMAN
    judged_at: datetime | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class UngradedJudgment:
    """A judgment of a row whose `value` is no whole number but a fraction or a word: it needs a mapping that states its grade.

    The row is also among the errors of its input. The grade of `judgment` says nothing; `words` are those of its query where the input
    names queries by words.
    """

    row: int
    judgment: Judgment
    value: str
    field: str
    words: str | None = None


@dataclass(frozen=True, slots=True)
class Returned:
    """One memory of what a real system returned: its row in the input, and what the row says of it; id or content is there.

    `parts` are the shares that its score was made of, by name, where the system explains its scores.
    """

    row: int
    memory_id: str | None
    score: float | None = None
    content: str | None = None
    parts: Mapping[str, float] = field(default_factory=dict)


RankedIds = tuple[tuple[str, float], ...]
"""(memory id, score) of a list, best first."""


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """What a real system answered to one query, best first.

    `query` is None where the form does not say what was asked, `qid` is then its name. `row` is the answer's number in the file, `asked_at`
    when it was asked. `lists` are the system's own lists, by source, one a query variant.

    What the system made of the query, where the recording says so: `searched` is the text that it searched instead, `engine_queries` what
    an engine was given, by its name, `wordings` the wordings that were searched one by one, `by_vector_alone` whether no words were
    searched, None if the recording does not say, `corrected` the text that a reranker read instead of the query.
    `scored` are the memories with their scores before the last cut, in order.
    """

    row: int
    qid: str
    query: str | None
    project: str | None
    returned: tuple[Returned, ...]
    lists: Mapping[str, tuple[RankedIds, ...]] = field(default_factory=dict)
    asked_at: datetime | None = None
    searched: str | None = None
    engine_queries: Mapping[str, str] = field(default_factory=dict)
    wordings: tuple[str, ...] = ()
    by_vector_alone: bool | None = None
    corrected: str | None = None
    scored: RankedIds = ()

    @property
    def top_score(self) -> float | None:
        """The best score of what was returned, None where there is none."""
        return max((row.score for row in self.returned if row.score is not None), default=None)


@dataclass(frozen=True, slots=True)
class Recording:
    """The answers of one file or kept set, with what is known of the system that gave them.

    `settings` are those that differ from the system's defaults, as it calls them, in lower case, with their values as text. `whole`: an
    answer is all that the system found, else a limit that the file does not state may have cut it. `id_length`: ids are cut to so many
    characters. `rounded`: scores may have fewer digits than the system's. `log`: it is a file that is imported too. `own_settings` are
    those of a system whose settings no config here has, for display. `doubts` are lines about what was not used of the file as a whole.
    """

    name: str
    form: str
    answers: tuple[RecordedAnswer, ...]
    settings: Mapping[str, str] = field(default_factory=dict)
    max_tokens: int | None = None
    answered_at: datetime | None = None
    system: str | None = None
    embedder: str | None = None
    mode: str | None = None
    whole: bool = False
    id_length: int | None = None
    rounded: bool = False
    log: bool = False
    errors: tuple[RowError, ...] = ()
    own_settings: Mapping[str, str] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()


Scored = tuple[tuple[str, float | None], ...]
"""(memory id, score) best first."""


@dataclass(frozen=True, slots=True)
class RecordedList:
    """One list as the pipeline found it; `left_out` are hits that it does not pass on, such as those past its depth.
    `lost` says which of its documents the trace lacks, and why; empty if none."""

    name: str
    hits: Scored
    left_out: frozenset[str] = frozenset()
    lost: str = ""


@dataclass(frozen=True, slots=True)
class RecordedStage:
    """One stage; `input` None: what the stage before left. `joined`: its input has no order, since it comes from
    several. `dropped`: by id why, and whether only its rank was at fault."""

    name: str
    kind: StageKind
    output: Scored
    input: Scored | None = None
    joined: bool = False
    ranked: bool = True
    dropped: Mapping[str, tuple[str, bool]] = field(default_factory=dict)
    ms: float | None = None


@dataclass(frozen=True, slots=True)
class RecordedStages:
    """The lists and stages of one query, in the order in which they ran. `kept` None: everything that a list found.
    `unknown`: nothing says what was returned, so that the empty last stage is no empty answer."""

    lists: tuple[RecordedList, ...]
    stages: tuple[RecordedStage, ...]
    kept: frozenset[str] | None = None
    unknown: bool = False

    @property
    def ids(self) -> set[str]:
        """Every memory that a list or a stage names."""
        found = {key for ranked in self.lists for key, _ in ranked.hits}
        for stage in self.stages:
            found |= {key for key, _ in (*stage.output, *(stage.input or ()))}
        return found

    @property
    def results(self) -> Scored:
        """What the last stage returned."""
        return self.stages[-1].output if self.stages else ()

    def answer(self, row: int, qid: str, query: str, asked_at: datetime | None) -> RecordedAnswer | None:
        """What was returned, with the lists; a list without scores has zeros. None where nothing says what was returned."""
        if self.unknown:
            return None
        returned = tuple(Returned(rank, key, score) for rank, (key, score) in enumerate(self.results, 1))
        lists = {one.name: (tuple((key, score or 0.0) for key, score in one.hits),) for one in self.lists}
        return RecordedAnswer(row, qid, query, None, returned, lists, asked_at)

    def to_json(self) -> dict[str, Any]:
        """The note; what is not said is left out."""
        return written(self)


RELEVANT_FROM = "relevant_from"


@dataclass(frozen=True, slots=True)
class GradeScale:
    """The grades a query set is judged on, lowest first, each with what it means; `relevant_from` is the lowest relevant one."""

    grades: tuple[tuple[int, str], ...]
    relevant_from: int = 1

    def __contains__(self, grade: int) -> bool:
        return any(grade == known for known, _ in self.grades)

    def __str__(self) -> str:
        values = [grade for grade, _ in self.grades]
        whole = values == list(range(values[0], values[-1] + 1))
        return f"{values[0]} to {values[-1]}" if whole and len(values) > 1 else ", ".join(map(str, values))

    def to_dict(self) -> dict[str, str]:
        """Grade, as text, to meaning, and `relevant_from` where it is not 1: the form that JSON keeps."""
        meanings = {str(grade): meaning for grade, meaning in self.grades}
        return meanings if self.relevant_from == 1 else meanings | {RELEVANT_FROM: str(self.relevant_from)}

    @classmethod
    def from_dict(cls, meanings: Mapping[str, str]) -> GradeScale:
        """The scale of such a form; raises ValueError for a grade that is no whole number, and when there is none."""
        grades = {int(grade): str(meaning) for grade, meaning in meanings.items() if grade != RELEVANT_FROM}
        if not grades:
            raise ValueError("a scale needs at least one grade")
        return cls(tuple(sorted(grades.items())), int(meanings.get(RELEVANT_FROM, 1)))


DEFAULT_SCALE = GradeScale(
    (
        (0, "Not relevant: does not help, or is out of date and would mislead"),
        (1, "Related: about the same thing, does not answer"),
        (2, "Helpful: answers in part, or helps a lot"),
        (3, "Answers the question, or is a necessary part of the answer"),
    )
)
"""What a query set is graded on unless it says otherwise."""


@dataclass(frozen=True, slots=True)
class JudgeScale:
    """Where a judge's raw scores mean relevant (above `threshold`), and the lower ends of the bands, highest first:
    highly relevant, relevant, weak."""

    threshold: float
    bands: tuple[float, ...]


MS_MARCO = JudgeScale(-10.0, (-8.0, -10.0, -12.0))
"""How the ACE document reads the logits of ms-marco cross-encoders."""


@dataclass(frozen=True, slots=True)
class RowError:
    """One input row that was not imported, and why. `row` is the 1-based line or record number; 0 is the file as a whole.

    `taken`: the row is in the store all the same, in part: without the field that could not be read.
    """

    source: str
    row: int
    reason: str
    field: str | None = None
    taken: bool = False

    def __str__(self) -> str:
        where = f"{self.source}:{self.row}" if self.row else self.source
        return f"{where}: {self.field}: {self.reason}" if self.field else f"{where}: {self.reason}"


JUDGED_TEXTS = "judged_texts"


@dataclass(frozen=True, slots=True)
class ParsedInput:
    """What a reader got out of one input: the good rows of each kind and the rows it had to leave out."""

    source: str
    format: str
    memories: tuple[Memory, ...] = ()
    relations: tuple[Relation, ...] = ()
    queries: tuple[Query, ...] = ()
    judgments: tuple[Judgment, ...] = ()
    errors: tuple[RowError, ...] = ()
    notes: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)
    """JUDGED_TEXTS: (row, field, judgment without its memory, text) of each judged text, whose memory the store finds;
    `rows`: the row numbers of each kind; `fields`: the file's names of a record's fields; `id_length`: to how many characters a log cuts
    the ids of memories."""
    chunks: tuple[Chunk, ...] = ()
    """Chunks that came with the memories, in their order."""
    answers: tuple[RecordedAnswer, ...] = ()
    """What a real system answered to the queries, by their qids."""
    ungraded: tuple[UngradedJudgment, ...] = ()
    """Judgments among the errors that a stated mapping of their values to grades makes usable."""
    skipped: tuple[str, ...] = ()
    """Entries of the directory that were not read, a line each with the reason; on the first input of the directory."""

    def numbered(self, kind: str) -> list[tuple[int, Any]]:
        """The rows of a kind, each with its number in the file, or else its place from 1."""
        rows = getattr(self, kind)
        return list(zip(self.extra.get("rows", {}).get(kind) or range(1, len(rows) + 1), rows, strict=True))

    def with_rows(self, **kinds: Iterable[tuple[int, Any]]) -> ParsedInput:
        """The input with these numbered rows of some kinds."""
        made = {kind: list(rows) for kind, rows in kinds.items()}
        numbers = {kind: [number for number, _ in rows] for kind, rows in made.items()}
        extra = {**self.extra, "rows": {**self.extra.get("rows", {}), **numbers}}
        found: dict[str, Any] = {kind: tuple(row for _, row in rows) for kind, rows in made.items()}
        return replace(self, extra=extra, **found)


CEMS_SCOPES: Mapping[str, str] = {"personal": "personal", "shared": "shared", "team": "shared", "company": "shared"}
"""The scope of a memory by that of a CEMS document."""
_PROJECT = re.compile(r"project:([^:#\s]+)")


def project_of(source_ref: str | None) -> str | None:
    """The project that a source reference "project:ORG/REPO…" names, None without one."""
    found = _PROJECT.match(source_ref) if source_ref else None
    return found[1] if found else None


def place_of_chunk(content: str, text: str, after: int) -> int | None:
    """Where a chunk begins in its document, from `after` on; None when it is not there. U+FFFD stands for a character cut in two."""
    inner = text.strip("\ufffd")
    place = content.find(inner, after)
    return None if place < 0 else max(0, place - text.startswith("\ufffd"))


def titled(title: str | None, content: str) -> str:
    """The text that is embedded and searched under the default text rule: `title. content`, or the content when the title opens it."""
    title = (title or "").strip()
    if not title or content.lstrip().startswith(title):
        return content
    return f"{title}. {content}"


@dataclass(frozen=True, slots=True)
class Request:
    """A search request: the query, its project and moment, and further variants typed by hand.

    `searched` is a text that every list searches instead of the query: as given, without typo correction or expansion. `engine_queries`
    has, by list source ("lexical"; of variant 2 "lexical:2"), what that list searches instead of its variant's text, as given. Rerankers
    and judges read the query. Both are what a recording of another system says was searched.
    """

    query: str
    project: str | None = None
    as_of: datetime | None = None
    only_project: bool = False
    variants: tuple[str, ...] = ()
    searched: str | None = None
    engine_queries: Mapping[str, str] = field(default_factory=dict, hash=False)
