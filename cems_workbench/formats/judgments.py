"""Judgments: as JSON (`judgments-jsonl`), in which nothing is lost, as a table (`judgments-csv`), as TREC's lines, as feedback of CEMS.

    {qid, memory_id, grade, judge?, kind?, judged_at?, note?}

qid, memory_id and grade may have the names of other tools (`base/names.py`): `query_id`, `doc_id`, `relevance` of ir_datasets,
`query-id`, `corpus-id`, `score` of MTEB, `qid,docno,label` of PyTerrier. A row may have the words of its query as `query`, beside the qid
or, in JSON, instead of it. An empty cell is absent; a row of a table without a grade is a pair to be judged.

A judgment of the whole store has `answerable`, true or false, instead of memory_id and grade: does anything in it answer the query?

TREC qrels have one judgment a line, `qid 0 docno rel`, separated by blanks; the second column is not used and may be absent. Lines of
`qid docno rel 0` are those of ir_datasets' export as TSV. A first line that names the columns decides their order; lines that begin with #
are comments. Grades may be any integer (TREC uses negative ones for spam), and the judge is "human".

Feedback as CEMS logs it has one query a line: `{qid, relevant_ids, noise_ids}`. CEMS counts how often a memory was relevant or noise, and
`adjust.feedback` reads those counts. Of a graded judgment the grades from HELPFUL up are relevant and 0 is noise; grade 1 is neither,
unless no judgment has a higher one. Read back, relevant is HELPFUL and noise is 0; the judge is "cems", a model.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from cems_workbench.formats.base import fields, memory_fields
from cems_workbench.formats.base.csv_table import MAX_HEADER_CHARS, headers, left_out, open_table, read_rows, written
from cems_workbench.formats.base.fields import FieldError
from cems_workbench.formats.base.files import Sample, read_lines, read_records, take_sample
from cems_workbench.formats.base.format import JudgmentWriter, described, json_line
from cems_workbench.formats.base.judgments import WordsBeside
from cems_workbench.formats.base.names import IGNORED, NAMES, WORDS, fields_of, names_judgments, names_words, renamed
from cems_workbench.formats.base.records import TakenInPartError, collect_judgments, graded, reported, whole_grade
from cems_workbench.progress import Progress
from cems_workbench.records import WHOLE_STORE, Judgment, ParsedInput, RowError

REQUIRED = ("qid", "memory_id", "grade")
KNOWN = (*REQUIRED, "judge", "kind", "judged_at", "note")
OF_STORE = "answerable"
KINDS = ("human", "model")


def parse_judgment(row: dict[str, Any]) -> Judgment:
    """One judgment; raises FieldError, TakenInPartError if its time cannot be read."""
    answerable = fields.said(row, OF_STORE)
    if answerable is not None and any(row.get(name) is not None for name in ("memory_id", "grade")):
        raise FieldError(OF_STORE, "is of the whole store, and stands without memory_id and grade")
    judgment = Judgment(
        qid=fields.identifier(row, "qid"),
        memory_id=fields.identifier(row, "memory_id") if answerable is None else WHOLE_STORE,
        grade=int(answerable or 0),
        judge="human" if row.get("judge") is None else fields.identifier(row, "judge"),
        kind=fields.choice(row, "kind", KINDS, "human"),
        note=fields.text(row, "note"),
    )
    unread = None
    try:
        judgment = replace(judgment, judged_at=memory_fields.moment(row, "judged_at") if row.get("judged_at") else None)
    except FieldError as error:
        unread = error
    if answerable is None:
        judgment = graded("grade", row.get("grade"), lambda grade: replace(judgment, grade=grade))
    if unread is not None:
        raise TakenInPartError(unread, judgment)
    return judgment


def as_row(judgment: Judgment) -> dict[str, Any]:
    """The fields of a judgment as JSON values; what is absent is left out."""
    row: dict[str, Any] = {name: getattr(judgment, name) for name in KNOWN}
    if judgment.memory_id == WHOLE_STORE:
        row |= {"memory_id": None, "grade": None, OF_STORE: judgment.grade > 0}
    row["judged_at"] = None if judgment.judged_at is None else judgment.judged_at.isoformat()
    return {name: value for name, value in row.items() if value is not None}


def _write_csv(judgments: Iterable[Judgment], words: Mapping[str, str]) -> str:
    rows = (as_row(judgment) for judgment in judgments)
    return written([KNOWN, *([row.get(name, "") for name in KNOWN] for row in rows)])


def read_json(path: Path, progress: Progress) -> ParsedInput:
    """Read the judgments of a file; raises InputError when it cannot be read."""
    errors: list[RowError] = []
    unknown = fields.UnknownFields((*KNOWN, OF_STORE, *WORDS))
    beside = WordsBeside()

    def parse(row: dict[str, Any]) -> Judgment:
        named = beside.identified(renamed(row))
        judgment = parse_judgment(named)
        unknown.see(named)
        return judgment

    collected = collect_judgments(str(path), read_records(path, errors, progress), parse, errors)
    return beside.parsed(collected.parsed(path, "judgments-jsonl", "judgments", errors, unknown.notes()))


def read_csv(path: Path, progress: Progress) -> ParsedInput:
    """Read the judgments of a table; raises InputError when its header lacks a required column."""
    errors: list[RowError] = []
    table = open_table(path, REQUIRED, columns=_columns)
    beside = WordsBeside()
    unrated: list[tuple[str, str]] = []

    def rated() -> Iterator[tuple[int, dict[str, str]]]:
        for number, row in read_rows(table, errors, progress):
            qid, document, grade = (row[name].strip() for name in REQUIRED)
            if grade or not (qid and document):
                yield number, row
            else:
                unrated.append((qid, document))

    def parse(row: dict[str, str]) -> Judgment:
        typed: dict[str, Any] = {column.strip().lower(): cell for column, cell in row.items() if cell.strip()}
        typed |= {"kind": typed["kind"].strip().lower()} if "kind" in typed else {}
        return parse_judgment(beside.identified(typed))

    collected = collect_judgments(str(path), rated(), parse, errors)
    places = {name: table.called[name] for name in REQUIRED}
    notes = left_out(table, (*KNOWN, *IGNORED, *WORDS))
    parsed = beside.parsed(collected.parsed(path, "judgments-csv", "judgments", errors, notes, fields=places))
    return replace(parsed, extra={**parsed.extra, "pairs": tuple(unrated)}) if unrated else parsed


def _columns(names: Sequence[str]) -> list[str]:
    parts = {name: field for field, name in fields_of(names).items()}
    return [parts.get(name, name) for name in names]


def _sniff(sample: Sample) -> bool:
    """Objects with a qid or the words of a query, a memory_id and a grade, or with a qid and a judgment of the whole store."""
    return sample.mostly(
        lambda row: names_judgments(row) or names_words(row) or {"qid", OF_STORE} == row.keys() - {*KNOWN[3:]}
    )


def sniff_csv(sample: Sample) -> bool:
    """A first line that names the three parts of a judgment, under any of their names."""
    return any(map(names_judgments, headers(sample.header)))


QRELS_FIELDS = {"memory_id": "docno", "grade": "rel"}
"""What the fields of a judgment are called in the file."""
UNUSED = {"0", "Q0", "q0"}
"""What the second column holds, for nobody reads it."""


def read_qrels(path: Path, progress: Progress) -> ParsedInput:
    """Read the judgments of a file; of two grades for one pair the first is kept. Raises InputError."""
    errors: list[RowError] = []
    order = _order_of_export(take_sample(path))
    exported = bool(order)
    iterations: set[str] = set()
    width = 0

    def parse(line: str) -> Judgment:
        nonlocal width
        width = width or (3 if len(line.split()) == 3 else 4)
        return _parse_line(line, order, iterations, width)

    collected = collect_judgments(str(path), _judged(read_lines(path, errors, progress), order), parse, errors)
    taken, notes = "without a header the columns are taken for", []
    if exported:
        notes.append(f"{taken} qid, docno, grade and iteration, as ir_datasets exports them")
    if not order and iterations and not iterations & UNUSED:
        notes.append(f"{taken} qid, iteration, docno and grade, though no iteration is 0")
    return collected.parsed(path, "qrels", "judgments", errors, notes, fields=QRELS_FIELDS)


def _judged(lines: Iterable[tuple[int, str]], order: dict[str, int]) -> Iterator[tuple[int, str]]:
    """The lines without comments and header; `order` gets what the header says: the place of each part."""
    first = True
    for number, line in lines:
        if "#" in line and line.lstrip().startswith("#"):
            continue
        if first and (found := _header(line)):
            order.update(found)
        else:
            yield number, line
        first = False


def _header(line: str) -> dict[str, int]:
    """The place of each part of a judgment in a header line; none for any other line."""
    names = line.split() if len(line) < MAX_HEADER_CHARS else []
    return {field: names.index(name) for field, name in fields_of(names).items()} if names_judgments(names) else {}


def writable(name: str) -> bool:
    """Whether an id survives a round trip through blank-separated columns."""
    return name.split() == [name] and "\0" not in name and not name.startswith("\ufeff")


def _without_blanks(judgments: Sequence[Judgment], left_out: list[str]) -> list[Judgment]:
    fitting = []
    for judgment in judgments:
        ids = judgment.qid, judgment.memory_id
        if all(map(writable, ids)) and not judgment.qid.startswith("#"):  # such a line is a comment
            fitting.append(judgment)
        else:
            left_out.append(f"{judgment.qid!r} {judgment.memory_id!r}: ids with blanks cannot stand in this format")
    return fitting


def _parse_line(
    line: str, order: Mapping[str, int] | None = None, iterations: set[str] | None = None, width: int = 4
) -> Judgment:
    """The judgment of a line of this many columns, or whose parts are in this order; raises FieldError."""
    columns = line.split()
    if order:
        if len(columns) <= max(order.values()):
            raise FieldError("", f"has {len(columns)} columns, the header more")
        qid, docno, grade = (columns[order[field]] for field in ("qid", "memory_id", "grade"))
    elif len(columns) == width == 4:
        qid, iteration, docno, grade = columns
        if iterations is not None:
            iterations.add(iteration)
    elif len(columns) == width == 3:
        qid, docno, grade = columns
    else:
        wanted = "3 columns qid docno rel" if width == 3 else "4 columns qid 0 docno rel"
        raise FieldError("", f"must have the {wanted}, found {len(columns)}")
    if "\0" in line and "\0" in qid + docno:
        raise FieldError("", "must not contain NUL")
    return graded("rel", grade, lambda whole: Judgment(qid, docno, whole))


def _is_judgment(line: str) -> bool:
    try:
        return bool(_parse_line(line, width=len(line.split())))
    except FieldError:
        return False


def _sniff_qrels(sample: Sample) -> bool:
    """A header that names the parts between blanks, or lines of qid, iteration, docno, grade, or of qid, docno, grade, without a doubt."""
    return bool(_header(sample.header)) or (_has_shape(sample) and not _doubt(sample))


def _order_of_export(sample: Sample) -> dict[str, int]:
    """The places in ir_datasets' TSV without a header, whose last column is the iteration; none for any other file."""
    rows = _rows(sample)
    last, second = {row[-1] for row in rows}, {row[1] for row in rows if len(row) == 4}
    fits = all(len(row) == 4 and whole_grade(row[2]) is not None for row in rows) and last <= UNUSED and len(last) == 1
    apart = fits and not (second & UNUSED or all(map(str.isdecimal, second)))
    return {"qid": 0, "memory_id": 1, "grade": 2} if apart else {}


