"""Talking to the Kubernetes API: watching, applying, events, leases.

May know gkm.api and gkm.hoststate.logs; must never know what a cache is for.
"""
