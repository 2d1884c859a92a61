"""The controller of ComputeDomains: creates and releases them, marks those in use, reports readiness and capacity.

It runs in the leader only. Rules that admission shares are in gkm_operator.mnnvl.
"""
