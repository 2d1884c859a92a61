"""Rules that admission and the controller share: which workloads are enrolled, in which domain, by which claim.

Pure: values in, values out. Must never send a request.
"""
