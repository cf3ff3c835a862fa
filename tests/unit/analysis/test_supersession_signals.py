"""Signs and words of supersession; claims of an answer, and whether a memory supports them."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cems_workbench.analysis.blame import standing
from cems_workbench.analysis.supersession import (
    days_later,
    first_result_stale,
    first_result_words,
    stale_badges,
    stale_words,
    staleness,
    standing_sentence,
    stored_standings,
)
from cems_workbench.analysis.supersession_signals import profile_of, signals_of
from cems_workbench.analysis.support import (
    COSINE,
    LACKING,
    MAX_CLAIM_CHARS,
    MAX_CLAIMS,
    WINDOW,
    ClaimWords,
    Overlap,
    base_score,
    judged,
    split_claims,
    words_of,
)
from cems_workbench.analysis.text_evidence import idf
from cems_workbench.config import PipelineConfig, with_values
from cems_workbench.errors import InputError, ModelError
from cems_workbench.pipeline import Evidence, Hit, RankedList, Variant, replay
from cems_workbench.pipeline.supersession import EXCLUDED, SUPERSEDED
from cems_workbench.pipeline.understanding import Asker
from cems_workbench.records import Memory
from cems_workbench.store.relations import SupersedingEdge
from cems_workbench.store.search.lexical_index import LexicalIndex
from cems_workbench.store.search.tokenizer import terms_of


def signs(older, newer, language="english", titles=(None, None)):
    """The signs of two texts whose terms are all rare."""
    one, other = Memory("o", older, title=titles[0]), Memory("n", newer, title=titles[1])
    return signals_of(profile_of(one, language), profile_of(other, language), lambda term: 1.0)


def marked(text: str, spans) -> set[str]:
    return {text[span.start : span.end] for span in spans if span.field == "content"}


@pytest.mark.parametrize(
    ("older", "newer", "words"),
    [
        ("Tenants may send 600 requests per minute.", "Tenants may send 1,200 requests per minute.", "600 → 1200"),
        ("The pager is handed over on Monday.", "The pager is handed over on Wednesday.", "Monday → Wednesday"),
        ("The service runs on Python 3.12 here.", "The service runs on Python 3.13 here.", "3.12 → 3.13"),
        ("Tasks are retried three times.", "Tasks are retried 5 times.", "3 → 5"),
        ("LIMIT_MB=20 for uploads", "LIMIT_MB=50 for uploads", "20 → 50"),
        ("The camera cost €840 in all.", "The camera cost €1,690 in all.", "€840 → €1690"),
        ("Mira edits in Emacs every day.", "Mira edits in Neovim every day.", "“Emacs” → “Neovim”"),
    ],
)
def test_another_value_in_the_same_slot_is_a_sign_with_both_marked(older, newer, words):
    found = signs(older, newer)
    assert words in found.words and found.slot >= 0.25
    assert marked(older, found.older_spans) and marked(newer, found.newer_spans)
    assert marked(older, found.older_spans).isdisjoint(marked(newer, found.newer_spans) & set(words.split(" → ")))


def test_the_same_value_or_one_without_a_common_slot_is_none():
    assert signs("Send 600 requests per minute.", "600 requests per minute at most").slot == 0
    assert signs("Elias ate 7 plums.", "Backups are kept 14 days.").slot == 0


def test_titles_that_share_a_subject_are_a_slot():
    found = signs("We use it.", "We like it.", titles=("Package manager: npm", "Package manager: pnpm"))
    assert found.slot == 1 and "“Package manager: npm” → “Package manager: pnpm”" in found.words
    assert {span.field for span in (*found.older_spans, *found.newer_spans)} == {"title"}


def test_a_word_of_change_counts_fully_only_near_a_shared_term():
    near = signs("We are going to move to Pankow.", "The move to Pankow is off after all.")
    assert near.change == 1 and {"is off", "after all"} & marked(
        "The move to Pankow is off after all.", near.newer_spans
    )
    assert signs("The pottery course.", "Nothing but the weather changed in May.").change == 0.5
    assert signs("The pottery course.", "The pottery course is nice.").change == 0


def test_a_negation_counts_only_if_the_newer_text_alone_has_it():
    assert signs("Dark mode is built.", "Dark mode will not be built.").negation == 1
    assert signs("Dark mode will not be built.", "Dark mode will not be built in May.").negation == 0
    assert signs("Dark mode will not be built.", "Dark mode is built.").negation == 0


def test_two_wordings_of_one_fact_are_the_same_and_their_names_no_sign():
    found = signs(
        "Parquet files of Solberg carry int96 timestamps", "int96 timestamps are in Parquet files of Solberg: carry"
    )
    assert found.same > 0.8 and found.slot < 0.3


def test_a_store_of_another_language_has_digits_and_dates_only():
    older, newer = (
        "Der Umzug ist am 2026-11-01, wir zahlen 900",
        "Der Umzug ist am 2026-12-01 now no longer, wir zahlen 950",
    )
    found = signs(older, newer, "german")
    assert (found.change, found.negation) == (0, 0) and found.slot > 0
    assert signs("Termin am Monday", "Termin am Friday", "german").slot == 0


def test_texts_of_any_length_and_shape_are_read_to_a_limit():
    for text in ("", " ", "?", "x" * 100_000, "7 " * 50_000, "now " * 50_000):
        found = signs(text, text + " 8")
        assert min(found.slot, found.change, found.negation, found.same) >= 0 and found.length <= 1


def test_a_value_is_no_part_of_its_own_slot_in_any_language():
    profile = profile_of(Memory("m", "LIMIT_MB=20 gilt, sagt HäuserB7 allen HäuserB7"), "german")
    own = [value for value in profile.values if value.kind == "name"]
    assert own and not any(set(terms_of(value.text, "german")) & value.slot.keys() for value in own)


NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
CONFIG = with_values(
    PipelineConfig(),
    {
        "lists.lexical.enabled": False,
        "filter.min_score": 0.0,
        "rerank.backend": "none",
        "gap.ratio": 0.0,
        "dedup.enabled": False,
        "assembly.limit": 2,
        "assembly.max_tokens": None,
    },
)


def traced(order, newer, until=None, ages=None, config=CONFIG):
    """A trace of one list in this order; `newer` are the successors by older id, `ages` days before NOW."""
    ids = sorted({*order, *newer, *(one for own in newer.values() for one in own)})
    memories = {
        key: Memory(key, f"text of {key}", created_at=NOW - timedelta(days=(ages or {}).get(key, 1))) for key in ids
    }
    for key, moment in (until or {}).items():
        memories[key] = replace(memories[key], valid_until=moment)
    note = {
        key: [{"id": one, "created_at": memories[one].created_at.isoformat(), "kind": "supersedes"} for one in own]
        for key, own in newer.items()
    }
    hits = tuple(Hit(key, 0.9 - 0.05 * place) for place, key in enumerate(order))
    evidence = Evidence(
        query="q",
        memories=memories,
        variants=(Variant("q"),),
        lists=(RankedList("vector:0", "vector", 0, hits),),
        as_of=NOW,
        notes={SUPERSEDED: note} if note else {},
    )
    return replay(evidence, config)


@pytest.mark.parametrize(
    ("order", "limit", "words", "stale"),
    [
        ("abc", 3, "superseded by b (9 days later), which is 2nd", True),
        ("bac", 3, "superseded by b (9 days later), which is 1st", False),
        ("acb", 2, "superseded by b (9 days later), which is below 2 in every list (best: 3rd in vector:0)", True),
        ("acd", 2, "superseded by b (9 days later), which no list found", True),
    ],
)
def test_words_say_where_the_successor_is(order, limit, words, stale):
    config = with_values(CONFIG, {"assembly.limit": limit})
    trace = traced(order, {"a": ["b"]}, ages={"a": 10}, config=config)
    assert stale_words(trace, "a") == words
    assert staleness(trace, "a").stale is stale and (first_result_stale(trace) is not None) is stale
    assert stale_words(trace, "c") is None


def test_best_ranked_successor_is_named_else_the_latest_that_has_not_expired():
    ranked = traced("axb", {"a": ["c", "b"]}, config=with_values(CONFIG, {"assembly.limit": 3}))
    assert staleness(ranked, "a").successor == "b"
    away = traced("ax", {"a": ["c", "b"]}, until={"c": NOW - timedelta(days=1)})
    assert staleness(away, "a").successor == "b"


def test_expired_is_said_from_its_moment_on():
    gone = traced("ab", {}, until={"a": NOW, "b": NOW + timedelta(seconds=1)})
    assert (stale_words(gone, "a"), stale_words(gone, "b")) == ("expired 2026-07-01", None)
    assert first_result_words(first_result_stale(gone)) == "The first result, a, expired 2026-07-01."
    both = traced("ab", {"a": ["b"]}, until={"a": NOW})
    assert stale_words(both, "a") == "superseded by b (the same day), which is 2nd; expired 2026-07-01"


def test_sentence_names_what_a_memory_supersedes_too():
    trace = traced("abc", {"a": ["b"], "b": ["c"]}, ages={"a": 30, "b": 20, "c": 10})
    assert first_result_words(first_result_stale(trace)) == (
        "The first result, a, is superseded by b (10 days later), which is 2nd."
    )
    assert standing_sentence(trace, "b") == (
        "b is superseded by c (10 days later), which is below 2 in every list (best: 3rd in vector:0); it supersedes a, which is 1st."
    )
    assert standing_sentence(traced("ab", {}), "a") == ""


@pytest.mark.parametrize(
    ("days", "words"),
    [(1, "1 day later"), (157, "157 days later"), (0, "the same day"), (-2, "2 days earlier, by its date")],
)
def test_distance_is_in_calendar_days(days, words):
    assert days_later(NOW, NOW + timedelta(days=days)) == words
    assert days_later(None, NOW) == days_later(NOW, None) == ""


def test_stored_memories_say_their_latest_successor_at_the_moment():
    old = Memory("a", "x", created_at=NOW - timedelta(days=9), valid_until=NOW)
    edges = [SupersedingEdge("a", "b", "supersedes", None, NOW - timedelta(days=2), None, "personal", True)]
    assert stored_standings([old], edges, NOW) == {"a": "superseded by b (7 days later); expired 2026-07-01"}
    assert stored_standings([old], edges, NOW - timedelta(days=3)) == {}


def test_a_successor_that_the_scope_excludes_is_named_with_it():
    """obsidian-mind#199 (2026-08-03): a correction is kept in one project, and a search of the shared scope gets what it corrects."""
    before = traced(["old", "other"], {})
    newer = Memory("new", "text of new", created_at=NOW, scope="personal")
    note = {"old": {"id": "new", "created_at": NOW.isoformat(), "kind": "supersedes", "excluded_by": "scope"}}
    config = with_values(before.config, {"query.scope": "shared", "supersession.mode": "drop"})
    trace = replay(replace(before.evidence, notes={**before.evidence.notes, EXCLUDED: note}), config)
    found = first_result_stale(trace)
    assert found.words == "superseded by new (1 day later), which the query's scope excludes"
    assert found.excluded and not found.in_a_list and stale_badges(trace) == {"old": "superseded by new"}
    assert standing(trace, newer).words == "excluded by the scope"
    assert standing(trace, replace(newer, scope="shared")).words == "no list found it"


