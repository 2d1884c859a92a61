"""Reviews of PodCliqueSets, PodCliques, scaling groups and pods for ComputeDomains.

Decisions are pure functions of a request and of a `view` of the cluster. Must never write to the API.
"""
