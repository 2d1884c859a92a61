"""`gkm status`: the state of a cluster on one screen or page. It never writes to the API.

`reading` lists objects with the reader of gkm doctor, `summary` reduces them to `parts`, `screen` and `page` print
these. A part that could not be read says so. The program imports only `command` at its start.
"""
