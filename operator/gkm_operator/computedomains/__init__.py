"""The controller of ComputeDomains.

It creates and releases ComputeDomains, marks those in use, and reports readiness and capacity. It runs in the leader
only. Rules that admission shares are in gkm_operator.mnnvl.
"""
