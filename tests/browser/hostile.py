"""A store whose names and texts are all attacks, and the effects that must never appear on a page.

Each text is a mark, `Qz07:`, and an attack. Wherever a mark is read on a page, the attack must follow it letter for letter, as far as
there is room for it; and nothing on the page may come from an attack: no element, link, formula, icon or colour.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from cems_workbench import formats
from cems_workbench.config import dump_config, preset
from cems_workbench.evaluation.labelling.pooling import PooledPair
from cems_workbench.evaluation.labelling.queue import make_queue
from cems_workbench.jobs.catalogue import read_figures
from cems_workbench.jobs.connecting import take_snapshot
from cems_workbench.records import Judgment, Memory, Relation, TakenMemory
from cems_workbench.sources.source import RowProblem, SourceInfo
from cems_workbench.store import ImportOptions, Store
from tests.planted_source import Planted

HOST = "evil.example"
ATTACKS = (
    f'<img src=//{HOST}/i onerror="alert(1)" data-evil>',
    "<script data-evil>alert(2)</script>",
    f"![x](http://{HOST}/m.png)[y](javascript:alert(3))",
    ":material/skull: :red[evil] :blue-badge[b] :skull: :small[s]",
    "$\\evil^{2}$ **evil** `c` ~~s~~ _u_ # h | t |",
    f"http://{HOST}/auto www.{HOST} a@{HOST} <http://{HOST}>",
    "\"'`;DROP TABLE memories;-- \\' \\\\",
    "{{7*7}} {% raw %} ${x} %s %(x)s {0} {x!r} {plain}",
    f"</b><b data-evil>&lt;i&gt;&#60;u&#62;<a href=//{HOST} data-evil>&amp;",
    "'\"><svg/onload=alert(4) data-evil><style>*{display:none}",
    '=HYPERLINK("http://x") @SUM(1) +1 -2 \U0001f480 é 漢',
    f"[z]: http://{HOST}/r 'x' [^1] - [ ] <br> \\n --- ",
)
BIDI = "\u202egnol\u2066 \u200bw\ufeff \x1b[31mred\x1b]0;t\x07"
LONG = "<b data-evil>" + "x" * 3000
MARK = re.compile(r"Qz(\d\d):")
TOPIC = "browser eats all the memory until evening"
MEMORIES, QUERIES = 24, 8

_FOUND = """() => {
  const texts = new Set(), seen = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (!node.data.includes("Qz")) continue;
    let place = node.parentElement;
    if (["SCRIPT", "STYLE", "NOSCRIPT"].includes(place.tagName) || place.closest("[hidden]")) continue;
    while (getComputedStyle(place).display.startsWith("inline") && place.parentElement) place = place.parentElement;
    if (!seen.has(place)) { seen.add(place); texts.add(place.textContent); }
  }
  for (const element of document.querySelectorAll("[title],[aria-label],[alt],[placeholder],input,textarea"))
    for (const text of [...["title", "aria-label", "alt", "placeholder"].map(name => element.getAttribute(name)), element.value])
      if (text && String(text).includes("Qz")) texts.add(String(text));
  texts.add(document.title);
  const made = [...document.querySelectorAll(`[data-evil], [onerror], [onload], [onclick],
    [href*="evil.example"], [src*="evil.example"],
    [href^="javascript"], .katex, svg a, .js-plotly-plot a, marquee, base, meta[http-equiv], object, embed`)];
  for (const icon of document.querySelectorAll('[data-testid="stIconMaterial"]')) if (icon.textContent.includes("skull")) made.push(icon);
  return [[...texts], made.map(element => element.outerHTML.slice(0, 200))];
}"""


def evil(number: int, words: str = "") -> str:
    """The attack of a number, with its mark, and words before it that a search may find."""
    attack = ATTACKS[number % len(ATTACKS)]
    return f"{words} Qz{number % len(ATTACKS):02}:{attack}".strip()


def faults(page: Page) -> list[str]:
    """What a page shows of attacks otherwise than letter by letter: elements that they made, and texts that they changed."""
    texts, made = page.evaluate(_FOUND)
    return [f"made: {html}" for html in made] + [fault for text in texts for fault in _changed(text)]


def _changed(text: str) -> Iterator[str]:
    whole = _seen(text)
    for mark in MARK.finditer(whole):
        attack, after = ATTACKS[int(mark[1])], whole[mark.end() :]
        forms = (
            _seen(attack),
            _seen(json.dumps(attack, ensure_ascii=False)[1:-1]),
        )  # a preview of a file has the file's own quotes
        if not any(_follows(form, after) for form in forms):
            yield f"changed: {whole[max(0, mark.start() - 20) : mark.end()]}{after[:80]!r}, not {forms[0][:80]!r}"


def _follows(attack: str, after: str) -> bool:
    """Whether a text begins with the attack, or with as much of it as there was room for."""
    pairs = enumerate(zip(attack, after, strict=False))
    same = next((i for i, (wanted, found) in pairs if wanted != found), min(len(attack), len(after)))
    return same == len(attack) or after[same : same + 1] == "…" or (same == len(after) and same > 3)


def _seen(text: str) -> str:
    """A text without what has no width and without blanks, which lines are broken at."""
    return "".join(c for c in text.replace("∕", "/") if not c.isspace() and unicodedata.category(c) not in ("Cc", "Cf"))


def rows() -> dict[str, list[dict[str, Any]]]:
    """The rows of files as the importers read them, by file, with an attack in every text."""
    memories = []
    for n in range(MEMORIES):
        names = ("title", "category", "project", "session", "author", "source_ref")
        more = {name: evil(n + i) for i, name in enumerate(names, 1)}
        text = evil(n, f"{TOPIC}, part {n}:") + (f" {BIDI}" if n % 3 == 0 else "") + (f" {LONG}" if n == 1 else "")
        memories.append(
            {
                "id": f"m{n:02} {evil(n)}",
                "content": text,
                "tags": [evil(n + 7), evil(n + 8)],
                **more,
                "created_at": f"2026-0{1 + n % 8}-01T00:00:00Z",
                evil(n): 1,
            }
        )
    memories[2]["id"] += "x" * 3000
    memories[3] |= {"content": memories[4]["content"], "project": memories[0]["project"]}
    memories.append({"id": evil(5), "content": 1, "title": evil(6)})
    ids = [row["id"] for row in memories]
    queries = [
        {"qid": f"q{n} {evil(n)}", "query": evil(n, TOPIC), "project": evil(n), "type": evil(n + 1)}
        for n in range(QUERIES)
    ]
    qids = [row["qid"] for row in queries]
    judges = ("human", "human", "model")
    judgments = [
        {
            "qid": qid,
            "memory_id": ids[(i + j) % 8],
            "grade": (i + j) % 4,
            "judge": f"{kind[0]}{evil(j)}",
            "kind": kind,
            "note": evil(i),
        }
        for i, qid in enumerate(qids)
        for j, kind in enumerate(judges)
    ]
    edges = [{"source_id": ids[n], "target_id": ids[n + 5], "kind": evil(n)} for n in range(6)]
    log = [
        {
            "time": f"2026-11-22T10:0{n}:00Z",
            "query": evil(n, TOPIC),
            "project": evil(n),
            "results": [ids[n], ids[9 - n], f"gone {evil(n)}"],
        }
        for n in range(4)
    ]
    return {"memories": memories, "queries": queries, "relations": edges, "judgments": judgments, "log": log}


def files(folder: Path) -> list[Path]:
    """Those rows in files whose names are attacks too, as far as a file system takes them."""
    named = []
    for n, (kind, lines) in enumerate(rows().items()):
        path = folder / f"{evil(n, kind).replace('/', '∕')[:90]}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        named.append(path)
    return named


def stock(folder: Path) -> Path:
    """A closed store in `folder / "store"` with all of it, brought in as a user brings it in; the app makes its indexes."""
    place = folder / "store"
    with Store.open(place) as store:
        for path in files(folder):
            options = ImportOptions(None if "log" in path.name else evil(0, "set"))
            store.add(formats.read(path), options=options)
        _give(store)
        _take(store)
    return place


def _give(store: Store) -> None:
    """What people leave behind: labels, skips, a queue, configs with their cards, corrections."""
    qids, ids = [query.qid for query in store.queries.read()], sorted(store.memories.read())
    for n in range(4):
        store.labels.give(Judgment(qids[n], ids[n + 1], n % 4, evil(n, "by"), note=evil(n)))
        store.labels.skip(qids[n], ids[n + 9], evil(n, "by"), evil(n))
        store.labels.unclear(qids[-1], evil(n, "by"), evil(n))
        store.labels.call_judge_wrong(qids[n], ids[n], evil(n, "by"), f"m{evil(2)}")
    rankings = {evil(n, "config"): {qid: ids[n : n + 5] for qid in qids} for n in (3, 4)}
    pairs = [PooledPair(qid, key, {evil(3, "config"): 1, evil(4, "config"): 2}) for qid in qids for key in ids[10:14]]
    store.queues.save(
        make_queue(evil(2, "queue"), pairs, "top", settings={"query_set": evil(0, "set")}, rankings=rankings)
    )
    card = _evil_card(read_figures().tuned.card)
    for n in range(4):
        config = preset("cems").config.model_copy(update={"name": evil(n, "mine")})
        store.configs.add(
            evil(n, "mine"), dump_config(config), author=evil(n + 1), why=evil(n + 2), base=evil(n + 3), card=card
        )
        kept = json.loads(json.dumps(read_figures().experiment.card)) | {"query_set": evil(n)}
        for entry in kept["configs"]:
            entry |= {"config": evil(n, entry["config"]), "failed_scores": {evil(n + 1): 2}}
        store.configs.add_experiment(evil(n, "kept"), dump_config(config), evil(n + 1), kept)
    store.configs.add(evil(0, "old"), f"{evil(1)}", author=evil(2), why=evil(3))
    store.corrections.learn([(f"evenin{n}", evil(n).replace(" ", "")) for n in range(4)], 100)
    store.corrections.refuse("eats", evil(5).replace(" ", ""))


def _evil_card(card: Any) -> Any:
    """An evidence card whose texts are attacks, where a text may be anything."""
    if isinstance(card, dict):
        return {
            key: evil(3) if key in ("query_set", "split", "note", "machine") else _evil_card(value)
            for key, value in card.items()
        }
    return card


def _take(store: Store) -> None:
    """A live system with an attack in all of its metadata, stopped since."""

    class Talking(Planted):
        def probe(self) -> SourceInfo:
            return SourceInfo(
                evil(0), evil(1), 2, 0, None, index=evil(2), model=evil(3), missing=(evil(4),), notes=(evil(5), evil(6))
            )

    there = {
        key: TakenMemory(Memory(key, evil(n, TOPIC), title=evil(n)), "1") for n, key in enumerate((evil(7), evil(8)))
    }
    edges = [Relation(*there, evil(9))]
    problems = [RowProblem(evil(1), evil(2), evil(3))]
    source = Talking(there, edges, problems=problems, address=f"qdrant://localhost:1/{evil(2)}")
    take_snapshot(store, source, datetime.now(UTC), secret_from=evil(4))
