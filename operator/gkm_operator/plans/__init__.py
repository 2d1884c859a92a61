"""The controller of Runs: it watches runs, plans, nodes and pods, and writes PlacementPlans.

`state` observes, `planning` decides and is pure but for its caches, `planner` combines both, and `write` alone writes
to the API server (docs/design/plans.md).
"""
