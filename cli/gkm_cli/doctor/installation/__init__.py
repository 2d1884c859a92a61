"""The checks of an installation of GKM: kinds, configuration, webhook, daemons, nodes and caches.

`observation` reads, every other module decides without reading. A fault has one name: the first cause is reported, and
a check is silent about faults that another one explains.
"""
