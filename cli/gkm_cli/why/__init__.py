"""`gkm why`: walk every link between a pod and the kernels of its cache, and name the first broken one.

`observation` reads the cluster, each module of `links` decides about one link without reading, `walk` puts them in
order. Nothing writes to the API.
"""