def _rows(sample: Sample) -> list[list[str]]:
    return [line.split() for line in sample.lines if not line.lstrip().startswith("#")]


def _has_shape(sample: Sample) -> bool:
    """Whether most of the first lines are four columns, or three, that end in a whole number."""
    lines = [line for line in sample.lines if not line.lstrip().startswith(("#", "{", "["))]
    return sum(map(_is_judgment, lines)) * 2 > len(lines)


def _doubt(sample: Sample) -> str:
    """What else columns without a header may be: numbers all of them, or ids where the iteration stands, which is one for all lines."""
    told = _header(sample.header) or _order_of_export(sample) or sample.path.suffix.lower() == ".qrels"
    if told or not _has_shape(sample):
        return ""
    rows = [row for row in _rows(sample) if len(row) in (3, 4)]
    of_four = [row for row in rows if len(row) == 4]
    second = {row[1] for row in of_four}
    if len(second) > 1 and not second & UNUSED and all(whole_grade(row[2]) is not None for row in of_four):
        return (
            "four columns without a header may be qid, iteration, docno and grade, or qid, docno, grade and iteration: "
            "name them in a first line, such as qid docno grade iteration"
        )
    if all(cell.lstrip("+-").isdecimal() for row in rows for cell in row) and not second & UNUSED:
        return (
            f"{len(rows[0])} columns of numbers without a header may be judgments of queries and memories whose ids are numbers, or "
            "anything else: name them in a first line, such as qid docno grade"
        )
    return ""


