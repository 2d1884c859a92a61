"""The planner: it chooses the domains and nodes for the groups of GPUs of a run.

Pure functions (docs/reference/calculus.md). May import the standard library, numpy, highspy (`program`), rfc8785 and
the types of gkm.api and gkm.topology. Never reads a file or the network; a clock only to end a search, after which a
plan says that it is not proven.
"""
