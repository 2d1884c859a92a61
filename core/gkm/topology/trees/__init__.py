"""The single tree of domains: merge it from all sources, guard it, and convert it for schedulers. Pure.

The readers of sources are beside this folder, which holds only their places.
"""