class Replies:
    """A store's cache of replies that keeps none."""

    def read(self, key: Any) -> None: ...

    def write(self, key: Any, said: str) -> None: ...


class Says:
    """A chat model with one reply, or an error."""

    label, model_id = "test model", "test"

    def __init__(self, reply: str | ModelError) -> None:
        self.reply = reply
        self.asked = ""

    def ask(self, system: str, user: str) -> str:
        self.asked = user
        if isinstance(self.reply, ModelError):
            raise self.reply
        return self.reply


def asking(reply: str | ModelError) -> Asker:
    return Asker(Says(reply), SimpleNamespace(store=SimpleNamespace(replies=Replies())))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "claims"),
    [
        ("You are moving in November.", ["You are moving in November."]),
        ("Rent is €1,340. The flat has 84.5 m², on floor 3.", ["Rent is €1,340.", "The flat has 84.5 m², on floor 3."]),
        (
            "Dr. Sanna saw the wrist on 3 Nov. 2026. It is fine now!",
            ["Dr. Sanna saw the wrist on 3 Nov. 2026.", "It is fine now!"],
        ),
        ("- **logs** stay 14 days\n2) retries: three times", ["logs** stay 14 days", "retries: three times"]),
        (
            "The move was planned for November, but the colleague keeps her flat now.",
            ["The move was planned for November", "the colleague keeps her flat now."],
        ),
        ("You like bread, but not butter.", ["You like bread, but not butter."]),
        ("Use canaries; blue-green is gone.", ["Use canaries;".rstrip(";"), "blue-green is gone."]),
        ("It is blue.", ["It is blue."]),
    ],
)
def test_sentences_and_clauses_become_claims(text: str, claims: list[str]) -> None:
    found = split_claims(text).claims
    assert [claim.text for claim in found] == claims
    assert [text[claim.start : claim.end] for claim in found] == claims


