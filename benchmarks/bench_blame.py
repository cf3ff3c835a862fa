"""Blame: the rank of the memory that supports an answer, for answers written by hand in other words than their memory's.

    python -m benchmarks.bench_blame [--store STORE] [--details]

30 answers from the sample store, half of them wrong because their memory is superseded, and 12 that no memory supports. hit@k is the
share of the 30 with their memory within the first k of its claim: by the lexical index alone, by the vector index alone, and as `blame`
ranks them. Of the 12, how many get no memory; of the 30, how many get none. Whether a memory supports a claim: benchmarks/bench_support.py.
STORE holds the sample set; without it one is made.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import closing
from pathlib import Path

from cems_workbench import formats
from cems_workbench.analysis.blame import supporting
from cems_workbench.analysis.support import Claim
from cems_workbench.builtin import SAMPLE_DATA
from cems_workbench.jobs.factory import open_resources
from cems_workbench.pipeline.resources import Resources
from cems_workbench.records import ENGLISH
from cems_workbench.settings import Settings

ANSWERS: tuple[tuple[str, str], ...] = (
    ("You are moving in November.", "m249"),
    ("You decided to stay in your apartment because the coworker is not giving hers up.", "m312"),
    ("Logs disappear after two weeks in every environment.", "m200"),
    ("Production logs can be searched for a month.", "m272"),
    ("Your favourite dish is the pork at Kranichkeller.", "m027"),
    ("You stopped eating meat and fish at the start of March.", "m073"),
    ("A merge fails if fewer than 80 percent of the lines are covered by tests.", "m224"),
    ("A task that fails is tried again three times.", "m245"),
    ("Unaggregated events get removed from the bucket after three months.", "m034"),
    ("A new version is switched over blue-green after a ten minute smoke test.", "m024"),
    ("Every tenant is limited to 600 calls a minute.", "m023"),
    ("Tenants can send 1200 requests each minute.", "m074"),
    ("Start commits with feat, fix or chore.", "m006"),
    ("You won't offer a dark theme.", "m194"),
    ("Client state belongs in Redux slices.", "m015"),
    ("Customers can be refunded up to a month after payment.", "m186"),
    ("Money can be returned to a customer within 60 days.", "m309"),
    ("The film reels cost 21 euros each to digitise.", "m359"),
    ("You sent the gimbal back and got 259 euros.", "m176"),
    ("The doctor wants you to wear a splint at night because of your wrist.", "m078"),
    ("Your cat is grey and hears only with one ear.", "m199"),
    ("The rent rises to 1340 euros in December.", "m191"),
    ("Airflow was shut down at the end of July.", "m124"),
    ("Dunja is the one who signs off at Ostrow.", "m220"),
    ("People with many groups get an error because their cookie grows too big.", "m341"),
    ("Old public API versions keep working for a year and a half.", "m395"),
    ("You must not push with force to main.", "m250"),
    ("Uploads over 20 megabytes are rejected.", "m210"),
    ("You can donate blood again on September 4.", "m320"),
    ("The brokers are restarted on the first Sunday of each month at five in the morning.", "m430"),
)
"""What an agent may have said, and the memory that says it."""
UNSUPPORTED = (
    "Your flight to Lisbon leaves at 7:15 from gate B22.",
    "Your sister's wedding is on 12 June in Verona.",
    "The mortgage is fixed at 3.4 percent until 2031.",
    "You are allergic to penicillin.",
    "The Kafka cluster has nine brokers in Frankfurt.",
    "Your passport number is C01X00T47.",
    "The quarterly report is due on Friday.",
    "You play the cello in an amateur orchestra.",
    "The iOS app was rejected by Apple's review team.",
    "Your daughter starts school next week.",
    "The MongoDB replica set lost its primary on Tuesday.",
    "Your car needs new brakes before the inspection.",
)
"""Answers that no memory of the sample supports."""
DEPTH = 30
WAYS = ("lexical", "vector", "both")


def ranked(text: str, way: str, resources: Resources) -> list[str]:
    """The ids of the memories for one answer, best first."""
    if way == "lexical":
        return [memory_id for memory_id, _ in resources.indexes.lexical.search(text, DEPTH)]
    if way == "vector":
        vector = resources.embedder.encode([text])[0]
        return [memory_id for memory_id, _ in resources.indexes.vectors.search(vector, DEPTH)]
    vector = resources.embedder.encode([text])[0]
    return [one.memory.id for one in supporting(Claim(text, 0, len(text)), vector, ENGLISH, resources)]


def main() -> None:
    """Print the table of docs/use/blame.md."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--store", type=Path)
    parser.add_argument("--details", action="store_true", help="print the rank of each answer's memory")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        resources = open_resources(Settings(store=options.store or Path(folder) / "store"))
        with closing(resources):
            if options.store is None:
                for parsed in formats.read_path(SAMPLE_DATA):
                    resources.store.add(parsed)
                resources.refresh()
            measure(resources, options.details)


def measure(resources: Resources, details: bool) -> None:
    """Measure every way on every answer."""
    print(
        "| found by | hit@1 | hit@3 | no memory, of 30 supported | no memory, of 12 unsupported |\n|---|---|---|---|---|"
    )
    for way in WAYS:
        found = {text: ranked(text, way, resources) for text, _ in ANSWERS}
        hits = {k: sum(memory_id in found[text][:k] for text, memory_id in ANSWERS) / len(ANSWERS) for k in (1, 3)}
        missed = sum(not ids for ids in found.values())
        silent = sum(not ranked(text, way, resources) for text in UNSUPPORTED)
        print(f"| {way} | {hits[1]:.2f} | {hits[3]:.2f} | {missed} | {silent} |")
        for text, memory_id in ANSWERS if details else ():
            place = found[text].index(memory_id) + 1 if memory_id in found[text] else None
            if place != 1:
                print(f"    {place}: {text} {found[text][:3]}, wanted {memory_id}")


if __name__ == "__main__":
    main()
