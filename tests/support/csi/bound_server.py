"""A server that binds its sockets as gRPC does, and counts its starts and stops."""

import socket
from pathlib import Path
from threading import Event


class Bound:
    """The GrpcServer of tests: its sockets are bound when it is made, and it answers nothing."""

    def __init__(self, *paths: Path) -> None:
        for path in paths:
            hidden = path.with_name(".bound")
            with socket.socket(socket.AF_UNIX) as bound:
                bound.bind(str(hidden))
            hidden.rename(path)  # after the bind, so that the new socket has another inode than the old one
        self.started = self.stopped = 0

    def start(self) -> None:
        self.started += 1

    def stop(self, grace: float | None) -> Event:
        assert grace is not None
        self.stopped += 1
        ended = Event()
        ended.set()
        return ended
