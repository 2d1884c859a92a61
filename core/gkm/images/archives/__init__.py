"""Strict reading of foreign archives and their compression, and reproducible writing.

Must never talk to a registry.
"""
