"""Measures of rankings, (Q) values of Q queries each: the first k of them, all when `k` is None; `grade` is the lowest that is relevant."""

from __future__ import annotations

import numpy as np

from cems_workbench.evaluation.metrics import GradedRankings, discounts, families
from cems_workbench.pipeline.table import Floats, Ints


def hit(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) 1.0 where one of the first k is relevant.

    hit@k: is any of the first k relevant? What the CEMS and ACE documents call R@k or recall.
    Source: trec_eval's success_k; LongMemEval's recall_any@k.
    """
    hits: Floats = rankings.relevant(grade)[:, :k].any(axis=1).astype(float)
    return hits


def recall(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) the share of the relevant that is among the first k.

    recall@k: relevant in the first k / all relevant.
    Source: trec_eval's recall_k.
    """
    share: Floats = rankings.relevant(grade)[:, :k].sum(axis=1) / rankings.relevant_count(grade).clip(1)
    return share


def all_found(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) 1.0 where every relevant memory is among the first k.

    all@k: are all relevant memories among the first k? 1 or 0: what a question needs that is answered from several memories together.

    Of one query hit@k >= recall@k >= all@k, and the three are equal where one memory is relevant. More than k relevant ones never fit: 0.
    Source: LongMemEval's recall_all@k (Wu et al., LongMemEval, 2025; `evaluate_retrieval` in src/retrieval/eval_utils.py). Its
    run_retrieval.py leaves questions without an answer (`_abs`) and those without a target out of the mean, as every measure here does;
    its print_retrieval_metrics.py leaves out the former only, and counts 1 for a question without a target.
    """
    found = rankings.relevant(grade)[:, :k].sum(axis=1)
    everything: Floats = (found >= rankings.relevant_count(grade)).astype(float)
    return everything


def precision(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) the share of k ranks that hold something relevant; of the results there are when k is None.

    P@k: relevant in the first k / k; a short ranking is not forgiven. P: relevant in all that is returned / results; 0 without results.
    Source: trec_eval's P_k.
    """
    depth = rankings.filled.sum(axis=1).clip(1) if k is None else k
    share: Floats = rankings.relevant(grade)[:, :k].sum(axis=1) / depth
    return share


def reciprocal_rank(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) reciprocal rank within the first k, all when None.

    Reciprocal rank: 1 / rank of the first relevant result, 0 when none of the first k is relevant. Its mean is MRR.
    Source: Voorhees, TREC-8 question answering track, 1999; trec_eval's recip_rank.
    """
    relevant = rankings.relevant(grade)[:, :k]
    if not relevant.shape[1]:
        return np.zeros(len(relevant))
    return np.where(relevant.any(axis=1), 1 / (relevant.argmax(axis=1) + 1), 0.0)


def average_precision(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) average precision over the first k, all when None.

    Average precision: the mean, over all relevant memories, of the precision at the rank of each; 0 for one not relevant.
    Source: Buckley & Voorhees 2005; trec_eval's map and map_cut_k, which divide by all relevant, relevant or not.
    """
    relevant = rankings.relevant(grade)[:, :k]
    at_rank = np.cumsum(relevant, axis=1) / np.arange(1, relevant.shape[1] + 1)
    average: Floats = (at_rank * relevant).sum(axis=1) / rankings.relevant_count(grade).clip(1)
    return average


def ndcg(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) nDCG over the first k, all when None; 0 where nothing can be gained. `grade` has no part in it.

    nDCG@k: gained cumulated with a discount, by the most that could have been gained.

        DCG@k = sum over ranks r <= k of gain / log2(1 + r),    nDCG@k = DCG@k / DCG@k of the judged memories, best first

    The gain is the grade itself (linear), as in trec_eval's ndcg_cut, so that numbers compare with published ones; the exponential
    gain 2^grade - 1 (Burges et al. 2005) differs from it only where grades above 1 are given. A negative grade gains nothing.
    Source: Järvelin & Kekäläinen 2002; trec_eval, m_ndcg_cut.c.
    """
    best = _cumulated(rankings.ideal, k)
    gained = _cumulated(np.where(rankings.judged, rankings.grade, 0), k)
    return np.divide(gained, best, out=np.zeros_like(gained), where=best > 0)


def _cumulated(grades: Ints, k: int | None) -> Floats:
    gains = np.maximum(grades[:, :k], 0)
    total: Floats = gains @ discounts(gains.shape[1])
    return total


def judged_share(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) the judged share of the first k results; 0 without results. `grade` has no part in it.

    Judged@k: the share of the first k results that anybody judged. Where it is low, every other measure is a guess.
    Source: ir-measures, Judged, which divides by the results there are when they are fewer than k.
    """
    shown = rankings.filled[:, :k].sum(axis=1)
    share: Floats = (rankings.judged & rankings.filled)[:, :k].sum(axis=1) / shown.clip(1)
    return share


