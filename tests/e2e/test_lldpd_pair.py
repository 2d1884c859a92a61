"""Two real lldpd at the ends of a cable, each in a network namespace of its own."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from gkm_agent.fabric.lldp import decode
from gkm_agent.fabric.watch import ARGUMENTS, Neighbors
from support.host.waiting import scaled, until
from support.peers import require

ATTEMPTS, HEARD_SECONDS = 10, 4.0


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
    """Two ends that hear each other. An lldpd 1.0.16 that starts with its interface may never send: then a new pair."""
    require.root()
    require.command("ip", "iproute2")
    require.command("lldpd", "lldpd")
    for attempt in range(ATTEMPTS):
        with started(sockets, attempt) as pair, suppress(TimeoutError):
            until(partial(_hear_each_other, pair), "the neighbours are heard", HEARD_SECONDS)
            yield pair
            return
    raise TimeoutError(f"{ATTEMPTS} pairs of lldpd did not hear each other")


@contextmanager
def started(sockets: Path, attempt: int) -> Iterator[tuple[End, End]]:
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
            socket = sockets / f"{side}{attempt}"
            command = ["ip", "netns", "exec", name, str(lldpd), "-d", "-u", str(socket), "-p", "", "-k"]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            stack.callback(_end, process)
            shown = _ip("-n", name, "-brief", "link", "show", f"veth-{side}").split()
            found.append(End(f"veth-{side}", shown[2], socket))
        for end in found:
            until(end.socket.exists, "lldpd listens")
        yield found[0], found[1]


def _hear_each_other(pair: tuple[End, End]) -> bool:
    for end in pair:
        subprocess.run(["lldpcli", "-u", str(end.socket), "update"], check=True, capture_output=True, timeout=30)
    return all(decode(_asked(end), end.interface.__eq__).links for end in pair)


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


def _asked(end: End) -> bytes:
    command = ["lldpcli", "-u", str(end.socket), *ARGUMENTS]
    return subprocess.run(command, check=True, capture_output=True, timeout=30).stdout


def test_each_sees_the_other(ends: tuple[End, End]) -> None:
    for own, other in (ends, ends[::-1]):
        (link,) = decode(_asked(own), own.interface.__eq__).links
        assert link.interface == own.interface
        assert link.neighbour.chassis_id == other.address
        assert link.neighbour.port_id == other.address
        assert link.neighbour.system_name == os.uname().nodename
        assert decode(_asked(own), own.interface.__eq__, {other.address}).links == ()


def test_our_own_question_is_understood_by_the_real_lldpcli(ends: tuple[End, End]) -> None:
    own, _ = ends
    asked = Neighbors(str(require.command("lldpcli", "lldpd")), options=("-u", str(own.socket))).read()
    # As in a pod: the interface is in another namespace, so /sys does not have it.
    assert asked.links == ()
    (problem,) = asked.problems
    assert problem.startswith(f"neighbors on {own.interface} are left out")


def test_an_lldpd_that_does_not_run_is_a_problem_in_one_line(tmp_path: Path) -> None:
    require.command("lldpd", "lldpd")
    lldpcli = str(require.command("lldpcli", "lldpd"))
    found = Neighbors(lldpcli, options=("-u", str(tmp_path / "nobody"))).read()
    assert found.links == ()
    (problem,) = found.problems
    assert problem.startswith("lldpcli ended with 1: [WARN/control] unable to connect to socket")
    assert "\n" not in problem
