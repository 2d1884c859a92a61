"""The status of a ComputeDomain and its pods: marks of use, and the condition MNNVLReady.

It never creates or releases a domain.
"""
