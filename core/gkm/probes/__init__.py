"""Pages over plain HTTP for kubelet's probes and for Prometheus.

Standard library only. May know sockets and HTTP; must never know the content of a page, nor do work that waits.
"""
