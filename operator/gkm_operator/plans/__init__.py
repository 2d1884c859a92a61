"""The controller of Run objects: it observes runs, plans, nodes and pods, and writes placement plans.

`state` observes, `planning` decides and is pure but for its caches, `planner` combines both, and `write` alone writes
to the API server (docs/design/plans.md).
"""
