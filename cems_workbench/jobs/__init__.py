"""Jobs: work with progress, cancel and resume, called by pages, commands and servers; nothing here draws or prints.

From the queries of a set to a tuned config:

    QuerySelection                 the queries of a set, each restricted to its own project or not
      | query_set_evidence.read_evidence      evidence that was gathered before; if there is none:
      | query_set_evidence.gather_evidence    search every query once, into a file next to the store; resumes after a cancel or a kill
      v
    EvidenceSet                    what replay needs of every query, in one portable file, with the judgments
      | evaluation.agreed            judgments become grades, by kind of judge
      | evaluation.labelled          evidence and grades become a batch, tabulated once
      v
    LabelledEvidence
      |-- evaluation.evaluate_configs    measure configs on it, milliseconds each: Evaluate, `evaluate`, `compare`
      v
    tuning.TuningData              with a baseline
      | tuning.plan_search           space, goal, folds, sealed hold-out, seed
      | tuning.run_search            saves every score next to the evidence, so that page and command resume each other's search;
      |                              the page runs it in a thread, `background`
      v
    tuning.SearchResult            the proposal, its gain on queries it was not chosen on, its evidence card
      | tuning.open_holdout          scores the sealed queries once; page and command count looks together

`catalogue` lists the configs to choose from and saves them, `evidence_memory` holds evidence of single queries for the tools of Inspect,
`labelling` makes queues, `diagnosis` is the report of `doctor`, `factory` opens store and models from settings.
"""
