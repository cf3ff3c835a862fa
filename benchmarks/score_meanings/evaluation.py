"""How tools of evaluation and tuning order equal scores, and what they credit."""

from __future__ import annotations

from typing import Any

from benchmarks.score_meanings import Facts, number, probe


@probe("pytrec-eval-terrier", "ranx")
def trec_eval() -> dict[str, Facts]:
    """Scores that differ by less than 32 bits can hold."""
    import pytrec_eval
    from ranx import Qrels, Run, evaluate

    qrels = {"q": {"a": 1, "z": 0}}
    run = {"q": {"a": 1_764_000_001.0, "z": 1_764_000_000.0}}
    found = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank"}).evaluate(run)["q"]["recip_rank"]
    tied = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank"}).evaluate({"q": {"a": 1.0, "z": 1.0}})["q"]
    return {
        "trec_eval": {
            "reciprocal rank of a memory that is first by one second since 1970": number(found),
            "ties": "by id, descending" if tied["recip_rank"] == 0.5 else "by id, ascending",
        },
        "ranx": {
            "reciprocal rank of a memory that is first by one second since 1970": number(
                float(evaluate(Qrels(qrels), Run(run), "mrr"))  # type: ignore[arg-type]
            )
        },
    }


@probe("scikit-learn")
def sklearn_ndcg() -> dict[str, Facts]:
    """nDCG of an answer in which nothing was returned, so that every score is 0."""
    import numpy as np
    from sklearn.metrics import ndcg_score

    empty = ndcg_score(np.array([[3, 0, 0, 0]]), np.zeros((1, 4)))
    return {"sklearn_ndcg": {"nDCG where every score is 0": number(float(empty))}}


@probe("optuna")
def optuna() -> dict[str, Facts]:
    """The default of TPE, and which of two equal trials is the best."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)

    def drawn(**options: Any) -> list[float]:
        study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1, **options))
        study.optimize(lambda trial: (trial.suggest_float("x", 0, 1) - 0.3) ** 2 + trial.suggest_float("y", 0, 1), 14)
        return [round(trial.params["x"], 9) for trial in study.trials]

    study = optuna.create_study()
    study.optimize(lambda trial: 1.0, 2)
    nan = optuna.create_study()
    nan.optimize(lambda trial: float("nan"), 1)
    default = drawn()
    return {
        "optuna_tpe": {
            "default sampler": "multivariate" if default == drawn(multivariate=True) else "univariate",
            "other values than univariate": "yes" if default != drawn(multivariate=False) else "no",
            "best of two equal trials": "the first" if study.best_trial.number == 0 else "the last",
            "a trial that returns NaN": nan.trials[0].state.name.lower(),
        }
    }
