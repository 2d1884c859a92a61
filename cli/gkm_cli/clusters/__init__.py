"""Which cluster a command reads: files, context and namespace as kubectl chooses them.

Commands import it when they run; only `options` is imported before.
"""
