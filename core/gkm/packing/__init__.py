"""The planner: which domains and nodes a run of GPU groups gets. Pure functions of values (docs/design/calculus.md).

May import the standard library, numpy, rfc8785 and the types of gkm.api and gkm.topology; highspy only in `batches`,
where it is there. Never reads a file, a clock or the network.
"""
