"""Built-in controllers of PodCliqueSets, for clusters that have the definitions of Grove's kinds and no Grove operator.

They make pods, and nothing else: no gangs, no order at the start (docs/reference/built-in-cliques.md). They must never
write beside the Grove operator, and know nothing of ComputeDomains: admission adds the claims.
"""
