"""containerd as the peer of bench_peers: a daemon on empty directories, driven by ctr, its own command."""

import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from process_cost import cpu_seconds
from support.host.processes import Process

CONFIG = 'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n'


@dataclass(frozen=True)
class Containerd:
    """A running containerd."""

    process: Process
    socket: Path

    @classmethod
    @contextmanager
    def start(cls, directory: Path) -> Iterator["Containerd"]:
        """Run one with all its files below the new directory."""
        directory.mkdir()
        socket, config = directory / "socket", directory / "config.toml"
        config.write_text(CONFIG)
        where: list[str | Path] = ["--root", directory / "root", "--state", directory / "state", "--address", socket]
        process = Process.start("containerd", ["containerd", "--config", config, *where], directory / "log")
        try:
            process.ready(socket.exists, "its socket")
            containerd = cls(process, socket)
            containerd.ctr("version")
            yield containerd
        finally:
            process.stop()

    def pull(self, image: str) -> None:
        """Fetch an image and unpack it into a snapshot."""
        self.ctr("images", "pull", "--plain-http", image)

    def mount(self, image: str, target: Path) -> None:
        """Mount a read-only view of an image, as for an image volume."""
        self.ctr("images", "mount", image, target)

    def unmount(self, target: Path) -> None:
        """Unmount the view and remove its snapshot."""
        self.ctr("images", "unmount", "--rm", target)

    def delete(self, image: str) -> None:
        """Delete an image and wait until its content and its snapshot are gone."""
        self.ctr("images", "rm", "--sync", image)

    def ctr(self, *words: str | Path) -> None:
        """Run ctr to its end."""
        subprocess.run(["ctr", "-a", self.socket, *words], capture_output=True, text=True, check=True)

    def cpu_s(self) -> float:
        """Return the CPU seconds of the daemon, and of the commands that this process ran."""
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return cpu_seconds(self.process.pid) + used.ru_utime + used.ru_stime
