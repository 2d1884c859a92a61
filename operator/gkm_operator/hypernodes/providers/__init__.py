"""Topology providers: the process that runs one, and the check of what it sends.

The controllers import `intake` only, never the code of a provider. `command` and what it imports run
in the pod of a provider.
"""
