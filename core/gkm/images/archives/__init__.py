"""Archives and their compression: strict reading of what strangers packed, and reproducible writing.

Must never talk to a registry.
"""
