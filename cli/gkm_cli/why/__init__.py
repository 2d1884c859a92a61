"""`gkm why`: walk every link between a pod and the kernels of its cache, and name the first broken one.

`explanation` reads the cluster, each function of `links` decides about one link without reading. No module writes to
the API.
"""