HELPFUL = 2
JUDGE = "cems"
LISTS = "relevant_ids, noise_ids"
FEEDBACK_FIELDS = {"memory_id": LISTS, "grade": LISTS}


@dataclass(frozen=True, slots=True)
class Feedback:
    """What was relevant and what was noise for one query."""

    qid: str
    relevant_ids: tuple[str, ...]
    noise_ids: tuple[str, ...]


def feedback_of(judgments: Sequence[Judgment]) -> list[Feedback]:
    """The feedback that judgments amount to, by query in their order; of several judges' grades the highest counts."""
    helpful = HELPFUL if any(judgment.grade >= HELPFUL for judgment in judgments) else 1
    best: dict[str, dict[str, int]] = {}
    for judgment in judgments:
        grades = best.setdefault(judgment.qid, {})
        grades[judgment.memory_id] = max(judgment.grade, grades.get(judgment.memory_id, judgment.grade))
    feedback = []
    for qid, grades in best.items():
        relevant = tuple(memory_id for memory_id, grade in grades.items() if grade >= helpful)
        noise = tuple(memory_id for memory_id, grade in grades.items() if grade <= 0)
        feedback.append(Feedback(qid, relevant, noise))
    return feedback


def counts(feedback: Iterable[Feedback]) -> dict[str, tuple[int, int]]:
    """(relevant_count, noise_count) by memory id: of how many queries it was relevant, of how many it was noise."""
    total: dict[str, tuple[int, int]] = {}
    for of_query in feedback:
        for ids, more in ((of_query.relevant_ids, (1, 0)), (of_query.noise_ids, (0, 1))):
            for memory_id in ids:
                relevant, noise = total.get(memory_id, (0, 0))
                total[memory_id] = (relevant + more[0], noise + more[1])
    return total


