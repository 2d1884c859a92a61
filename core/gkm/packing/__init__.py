"""The planner: which domains and nodes a run of GPU groups gets. Pure functions of values (docs/design/calculus.md).

May import the standard library, numpy and rfc8785; highspy only in `batches`, where it is there. Never reads a file, a
clock or the network.
"""
