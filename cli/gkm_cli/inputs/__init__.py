"""Files that the user names: read within limits, parsed, and checked as the API server checks objects.

It knows GKM's kinds, and no command.
"""
