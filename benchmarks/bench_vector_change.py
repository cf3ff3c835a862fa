"""How often the intervals of `what-if --embedder` and `what-if --chunks` hold the true changes, over random pairs.

    python -m benchmarks.bench_vector_change --beir ../shared/data/scifact --locomo ../shared/data/locomo [--pairs 50] [--seed 0]
        [--chunks] [--clapnq ../shared/data/clapnq] [--static FOLDER] [--cache FOLDER] [--first 0]

Embedders: the packaged model, its 8-bit form, hashed words, hashed n-grams, and with --static a table of token vectors (FOLDER has a
.safetensors file and tokenizer.json, such as those in the wheel of PyPI's wordllama 0.4.0). Stores: the first 280 characters of SciFact's
abstracts, and the turns of LoCoMo's conversations; with --chunks 1,500 whole abstracts and ClapNQ's passages, and instead of a second
embedder a second rule. Of each pair 15 to 59 judged queries are drawn, fewer of a small store, and a config. At most a tenth of the
vectors is made. The truth is nDCG@10 of the vector list, and of the config, with all of them: in a store that is embedded in full and
gathered. `UNCERTAIN` was set with other seeds than those that are reported.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cems_workbench.analysis.vector_change import NDCG, Cosines
from cems_workbench.config import preset
from cems_workbench.evaluation.batch import LabelledBatch
from cems_workbench.jobs import factory
from cems_workbench.jobs.evaluation import agreed
from cems_workbench.jobs.query_set_evidence import request_for, selected
from cems_workbench.jobs.vector_change import vector_change
from cems_workbench.models.minilm_embedder import local_embedder
from cems_workbench.models.protocol import Float32
from cems_workbench.models.resolve import EIGHT_BIT_ID, PACKAGED_ID
from cems_workbench.pipeline.gather import gather
from cems_workbench.pipeline.resources import Resources
from cems_workbench.progress import Progress, silent
from cems_workbench.records import Judgment, Memory, ParsedInput, Query
from cems_workbench.settings import Settings
from cems_workbench.store import Store
from cems_workbench.store.importing import ImportOptions

SHARE, CHARS, WHOLE_ABSTRACTS, FEATURES, MOST_JUDGED = 0.1, 280, 1_500, 1024, 0.05
RULES = ("whole", "embedder", "openclaw", "cems")
CONFIGS = ("cems", "mem0", "engram_search", "workbench")
Corpus = tuple[list[str], list[str], list[str], list[set[str]]]
"""Ids and texts of the memories; queries, and the ids of the relevant memories of each."""
Encode = Callable[[Sequence[str]], Cosines]


def scifact(folder: Path, chars: int | None, most: int | None) -> Corpus:
    """Abstracts and claims of BEIR's SciFact."""
    rows = [json.loads(line) for line in (folder / "corpus.jsonl").read_text("utf-8").splitlines()[:most]]
    queries = {
        row["_id"]: row["text"] for row in map(json.loads, (folder / "queries.jsonl").read_text("utf-8").splitlines())
    }
    relevant: dict[str, set[str]] = {}
    for path in sorted((folder / "qrels").iterdir()):
        for qid, key, grade in (line.split("\t") for line in path.read_text("utf-8").splitlines()[1:]):
            if int(grade) > 0:
                relevant.setdefault(qid, set()).add(key)
    texts, ids = [f"{row['title']}. {row['text']}"[:chars] for row in rows], [row["_id"] for row in rows]
    known = {*ids}
    kept = {qid: keys for qid, keys in relevant.items() if keys <= known}
    return ids, texts, [queries[qid] for qid in kept], list(kept.values())


def locomo(folder: Path) -> Corpus:
    """Turns and questions of the conversations, with the turns that are their evidence."""
    ids, texts, queries, relevant = list[str](), list[str](), list[str](), list[set[str]]()
    for path in sorted(folder.glob("*.json")):
        told = json.loads(path.read_text("utf-8"))
        sessions = [value for key, value in told.items() if key.startswith("session_") and isinstance(value, list)]
        for turns in sessions:
            for turn in turns:
                ids.append(f"{path.stem}:{turn['dia_id']}")
                texts.append(f"{turn['speaker']}: {turn['text']}")
        for asked in told["qa"]:
            queries.append(asked["question"])
            relevant.append({f"{path.stem}:{turn}" for turn in asked.get("evidence") or ()})
    known = set(ids)
    answered = [at for at, keys in enumerate(relevant) if keys and keys <= known]
    return ids, texts, [queries[at] for at in answered], [relevant[at] for at in answered]


