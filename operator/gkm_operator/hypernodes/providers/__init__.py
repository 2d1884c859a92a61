"""External topology providers: a child process each, and what the controllers read of them.

The controllers never import the code of a provider. `child` and what it imports run in the child process only.
"""
