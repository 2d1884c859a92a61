"""`gkm` with the modules of all its commands, which it imports when they run otherwise: for a server that forks it."""

from gkm_cli.cache.commands import COMMANDS as CACHE
from gkm_cli.main import COMMANDS, main

__all__ = ["main"]

for table in (COMMANDS, CACHE):
    for name, command in table.items():
        command.load(name)
