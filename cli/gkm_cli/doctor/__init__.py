"""`gkm doctor`: read a cluster, and report faults with their cause and the next step. It must never write to the API.

A check is independent of all others: a check that cannot read reports that it did not check. The program imports only
`command` and `options` at its start.
"""
