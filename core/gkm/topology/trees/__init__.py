"""The one tree of domains: its merge from all sources, its guard, and the forms that schedulers read. Pure.

The readers of sources are beside this folder, which holds only their places.
"""