def stale_share(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) the stale share of the first k results; 0 without results, NaN where it is not known. `grade` has no part in it.

    stale@k: the share of the first k results that are stale: expired, or superseded by memories of which none is ranked above.

        stale@k = (stale results among the first k) / (results among the first k)

    A query without results has 0. A query has no value where it is not known which of its memories are superseded, since no edge of the
    store says so and none has a date of expiry. No judgment is read.
    """
    if not len(rankings.stale_known):
        return np.full(len(rankings.filled), np.nan)
    shown = rankings.filled[:, :k].sum(axis=1)
    share = (rankings.stale & rankings.filled)[:, :k].sum(axis=1) / shown.clip(1)
    return np.where(rankings.stale_known, share, np.nan)


def noise(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) the share of k ranks that are filled; `grade` has no part in it.

    noise@k: places of the first k that are filled where nothing answers the query, / k.

    Of queries that nothing in the store answers alone, and lower is better: each filled place is a memory that an agent reads for nothing.
    Source: Noise@k of retrieval logs, as memo and qmd's trackers ask for it.
    """
    share: Floats = rankings.filled[:, :k].sum(axis=1) / np.float64(k or max(rankings.filled.shape[1], 1))
    return share


def answered(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) 1 where there is a result, 0 where there is none; `k` and `grade` have no part in it.

    answered: the share of queries that nothing in the store answers which get a result all the same; lower is better.
    """
    return rankings.filled.any(axis=1).astype(float)


def refused(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) 1 where there is no result, 0 where there is one; `k` has no part in it.

    refused: the share of answerable queries that get no result at all; lower is better.
    """
    return (~rankings.filled.any(axis=1)).astype(float)


def token_count(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) the tokens of the first k results, all when `k` is None; NaN where they are not known. `grade` has no part in it.

    tokens@k: the tokens that an agent reads, counted as characters / 4 of each memory; lower is better.
    """
    if not rankings.tokens.shape[1]:
        return np.where(rankings.filled.any(axis=1), np.nan, 0.0)
    read: Floats = rankings.tokens[:, :k].sum(axis=1).astype(float)
    return read


def relevant_tokens(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) the share of the tokens of the first k results that relevant ones have; 0 without results, NaN where they are not known.

    tokens_relevant@k: tokens of the relevant among the first k / tokens of the first k.
    """
    read = token_count(rankings, k, grade)
    if not rankings.tokens.shape[1]:
        return read
    of_use = np.where(rankings.relevant(grade), rankings.tokens, 0)[:, :k].sum(axis=1)
    share: Floats = np.divide(of_use, read, out=np.zeros(len(read)), where=read > 0)
    return share


def gathering_time(rankings: GradedRankings, k: int | None, grade: int) -> Floats:
    """(Q) the milliseconds that a query took when its evidence was gathered; NaN without a record. `k` and `grade` have no part in it.

    ms: milliseconds of gathering a query, as gathered: every list, also one that the config has off, and the model scores it asked for.
    `ms(by=NAME)` is the time of one part. Neither has what replay computes, from normalising to assembly.
    """
    return rankings.ms.get(rankings.chosen, np.full(len(rankings.filled), np.nan))


MEASURE = families(
    hit=hit,
    recall=recall,
    all=all_found,
    P=precision,
    MRR=reciprocal_rank,
    AP=average_precision,
    nDCG=ndcg,
    Judged=judged_share,
    stale=stale_share,
    noise=noise,
    answered=answered,
    refused=refused,
    tokens=token_count,
    tokens_relevant=relevant_tokens,
    ms=gathering_time,
)
