"""Work with progress, cancel and resume, which pages, command line and servers call; nothing here draws or prints.

How a query set goes from queries to a tuned config:

    QuerySelection                 the queries of a set of the store, each within its own project or not
      | gathering.read_evidence      the evidence of a config that was gathered before, by whomever; else
      | gathering.gather_evidence    each query searched once, into a file on the shelf beside the store; goes on after a cancel or a kill
      v
    EvidenceSet                    what replay needs of every query, in one portable file, with the judgments
      | evaluation.agreed            judgments become grades, by kind of judge
      | evaluation.labelled          evidence and grades become a batch, encoded once
      v
    LabelledEvidence
      |-- evaluation.evaluate_configs    configs measured on it, milliseconds each: Evaluate, `evaluate`, `compare`
      v
    tuning.TuningData              with a baseline
      | tuning.plan_search           space, goal, folds, sealed hold-out, seed
      | tuning.run_search            every score is kept beside the evidence, so that page and command line go on with each other's;
      |                              on the page in a thread, `background_search`
      v
    tuning.SearchResult            the proposal, what it is worth on queries it was not chosen on, its evidence card
      | tuning.open_holdout          the sealed queries, scored once; looks are counted for page and command line together

`catalogue` is what configs can be chosen by name, `config_history` what was kept and is taken back, `evidence_memory` evidence of single
queries for the tools of Inspect, `labelling` what reviewers are given to judge, `diagnosis` the account of `doctor`, `opening` the way from
settings to store and models.
"""
