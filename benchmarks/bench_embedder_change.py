"""How often the interval of `what-if --embedder` holds the true change, over random pairs of embedders and stores.

    python -m benchmarks.bench_embedder_change --beir ../shared/data/scifact --locomo ../shared/data/locomo [--pairs 50] [--seed 0]
        [--static FOLDER] [--cache FOLDER]

Embedders: the packaged model, its 8-bit form, hashed words, hashed n-grams, and with --static a table of token vectors (FOLDER has a
.safetensors file and tokenizer.json, such as those in the wheel of PyPI's wordllama 0.4.0). Stores: the first 280 characters of SciFact's
abstracts, and the turns of LoCoMo's conversations; 15 to 59 judged queries of them, drawn. A tenth of the memories is embedded by the
second embedder; the truth is nDCG@10 with all of them. `UNCERTAIN` was set with the seeds 5 and 77.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from cems_workbench.analysis.embedder_change import Cosines, change_of, chosen_memories
from cems_workbench.evaluation.metrics import graded, parse_measure
from cems_workbench.models.minilm_embedder import local_embedder
from cems_workbench.models.resolve import EIGHT_BIT_ID, PACKAGED_ID

SHARE, CHARS, FEATURES = 0.1, 280, 1024
Corpus = tuple[list[str], list[str], list[str], list[set[str]]]
"""Ids and texts of the memories; queries, and the ids of the relevant memories of each."""
Encode = Callable[[Sequence[str]], Cosines]


def scifact(folder: Path) -> Corpus:
    """Abstracts and claims of BEIR's SciFact."""
    rows = [json.loads(line) for line in (folder / "corpus.jsonl").read_text("utf-8").splitlines()]
    queries = {
        row["_id"]: row["text"] for row in map(json.loads, (folder / "queries.jsonl").read_text("utf-8").splitlines())
    }
    relevant: dict[str, set[str]] = {}
    for path in sorted((folder / "qrels").iterdir()):
        for qid, key, grade in (line.split("\t") for line in path.read_text("utf-8").splitlines()[1:]):
            if int(grade) > 0:
                relevant.setdefault(qid, set()).add(key)
    texts = [f"{row['title']}. {row['text']}"[:CHARS] for row in rows]
    return [row["_id"] for row in rows], texts, [queries[qid] for qid in relevant], list(relevant.values())


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


def unit_vectors(name: str, encode: Encode, corpus: str, texts: Sequence[str], cache: Path | None) -> Cosines:
    """Unit vectors of texts, kept in the cache."""
    path = None if cache is None else cache / f"{corpus}.{name.rpartition('/')[2]}.npy"
    if path is not None and path.is_file():
        kept: Cosines = np.load(path)
        return kept
    vectors = np.asarray(encode(texts), dtype=np.float32)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    if path is not None:
        np.save(path, vectors)
    return vectors


def true_value(cosines: Cosines, relevant: Sequence[set[int]]) -> float:
    """nDCG@10 of all memories in the order of their cosines."""
    first = [[str(number) for number in np.argsort(-row, kind="stable")[:10]] for row in cosines]
    grades = [{str(number): 1 for number in keys} for keys in relevant]
    return float(parse_measure("nDCG@10").values(graded(first, grades)).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--beir", type=Path)
    parser.add_argument("--locomo", type=Path)
    parser.add_argument("--static", type=Path)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--pairs", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    corpora = {"scifact": scifact(asked.beir)} if asked.beir else {}
    corpora |= {"locomo": locomo(asked.locomo)} if asked.locomo else {}
    named, random = encoders(asked.static), np.random.default_rng(asked.seed)
    held, widths = [], []
    for pair in range(asked.pairs):
        corpus = str(random.choice(list(corpora)))
        names = [str(name) for name in random.choice(list(named), 2, replace=False)]
        ids, texts, queries, relevant = corpora[corpus]
        place = {key: number for number, key in enumerate(ids)}
        drawn = random.choice(len(queries), min(len(queries), int(random.integers(15, 60))), replace=False).tolist()
        grades = [{place[key]: 1 for key in relevant[at]} for at in drawn]
        before, after = (
            unit_vectors(name, named[name], f"{corpus}.queries", queries, asked.cache)[drawn]
            @ unit_vectors(name, named[name], corpus, texts, asked.cache).T
            for name in names
        )
        chosen = chosen_memories(
            before, sorted({number for of_query in grades for number in of_query}), round(SHARE * len(ids)), pair
        )
        found = change_of((names[0], names[1]), before, chosen, after[:, chosen[0]], grades, seed=pair)
        own = [set(of_query) for of_query in grades]
        true = true_value(after, own) - true_value(before, own)
        held.append(found.low - 1e-6 <= true <= found.high + 1e-6)
        widths.append(found.high - found.low)
        said = f"{corpus:8} {names[0].rpartition('/')[2]:20} {names[1].rpartition('/')[2]:20} {len(drawn):3} queries"
        print(f"{said}  {true:+.4f} [{found.low:+.4f}, {found.high:+.4f}] {'' if held[-1] else 'outside'}", flush=True)
    print(
        f"inside: {sum(held)} of {len(held)} ({np.mean(held):.0%}), mean width {np.mean(widths):.3f}, {SHARE:.0%} of the vectors"
    )


if __name__ == "__main__":
    main()
