"""What a ComputeDomain and its pods look like: marks of use, and the condition MNNVLReady.

It never creates or releases a domain.
"""
