"""What each query of several gave a candidate adds up to its raw score, whatever the fusion."""

from __future__ import annotations

import pytest
from hypothesis import given
from strategies import configs, evidences

from cems_workbench.analysis.component_effects import variant_contributions
from cems_workbench.config import PipelineConfig
from cems_workbench.pipeline import Evidence, replay
from cems_workbench.ui.inspect.variants import shares_table


@given(evidences(), configs())
def test_the_shares_of_the_queries_make_the_raw_score(evidence: Evidence, config: PipelineConfig) -> None:
    trace = replay(evidence, config)
    kept = [row for row in trace.stage("fusion").rows if row.kept]
    found = variant_contributions(trace)
    assert [shares.memory_id for shares in found] == [row.memory_id for row in kept]
    for shares in found:
        gave = shares.by_variant.values()
        if trace.stage("fusion").fields.combine == "max":
            terms = [*gave, *([shares.other] if shares.decisive is None else [])]
            assert shares.raw == pytest.approx(shares.boost * max(terms), abs=1e-9)
            assert shares.decisive is None or shares.by_variant[shares.decisive] == max(gave)
        else:
            assert shares.raw == pytest.approx(shares.boost * (sum(gave) + shares.other), abs=1e-9)
            assert shares.decisive is None


@given(evidences(), configs())
def test_the_table_has_a_row_for_every_query_the_raw_scores_and_last_the_scores_that_order(evidence, config):
    trace = replay(evidence, config)
    _, table = shares_table(trace)
    assert [row[0].split()[0] for row in table[: len(evidence.variants)]] == [
        str(i) for i in range(len(evidence.variants))
    ]
    rows = [row for row in trace.stage("fusion").rows if row.kept][:10]
    assert next(row for row in table if row[0].startswith("= raw score"))[2:] == [f"{row.raw:.4f}" for row in rows]
    assert table[-1][2:] == [f"{row.score:.4f}" for row in rows]