def clapnq(folder: Path) -> Corpus:
    """Passages of both files, and the answerable questions."""
    texts, queries, relevant = dict[str, str](), list[str](), list[set[str]]()
    for path in sorted(folder.glob("*.jsonl")):
        for row in map(json.loads, path.read_text("utf-8").splitlines()):
            own = {f"{row['id']}-{at}": f"{one['title']}. {one['text']}" for at, one in enumerate(row["passages"])}
            texts |= own
            if "unanswerable" not in path.name:
                queries.append(row["input"])
                relevant.append({*own})
    return [*texts], [*texts.values()], queries, relevant


def encoders(static: Path | None) -> dict[str, Encode]:
    """The embedders by name."""
    from sklearn.feature_extraction.text import HashingVectorizer

    def hashed(analyzer: str, ngrams: tuple[int, int]) -> Encode:
        made = HashingVectorizer(analyzer=analyzer, ngram_range=ngrams, n_features=FEATURES)
        return lambda texts: made.transform(texts).toarray()

    def table(texts: Sequence[str]) -> Cosines:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        assert static is not None
        vectors = next(iter(load_file(next(static.glob("*.safetensors"))).values())).astype(np.float32)
        read = Tokenizer.from_file(str(static / "tokenizer.json"))
        return np.stack(
            [vectors[one.ids].mean(axis=0) for one in read.encode_batch(list(texts), add_special_tokens=False)]
        )

    found: dict[str, Encode] = {"words": hashed("word", (1, 1)), "n-grams": hashed("char_wb", (3, 4))}
    found |= {name: partial(local_embedder(name).encode) for name in (PACKAGED_ID, EIGHT_BIT_ID)}
    return found | ({"static": table} if static else {})


class Kept:
    """An embedder whose vectors are kept in a file."""

    def __init__(self, name: str, encode: Encode, cache: Path) -> None:
        self.model_id = self.line = name
        self._encode, self._path, self._new = encode, cache / f"{name.rpartition('/')[2]}.npy", False
        self._known: dict[str, Float32] = {}
        if self._path.is_file():
            texts = json.loads(self._path.with_suffix(".json").read_text("utf-8"))
            self._known = dict(zip(texts, np.load(self._path), strict=True))
        self.dimension = int(self.encode(["a"]).shape[1])

    def encode(self, texts: Sequence[str], progress: Progress = silent) -> Float32:
        """Unit vectors."""
        fresh = [text for text in dict.fromkeys(texts) if text not in self._known]
        if fresh:
            vectors = np.asarray(self._encode(fresh), dtype=np.float32)
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
            self._known |= dict(zip(fresh, vectors, strict=True))
            self._new = True
        return np.stack([self._known[text] for text in texts])

    def encode_query(self, text: str) -> Float32:
        """The unit vector of a query."""
        return np.asarray(self.encode([text])[0])

    def save(self) -> None:
        """Keep what is new."""
        if self._new:
            self._path.with_suffix(".json").write_text(json.dumps([*self._known]), "utf-8")
            np.save(self._path, np.stack([*self._known.values()]))
            self._new = False


def opened(folder: Path, corpus: Corpus, embedder: Kept, rule: str) -> Resources:
    """A store of a corpus, embedded in full."""
    new = not Store.exists(folder)
    store = Store.open(folder)
    if new:
        memories = tuple(Memory(key, text) for key, text in zip(corpus[0], corpus[1], strict=True))
        store.add(ParsedInput("memories", "bench", memories=memories))
    store.chunks.choose(rule)
    resources = Resources(store, embedder, factory.servers(Settings()))
    resources.refresh()
    embedder.save()
    return resources


