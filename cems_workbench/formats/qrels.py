"""TREC qrels: one judgment a line, `qid 0 docno rel`, separated by blanks; the second column is not used and may be absent.

Lines of `qid docno rel 0` are those of ir_datasets' export as TSV. A first line that names the columns (`base/names.py`)
decides their order. Lines that begin with # are comments.

Grades may be any integer (TREC uses negative ones for spam). The judge is "human".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from cems_workbench.formats.base.csv_table import MAX_HEADER_CHARS
from cems_workbench.formats.base.fields import FieldError
from cems_workbench.formats.base.files import Sample, read_lines, take_sample
from cems_workbench.formats.base.format import JudgmentWriter, described
from cems_workbench.formats.base.names import fields_of, names_judgments
from cems_workbench.formats.base.records import collect_judgments, graded, whole_grade
from cems_workbench.progress import Progress
from cems_workbench.records import Judgment, ParsedInput, RowError

NAME = "qrels"
FIELDS = {"memory_id": "docno", "grade": "rel"}
"""What the fields of a judgment are called in the file."""
UNUSED = {"0", "Q0", "q0"}
"""What the second column holds, for nobody reads it."""


def read(path: Path, progress: Progress) -> ParsedInput:
    """Read the judgments of a file; of two grades for one pair the first is kept. Raises InputError."""
    errors: list[RowError] = []
    order = _order_of_export(take_sample(path))
    exported = bool(order)
    iterations: set[str] = set()
    width = 0

    def parse(line: str) -> Judgment:
        nonlocal width
        width = width or (3 if len(line.split()) == 3 else 4)
        return _parse(line, order, iterations, width)

    collected = collect_judgments(str(path), _judged(read_lines(path, errors, progress), order), parse, errors)
    notes = []
    if exported:
        notes.append(
            "without a header the columns are taken for qid, docno, grade and iteration, as ir_datasets exports them"
        )
    if not order and iterations and not iterations & UNUSED:
        notes.append(
            "without a header the columns are taken for qid, iteration, docno and grade, though no iteration is 0"
        )
    return collected.parsed(path, NAME, "judgments", errors, notes, fields=FIELDS)


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


def write(judgments: Iterable[Judgment]) -> str:
    """The judgments as qrels, one line each; the judge is not written: there must be one grade per pair.

    Raises ValueError for an id that qrels cannot hold; `writable` says of one whether they can.
    """
    lines = []
    for judgment in judgments:
        if not _fits(judgment):
            raise ValueError(f"{judgment.qid!r} {judgment.memory_id!r}: ids with blanks cannot be written as qrels")
        lines.append(f"{judgment.qid} 0 {judgment.memory_id} {judgment.grade}\n")
    return "".join(lines)


def writable(name: str) -> bool:
    """Whether an id survives a round trip through blank-separated columns."""
    return name.split() == [name] and "\0" not in name and not name.startswith("\ufeff")


def _fits(judgment: Judgment) -> bool:
    # A line that begins with # is a comment.
    return writable(judgment.qid) and writable(judgment.memory_id) and not judgment.qid.startswith("#")


def _without_blanks(judgments: Sequence[Judgment], left_out: list[str]) -> list[Judgment]:
    fitting = []
    for judgment in judgments:
        if _fits(judgment):
            fitting.append(judgment)
        else:
            left_out.append(f"{judgment.qid!r} {judgment.memory_id!r}: ids with blanks cannot stand in this format")
    return fitting


def _parse(
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
        return bool(_parse(line, width=len(line.split())))
    except FieldError:
        return False


def sniff(sample: Sample) -> bool:
    """A header that names the parts between blanks, or lines of qid, iteration, docno, grade, or of qid, docno, grade, without a doubt."""
    return bool(_header(sample.header)) or (_has_shape(sample) and not doubt(sample))


def _order_of_export(sample: Sample) -> dict[str, int]:
    """The places in ir_datasets' TSV without a header, whose last column is the iteration; none for any other file."""
    rows = _rows(sample)
    last, second = {row[-1] for row in rows}, {row[1] for row in rows if len(row) == 4}
    fits = all(len(row) == 4 and whole_grade(row[2]) is not None for row in rows) and last <= UNUSED and len(last) == 1
    return (
        {"qid": 0, "memory_id": 1, "grade": 2}
        if fits and not (second & UNUSED or all(map(str.isdecimal, second)))
        else {}
    )


def _rows(sample: Sample) -> list[list[str]]:
    return [line.split() for line in sample.lines if not line.lstrip().startswith("#")]


def _has_shape(sample: Sample) -> bool:
    """Whether most of the first lines are four columns, or three, that end in a whole number."""
    lines = [line for line in sample.lines if not line.lstrip().startswith(("#", "{", "["))]
    return sum(map(_is_judgment, lines)) * 2 > len(lines)


def doubt(sample: Sample) -> str:
    """What else columns without a header may be: numbers all of them, or ids where the iteration stands, which is one for all lines."""
    if (
        _header(sample.header)
        or _order_of_export(sample)
        or not _has_shape(sample)
        or sample.path.suffix.lower() == ".qrels"
    ):
        return ""
    rows = [row for row in _rows(sample) if len(row) in (3, 4)]
    second = {row[1] for row in rows if len(row) == 4}
    if (
        len(second) > 1
        and not second & UNUSED
        and all(whole_grade(row[2]) is not None for row in rows if len(row) == 4)
    ):
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


FORMAT = described(
    __file__,
    NAME,
    sniff,
    read,
    judgments=JudgmentWriter(lambda judgments, words: write(judgments), judges=False, fitting=_without_blanks, place=3),
    doubt=doubt,
)
