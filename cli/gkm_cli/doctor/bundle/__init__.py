"""`gkm doctor --bundle`: what support needs of a cluster, in one archive without secrets.

`contents` reads objects in small types, so fields that could hold a secret (variables of pods, annotations, Secrets)
are not read at all, and writes the file; `redaction` removes what looks like one from all texts that remain.
"""
