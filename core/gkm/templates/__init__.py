"""Group templates: merge, checks, rendering and labels of the objects of a task group.

Pure functions, and one class that talks to a rendering child. It may import `gkm.api` and `gkm.hoststate`, and must
never use the Kubernetes API.
"""
