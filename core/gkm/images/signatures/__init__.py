"""Verification of image signatures: find them in the registry, read them, evaluate them against the policies.

This package may use gkm.images.registries. It must never read the content of an image.
"""