def write_feedback(feedback: Iterable[Feedback]) -> str:
    """The feedback as text, one line a query; queries with neither are left out, as there is nothing to log of them."""
    said = (of_query for of_query in feedback if of_query.relevant_ids or of_query.noise_ids)
    return "".join(f"{json_line(asdict(of_query))}\n" for of_query in said)


def _read_feedback(path: Path, progress: Progress) -> ParsedInput:
    """Read feedback as judgments; raises InputError when the file cannot be read."""
    errors: list[RowError] = []

    def each() -> Iterable[tuple[int, Judgment]]:
        for number, row in read_records(path, errors, progress):
            with reported(errors, str(path), number):
                yield from [(number, judgment) for judgment in _judgments(row)]

    collected = collect_judgments(str(path), each(), lambda judgment: judgment, errors)
    return collected.parsed(path, "cems-feedback", "judgments", errors, fields=FEEDBACK_FIELDS)


def _judgments(row: dict[str, Any]) -> Iterable[Judgment]:
    qid = fields.identifier(row, "qid")
    for field, grade in (("relevant_ids", HELPFUL), ("noise_ids", 0)):
        ids = row.get(field)
        if ids is not None and not isinstance(ids, list):
            raise FieldError(field, "must be a list of memory ids")
        for memory_id in ids or []:
            yield Judgment(qid, fields.identifier({field: memory_id}, field), grade, JUDGE, "model")


FORMAT = (
    described(
        __file__,
        "judgments-jsonl",
        _sniff,
        read_json,
        judgments=JudgmentWriter(
            lambda judgments, words: "".join(f"{json_line(as_row(each))}\n" for each in judgments),
            whole_store=True,
            place=1,
        ),
        needs=tuple(NAMES.values()),
    ),
    described(
        __file__,
        "judgments-csv",
        sniff_csv,
        read_csv,
        judgments=JudgmentWriter(_write_csv, place=2),
        needs=tuple(NAMES.values()),
    ),
    described(
        __file__,
        "qrels",
        _sniff_qrels,
        read_qrels,
        judgments=JudgmentWriter(
            lambda judgments, words: "".join(f"{each.qid} 0 {each.memory_id} {each.grade}\n" for each in judgments),
            judges=False,
            fitting=_without_blanks,
            place=3,
        ),
        doubt=_doubt,
    ),
    described(
        __file__,
        "cems-feedback",
        lambda sample: sample.mostly(lambda row: "relevant_ids" in row or "noise_ids" in row),
        _read_feedback,
        judgments=JudgmentWriter(lambda judgments, words: write_feedback(feedback_of(judgments)), place=7),
    ),
)


@dataclass(frozen=True, slots=True)
class RunRow:
    """One result of a run: `rank` from 1 (some tools begin at 0), a finite score, the name of the run."""

    qid: str
    docno: str
    rank: int
    score: float
    tag: str


def run_text(rows: Iterable[RunRow]) -> str:
    """A TREC run, ranks as they are, scores so that they read back to the bit. Raises ValueError for ids with blanks."""
    lines = []
    for row in rows:
        if not all(map(writable, (row.qid, row.docno, row.tag))):
            named = f"{row.qid!r} {row.docno!r} {row.tag!r}"
            raise ValueError(f"{named}: ids and tags with blanks cannot be written as a run")
        lines.append(f"{row.qid} Q0 {row.docno} {row.rank} {row.score!r} {row.tag}\n")
    return "".join(lines)