def truth(resources: Resources, query_set: str, config_name: str) -> tuple[float, float]:
    """nDCG@10 of the vector list, and of a config."""
    config = preset(config_name).config
    selection, judgments = selected(query_set, resources, True)
    grades = agreed(judgments, None).grades
    first = {
        query.qid: [
            key for key, _ in resources.indexes.vectors.search(resources.embedder.encode_query(query.query), 10)
        ]
        for query in selection.queries
    }
    gains = [[float(key in grades[qid]) for key in ids] for qid, ids in first.items()]
    weights = 1 / np.log2(np.arange(2, 12))
    alone = [
        sum(np.multiply(own, weights[: len(own)])) / sum(weights[: len(grades[qid])])
        for own, qid in zip(gains, first, strict=True)
    ]
    moment = datetime.now(UTC)
    found = {one.qid: gather(request_for(one, moment), config, resources, judge="decisive") for one in selection.queries}
    rankings = LabelledBatch(selection.queries, found, grades).rankings(config)
    return float(np.mean(alone)), float(np.nanmean(NDCG.values(rankings.graded)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beir", type=Path)
    parser.add_argument("--locomo", type=Path)
    parser.add_argument("--clapnq", type=Path)
    parser.add_argument("--static", type=Path)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--chunks", action="store_true")
    parser.add_argument("--configs", nargs="+", default=CONFIGS)
    parser.add_argument("--pairs", type=int, default=50)
    parser.add_argument("--first", type=int, default=0, help="the first pair that is run")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    corpora: Mapping[str, Corpus] = {
        **({"scifact": scifact(asked.beir, *((None, WHOLE_ABSTRACTS) if asked.chunks else (CHARS, None)))} if asked.beir else {}),
        **({"locomo": locomo(asked.locomo)} if asked.locomo and not asked.chunks else {}),
        **({"clapnq": clapnq(asked.clapnq)} if asked.clapnq and asked.chunks else {}),
    }
    cache = asked.cache or Path(tempfile.mkdtemp(prefix="vector-change-"))
    embedders = {name: Kept(name, encode, cache) for name, encode in encoders(asked.static).items()}
    random, stores = np.random.default_rng(asked.seed), dict[Path, Resources]()
    rows = list[list[tuple[bool, float, float]]]()
    for pair in range(asked.pairs):
        corpus, config = str(random.choice(list(corpora))), str(random.choice(asked.configs))
        names = [str(name) for name in random.choice(list(embedders), 2, replace=False)]
        rules = [str(name) for name in random.choice(RULES, 2, replace=False)]
        names, rules = (names[:1] * 2, rules) if asked.chunks else (names, ["embedder"] * 2)
        ids, _, queries, relevant = corpora[corpus]
        order, most, drawn = random.permutation(len(queries)).tolist(), int(random.integers(15, 60)), list[int]()
        for at in order:
            if len(drawn) < most and len(set().union(*(relevant[one] for one in [*drawn, at]))) <= MOST_JUDGED * len(
                ids
            ):
                drawn.append(at)
        if pair < asked.first:
            continue
        label, own = f"seed{asked.seed}-{pair}", [Query(f"q{at}", queries[at]) for at in drawn]
        judgments = tuple(Judgment(f"q{at}", key, 1) for at in drawn for key in sorted(relevant[at]))
        sides = []
        for name, rule in zip(names, rules, strict=True):
            folder = cache / "-".join(["stores", corpus, name.rpartition("/")[2], rule, str(asked.chunks)])
            if folder not in stores:
                stores[folder] = opened(folder, corpora[corpus], embedders[name], rule)
            side = stores[folder]
            given = ParsedInput(label, "bench", queries=tuple(own), judgments=judgments)
            side.store.add(given, options=ImportOptions(query_set=label))
            sides.append(side)
        before, after = (truth(side, label, config) for side in sides)
        changed: dict[str, Any] = {"rule": rules[1]} if asked.chunks else {"other": embedders[names[1]]}
        found = vector_change(label, sides[0], preset(config).config, share=SHARE, seed=pair, **changed)
        assert found.whole is not None
        said = f"{pair:3} {corpus:8} {config:13} {' '.join(n.rpartition('/')[2] for n in names)} {' '.join(rules)} {len(drawn):3} queries"
        row = list[tuple[bool, float, float]]()
        for one, was, now in zip((found.alone, found.whole), before, after, strict=True):
            inside = one.low - 1e-6 <= now - was <= one.high + 1e-6
            row.append((inside, one.high - one.low, abs(one.before - was)))
            said += f"  {now - was:+.4f} [{one.low:+.4f}, {one.high:+.4f}]{'' if inside else ' outside'}"
        rows.append(row)
        print(f"{said} {found.embedded / found.vectors:.3f}", flush=True)
    for side in stores.values():
        side.close()
    for name, own_rows in zip(("the list alone", "end to end"), zip(*rows, strict=True), strict=True):
        share, widths, off = (float(np.mean(each)) for each in zip(*own_rows, strict=True))
        print(f"{name}: inside {share:.1%} of {len(own_rows)}, mean width {widths:.3f}, off before {off:.4f}")


if __name__ == "__main__":
    main()
