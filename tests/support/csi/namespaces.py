"""Mount namespaces that end with the test, also when it fails or is killed."""

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.host.waiting import scaled
from support.peers import require

END_SECONDS = scaled(180)


@dataclass(frozen=True)
class MountNamespace:
    """A namespace that lives as long as the process `pid`, which waits for the end of its input."""

    pid: int

    def command(self, arguments: Sequence[str | Path]) -> list[str]:
        """Return the command line that runs `arguments` inside; it becomes the process itself."""
        return ["nsenter", f"--mount=/proc/{self.pid}/ns/mnt", "--", *map(str, arguments)]

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run a command inside to its end."""
        return subprocess.run(self.command(arguments), check=False, capture_output=True, text=True, timeout=END_SECONDS)

    def inside(self, path: Path) -> Path:
        """Return a path outside the namespace to `path` inside it."""
        return Path(f"/proc/{self.pid}/root{path}")

    def mounts(self, below: Path) -> list[str]:
        """Return the mountinfo lines of mounts on `below` or beneath it."""
        lines = Path(f"/proc/{self.pid}/mountinfo").read_text(encoding="utf-8").splitlines()
        return [line for line in lines if f"{line.split()[4]}/".startswith(f"{below}/")]


@contextmanager
def private_namespace() -> Iterator[MountNamespace]:
    """Make a namespace from which nothing propagates.

    It receives unmounts (slave): a private copy of the mounts of a node on this machine would keep them alive.
    """
    require.root()
    # cat says "ready" when the namespace is there, and ends with our end of the pipe: also when we are killed.
    holder = subprocess.Popen(
        ["unshare", "--mount", "--propagation", "slave", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdin.write(b"ready\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == b"ready\n"
        try:
            yield MountNamespace(holder.pid)
        finally:
            holder.stdin.close()
            try:
                holder.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                holder.kill()
                raise
