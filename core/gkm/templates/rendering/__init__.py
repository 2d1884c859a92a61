"""Rendering of templates in a child process that is limited in CPU, memory, files and output.

The parent (`process`) never parses an expression: parsing a hostile one may take any time or memory. The child imports
only the standard library, Jinja2 and `gkm.templates.values`.
"""
