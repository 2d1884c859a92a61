"""One module for each link between a pod and its kernels: `decide(facts)`, without I/O.

A link may assume that all links before it hold. It raises Unreadable if the cluster does not show what it needs.
"""