def test_what_states_nothing_is_left_out_with_a_note() -> None:
    found = split_claims("Sure! You are moving in November. Shall I order boxes for it?")
    assert [claim.text for claim in found.claims] == ["You are moving in November."]
    assert found.notes[0] == "left out, as they state nothing (a question, a greeting): 2 of 3 pieces"


@pytest.mark.parametrize(
    ("text", "says"),
    [("", "empty"), (" \n", "empty"), ("November", "one word"), ("Shall we move now?", "states nothing")],
)
def test_a_text_without_a_claim_is_refused_in_one_line(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as error:
        split_claims(text)
    assert "\n" not in str(error.value)


def test_of_a_long_text_the_first_claims_are_checked_and_the_notes_say_so() -> None:
    found = split_claims("Service number 17 runs in Frankfurt. " * 2_800)
    assert len(found.claims) == MAX_CLAIMS
    assert any(f"first {MAX_CLAIMS} of 2,800 claims" in note for note in found.notes)
    whole = split_claims("frankfurt service " * 6_000)
    assert [len(claim.text) for claim in whole.claims] == [MAX_CLAIM_CHARS]
    assert any("characters are read" in note for note in whole.notes)


@given(st.text(max_size=400))
def test_every_claim_is_a_piece_of_the_text_in_order(text: str) -> None:
    try:
        found = split_claims(text)
    except InputError:
        return
    at = 0
    for claim in found.claims:
        assert claim.start is not None and claim.end is not None
        assert claim.start >= at
        assert text[claim.start : claim.end] == claim.text
        at = claim.end


def test_a_language_model_splits_and_invents_nothing() -> None:
    text = "Elias and you are moving in November, to Pankow."
    found = split_claims(
        text, llm=asking('["Elias and you are moving in November", "The flat in Rome costs 900 euros"]')
    )
    assert [claim.text for claim in found.claims] == ["Elias and you are moving in November"]
    assert found.split_by == "test model"
    assert any("1 claim by" in note for note in found.notes)


@pytest.mark.parametrize(
    "reply", [ModelError("refused: nobody is there"), "I'm sorry, I cannot", '["Rome has nine hills"]']
)
def test_rules_split_when_the_model_fails_and_the_notes_say_so(reply: str | ModelError) -> None:
    found = split_claims("You are moving in November.", llm=asking(reply))
    assert [claim.text for claim in found.claims] == ["You are moving in November."]
    assert found.split_by == "rules"
    assert any("rules instead" in note for note in found.notes)


EMPTY = LexicalIndex()


class Counted(LexicalIndex):
    """An index of 100 texts with these document frequencies."""

    def __init__(self, **frequencies: int) -> None:
        super().__init__()
        self.document_count = 100
        self._known = frequencies

    def document_frequency(self, term: str) -> int:
        return self._known.get(term, 0)


def overlap(claim: str, content: str, title: str | None = None, index: LexicalIndex = EMPTY) -> Overlap:
    return ClaimWords(claim, index).overlap(Memory("m", content, title=title))


@pytest.mark.parametrize(
    ("claim", "content"),
    [
        ("It ends after sixty days", "60 days"),
        ("The rent is 1340 euros", "€1,340 warm"),
        ("You move in November", "from 2026-11-01"),
        ("Mondays are free", "on Monday"),
        ("never in June", "not in June"),
    ],
)
def test_values_and_negations_are_compared_by_what_they_mean(claim: str, content: str) -> None:
    found = overlap(claim, content)
    assert found.share > 0 and not found.lacking
    assert {content[start:end] for start, end in found.content}


def test_parts_of_an_identifier_are_no_evidence_of_it() -> None:
    assert overlap("The key is C01X00T47", "version 00 of 01").lacking == ("C01X00T47",)


def test_share_is_the_weight_of_the_words_in_common() -> None:
    index = Counted(tenant=50, limit=10, **{"600": 1})
    found = overlap("the tenant limit is 600", "every tenant has its limit", index=index)
    common, rare, value = idf(50, 100), idf(10, 100), 2 * idf(1, 100)
    assert found.share == pytest.approx((common + rare) / (common + rare + value))
    assert found.lacking == ("600",) and found.lacking_share == pytest.approx(value / (common + rare + value))
    expected = (COSINE * 0.5 + (1 - COSINE) * found.share) * (1 - LACKING * found.lacking_share)
    assert base_score(0.5, found) == pytest.approx(expected)
    assert base_score(-0.2, found) == base_score(None, found)


def test_words_far_from_each_other_do_not_add_up() -> None:
    filler = " ".join(f"word{number}" for number in range(2 * WINDOW))
    near, far = overlap("moving november", "moving november"), overlap("moving november", f"moving {filler} november")
    assert near.share == 1 and far.share < 1
    # But a value that is anywhere in the memory is not lacking.
    assert not overlap("we move in November", f"move {filler} November").lacking


def test_the_title_belongs_to_every_window() -> None:
    filler = " ".join(f"word{number}" for number in range(3 * WINDOW))
    assert overlap("moving to berlin", f"{filler} berlin", title="Moving").share == 1


@given(st.text(max_size=200), st.text(max_size=300), st.text(max_size=40))
def test_marks_are_words_of_the_texts(claim: str, content: str, title: str) -> None:
    found = overlap(claim, content, title)
    assert 0 <= found.share <= 1 and 0 <= found.lacking_share <= 1
    for text, spans in ((claim, found.claim), (title, found.title), (content, found.content)):
        assert all(0 <= start < end <= len(text) for start, end in spans)
        assert list(spans) == sorted(spans)
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(spans))


