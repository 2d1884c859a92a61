"""A few pages over plain HTTP: what kubelet's probes and Prometheus ask a process for.

Standard library only. May know sockets and HTTP; must never know what a page says, nor do work that waits.
"""
