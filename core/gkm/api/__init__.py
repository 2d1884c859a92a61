"""The objects of gkm.io/v1alpha1 as typed values; crds/*.yaml are generated from here.

May know msgspec; must never know a network, a disk or another package of ours.
"""
