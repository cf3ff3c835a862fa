"""Optional tools of Inspect, each with its analysis: sensitivity, effective weights, expansion, diversity, text evidence, index check."""
