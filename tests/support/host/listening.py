"""On which TCP ports a process listens, as the kernel tells it: programs of ours are started with port 0."""

from contextlib import suppress
from pathlib import Path

from support.host.processes import Process

_LISTEN = "0A"


def ports_of(pid: int) -> list[int]:
    """Return the ports in their order; none of a process that has ended."""
    own: set[str] = set()
    listening: dict[str, int] = {}
    with suppress(FileNotFoundError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # it was closed since
                own.add(str(descriptor.readlink()).removeprefix("socket:[").removesuffix("]"))
        for table in ("tcp", "tcp6"):
            for line in Path(f"/proc/{pid}/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
                columns = line.split()
                if columns[3] == _LISTEN:
                    listening[columns[9]] = int(columns[1].rpartition(":")[2], 16)
    return sorted({port for inode, port in listening.items() if inode in own})


def address(process: Process, *, besides: int = 0) -> str:
    """Wait until a process listens on a port of the loopback address, and return the address; it may listen on another.

    Raises:
        ProcessFailed: it ended, or does not listen.
    """

    def others() -> list[int]:
        return [port for port in ports_of(process.pid) if port != besides]

    process.ready(others, "it listens")
    return f"127.0.0.1:{others()[0]}"
