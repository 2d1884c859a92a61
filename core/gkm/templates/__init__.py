"""Group templates: merge, checks, rendering and labels of the objects of a task group.

Pure functions, and one class that talks to a rendering child. It knows `gkm.api` and `gkm.hoststate`, and never the
Kubernetes API.
"""
