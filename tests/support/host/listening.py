"""Where a process listens on TCP, as the kernel tells it: programs of ours are started with port 0."""

import socket
from contextlib import suppress
from pathlib import Path

from support.host.processes import Process

_LISTEN = "0A"


def addresses_of(pid: int) -> list[str]:
    """Return `host:port` of each IPv4 socket in the order of the ports; none of a process that has ended."""
    own: set[str] = set()
    listening: dict[str, tuple[int, str]] = {}
    with suppress(FileNotFoundError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # it was closed since
                if (opened := str(descriptor.readlink())).startswith("socket:["):
                    own.add(opened.removeprefix("socket:[").removesuffix("]"))
        if not own:  # The kernel walks a table of all connections for the file below, which takes 10 ms.
            return []
        for line in Path(f"/proc/{pid}/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
            columns = line.split()
            if columns[3] == _LISTEN:
                host, _, port = columns[1].partition(":")
                # The kernel prints the address as a number of this machine, whose bytes are reversed (proc(5)).
                dotted = socket.inet_ntoa(bytes.fromhex(host)[::-1])
                listening[columns[9]] = (int(port, 16), dotted)
    found = sorted(place for inode, place in listening.items() if inode in own)
    return [f"{host}:{port}" for port, host in found]


def address(process: Process, *, besides: int = 0) -> str:
    """Wait until a process listens, and return the address; it may listen on the port `besides` as well.

    Raises:
        ProcessFailed: it ended, or does not listen.
    """

    def others() -> list[str]:
        return [found for found in addresses_of(process.pid) if not found.endswith(f":{besides}")]

    process.ready(others, "it listens")
    return others()[0]
