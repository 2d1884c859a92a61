"""Two real lldpd at the ends of a cable, each in a network namespace of its own."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from gkm.api.fabrics import EthernetLink
from gkm_agent.fabric.lldp import decode
from gkm_agent.fabric.watch import ARGUMENTS, Neighbors
from support.host.waiting import scaled, until
from support.peers import require

HEARD_SECONDS = 120.0
"""More than three intervals of lldpd, which are 30 s."""


@dataclass(frozen=True)
class End:
    """One end of the cable: an interface with an address, and the socket of its lldpd."""

    interface: str
    address: str
    socket: Path


@pytest.fixture
def sockets() -> Iterator[Path]:
    """A directory that the user _lldpd may enter: Debian's lldpcli becomes that user."""
    with tempfile.TemporaryDirectory(prefix="gkm-lldp-") as directory:
        Path(directory).chmod(0o755)
        yield Path(directory)


@pytest.fixture
def ends(sockets: Path) -> Iterator[tuple[End, End]]:
    require.root()
    require.command("ip", "iproute2")
    lldpd = require.command("lldpd", "lldpd")
    names = [f"gkm-lldp-{os.getpid()}-{side}" for side in "ab"]
    with ExitStack() as stack:
        for name in names:
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "delete", name)
        # In the namespaces from the start: what is left of a failure goes with them.
        _ip("link", "add", "veth-a", "netns", names[0], "type", "veth", "peer", "name", "veth-b", "netns", names[1])
        found = []
        for name, side in zip(names, "ab", strict=True):
            _ip("-n", name, "link", "set", f"veth-{side}", "up")
            socket = sockets / side
            command = ["ip", "netns", "exec", name, str(lldpd), "-d", "-u", str(socket), "-p", "", "-k"]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(_end, process)
            shown = _ip("-n", name, "-brief", "link", "show", f"veth-{side}").split()
            found.append(End(f"veth-{side}", shown[2], socket))
        for end in found:
            until(end.socket.exists, "lldpd listens")
        yield found[0], found[1]


def _end(process: subprocess.Popen[bytes]) -> None:
    """End lldpd, whose parent waits for its child: on a busy machine once for more than a minute."""
    process.terminate()
    try:
        process.wait(scaled(30))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=30)
    return done.stdout


def _send(end: End) -> None:
    """Ask lldpd, once, to send now. One that just started may wait for its interval; each question puts that off."""
    subprocess.run(["lldpcli", "-u", str(end.socket), "update"], check=True, capture_output=True, timeout=30)


def _asked(end: End) -> bytes:
    command = ["lldpcli", "-u", str(end.socket), *ARGUMENTS]
    return subprocess.run(command, check=True, capture_output=True, timeout=30).stdout


def test_each_sees_the_other(ends: tuple[End, End]) -> None:
    for own, other in (ends, ends[::-1]):

        def seen(own: End = own) -> tuple[EthernetLink, ...]:
            return decode(_asked(own), own.interface.__eq__).links

        _send(other)
        (link,) = until(seen, "the neighbour is heard", HEARD_SECONDS)
        assert link.interface == own.interface
        assert link.neighbour.chassis_id == other.address
        assert link.neighbour.port_id == other.address
        assert link.neighbour.system_name == os.uname().nodename
        assert decode(_asked(own), own.interface.__eq__, {other.address}).links == ()


def test_our_own_question_is_understood_by_the_real_lldpcli(ends: tuple[End, End]) -> None:
    own, other = ends
    neighbors = Neighbors(str(require.command("lldpcli", "lldpd")), options=("-u", str(own.socket)))

    def problems() -> tuple[str, ...]:
        asked = neighbors.read()
        # As in a pod: the interface is in another namespace, so /sys does not have it.
        assert asked.links == ()
        return asked.problems

    _send(other)
    (problem,) = until(problems, "the neighbour is heard", HEARD_SECONDS)
    assert problem.startswith(f"neighbors on {own.interface} are left out")


def test_an_lldpd_that_does_not_run_is_a_problem_in_one_line(tmp_path: Path) -> None:
    require.command("lldpd", "lldpd")
    lldpcli = str(require.command("lldpcli", "lldpd"))
    found = Neighbors(lldpcli, options=("-u", str(tmp_path / "nobody"))).read()
    assert found.links == ()
    (problem,) = found.problems
    assert problem.startswith("lldpcli ended with 1: [WARN/control] unable to connect to socket")
    assert "\n" not in problem