@given(st.text(alphabet="abcdefg 0123456789.,-", min_size=1, max_size=60))
def test_a_text_supports_itself_fully(text: str) -> None:
    words = words_of(text)
    if words and len(words) <= WINDOW:
        found = overlap(text, text)
        assert found.share == pytest.approx(1) and not found.lacking


NOTES = "The consumer had lost its connection without noticing. Alerts I silenced: KubeJobFailed until 3 July."
CLAIM = "Notice for ours must be out by the end of July."


@pytest.mark.parametrize(
    ("claim", "content", "reason"),
    [
        (
            "Notice for ours must be out by the end of July",
            "We move. Notice for ours must be out by the end of July.",
            "",
        ),
        ("Elias paid 12,400 euros for the car", "Elias paid €12,400 for the car.", ""),
        ("Jon lost his job", "Jon: Hey Gina! I lost my job yesterday.", ""),
        ("Gina lost her job", "Jon: Hey Gina! I lost my job yesterday.", "“Gina” is not in the passage"),
        (
            "Every task is retried five times",
            "Every task is retried three times, with five minutes between.",
            "three times",
        ),
        (
            "The finance export is ready since 21 June",
            "The finance export, ready since 21 July, has May and June.",
            "21 July",
        ),
        ("Dark mode is built", "Dark mode is not built.", "“built” is negated in one of the two"),
        ("The insurance paid for the bike", "The insurance paid nothing for the bike.", "“paid” is negated"),
        ("The export was signed by Ostrow", "The export waits for Ostrow to sign.", "not said there as done: “signed”"),
        ("Dad has turned 70 in May", "Dad turns 70 in May.", "not said there as done: “turned”"),
        ("You paid 12,400 euros for the car", "Elias paid €12,400 for the car.", "there it is Elias"),
        ("Your lips swelled up", "Elias' lips swelled up.", "there it is Elias'"),
        ("Henrik signs off the export", "Henrik owns the collectors, Dunja signs off the export.", "are apart there"),
        (
            "The blue doors are locked with the key in the lobby.",
            "Only the red doors are locked with the key in the lobby; the blue doors are locked by the guard.",
            "are apart there",
        ),
        ("The office has ten rooms", "Has the office ten rooms?", "not in the passage: ten"),
        (CLAIM, NOTES, "“Notice” and “July” are apart there"),
    ],
)
def test_same_words_do_not_support_what_is_denied_planned_or_of_another(claim: str, content: str, reason: str) -> None:
    """Issue 66, 2026-11-29: "Notice for ours" by an on-call note with "noticing"; obsidian-mind#199 (2026-08-03): "A here; B there"."""
    verdict, said = judged(overlap(claim, content), 0.8)
    assert reason in said and (verdict == "supports") == (not reason)


def test_a_value_that_is_elsewhere_refuses_and_a_number_word_leaves_it_open() -> None:
    assert judged(overlap("The limit is 800 requests", "The limit is 600 requests."), 0.9)[0] == "no"
    assert judged(overlap("Logs are kept two weeks", "Logs are kept 14 days."), 0.9)[0] == "cannot tell"
    assert judged(overlap("The cello is new", "Nothing of the kind."), 0.1)[0] == "no"
