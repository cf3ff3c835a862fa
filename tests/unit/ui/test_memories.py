"""The pure functions of the Memories page."""

from __future__ import annotations

import csv
import io
import re
from datetime import UTC, datetime

import pytest

from cems_workbench.analysis.diversity import NearDuplicates, NearPairs
from cems_workbench.cli import terminal
from cems_workbench.records import Memory
from cems_workbench.ui.kit.html import JOINER, csv_bytes, excerpt, literal, plain, tick
from cems_workbench.ui.memories.detail import facts_html
from cems_workbench.ui.memories.page import COLUMNS, columns
from cems_workbench.ui.memories.store import bars, first_and_rest, near_html

MEMORY = Memory(
    "m1",
    "one\r\ntwo\rthree\x00",
    title="T",
    tags=("a", "a", "b, c"),
    priority=1.333,
    project="p",
    author="Ada",
    created_at=datetime(2024, 5, 8, 13, 56, 1, 123456, tzinfo=UTC),
    access_count=7,
    source_ref="ref",
    scope="shared",
)


@pytest.mark.parametrize("cell", ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "＝1+1", "'=1"])
def test_cells_that_begin_a_formula_get_an_apostrophe(cell):
    rows = list(csv.reader(io.StringIO(csv_bytes(["a"], [[cell]]).decode("utf-8-sig"), newline="")))
    assert rows == [["a"], [f"'{cell}"]]


@pytest.mark.parametrize("cell", ["a=b", "", 3, -3, None])
def test_other_cells_stay_as_they_are(cell):
    assert csv_bytes(["a", "b"], [[cell, "x"]]).decode("utf-8-sig") == f"a,b\r\n{'' if cell is None else cell},x\r\n"


TURNING = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


@pytest.mark.parametrize(
    "show", [plain, excerpt, tick, literal, terminal.literal, lambda text: facts_html(Memory("m", "t", author=text))]
)
def test_what_turns_text_round_is_shown_alike_by_pages_and_commands(show):
    shown = str(show(f"a{TURNING}b"))
    assert not set(TURNING) & set(shown) and f"a{9 * chr(0xFFFD)}b" in shown
    for ordinary in ("مرحبا 12", "שלום\u200f! 3\u200e"):
        assert ordinary.replace("!", "") in str(show(ordinary)).replace("\\", "").replace("!", "")


def test_plain_text_has_no_markdown_left():
    assert plain("**b** [l](u)\n# h `c` $x$") == r"\*\*b\*\* \[l\]\(u\) \# h \`c\` \$x\$"


@pytest.mark.parametrize("address", ["https://a.example/x", "www.a.example", "me@a.example"])
def test_a_bare_address_is_no_link(address):
    link = re.compile(r"(?:https?://|www\.)[-.\w]+|[-.\w+]+@[-\w]+\.[-\w]+")
    assert link.search(address)
    assert not link.search(plain(address).replace("\\", ""))
    assert plain(address).replace("\\", "").replace(JOINER, "") == address


def test_pairs_are_escaped():
    memories = {name: Memory(name, "<script>", title="<b>") for name in ("<i>1", "<i>2")}
    near = NearDuplicates(NearPairs((("<i>1", "<i>2", 0.95),), 1), memories, 2)
    body = near_html(near)
    assert "<script>" not in body and "<i>1" not in body and "<b><b>" not in body and "0.950" in body


def test_what_does_not_fit_in_a_chart_is_one_more_bar():
    assert first_and_rest([("a", 5), (None, 3), ("b", 2), ("c", 1)], "(none)", 2) == [
        ("a", 5),
        ("(none)", 3),
        ("2 others", 3),
    ]


def test_chart_labels_are_escaped():
    figure = bars([("<b>x</b>", 1)])
    assert figure.layout.yaxis.ticktext[0].startswith("&lt;b&gt;")
    assert "<b>" not in figure.data[0].hovertext[0]


def test_a_long_chart_label_keeps_its_beginning_and_its_end():
    label = tick("category-with-an-unusually-long-name-2")
    assert label == "category-with-…y-long-name-2" and len(label) == 28


def names(*of):
    return [column.name for column in columns(*of)]


def test_what_the_table_is_ordered_by_stands_beside_the_memory():
    assert names("accesses")[:4] == ["id", "memory", "accesses", "created"]
    assert names("length")[2] == "length" and names("id")[:3] == ["id", "memory", "created"]
    assert sorted(names("created")) == sorted(column.name for column in COLUMNS)


def test_what_is_out_of_date_stands_beside_the_memory_only_if_a_row_visible_at_first_is():
    ids = [f"m{i}" for i in range(40)]
    assert names("created", ids, {"m3": "expired"})[:4] == ["id", "memory", "created", "out of date"]
    assert names("created", ids, {"m30": "expired"}) == [*names("created"), "out of date"]
    assert names("created", ids, {}) == names("created")


def test_every_fact_of_a_memory_says_what_it_means():
    body = facts_html(MEMORY)
    assert body.count("<span") == body.count('<span title="')
