"""The objects of gkm.io/v1alpha1 and the configuration as typed values; scripts/generate.py writes crds/ from them.

This package uses msgspec. It must not use the network, the disk or another package of GKM.
"""
