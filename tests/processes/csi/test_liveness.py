"""The process probes itself, and ends when it does not answer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.csi.driver import driver
from support.csi.namespaces import private_namespace
from support.csi.nodes import NODE, node_files

DEADLINE = 60
SERVER = """
import re, sys, threading
from pathlib import Path
from gkm_csi import main
from gkm_csi.server import grpc_server as server
from gkm_csi.server.services import IdentityService
from gkm_csi.server.liveness import LivenessWatchdog
from gkm_csi.proto import csi_pb2

asked = 0
class Probed(IdentityService):
    def Probe(self, request):
        global asked
        asked += 1
        if asked > 3:
            HANGS
        return super().Probe(request)

socket = Path(sys.argv[1])
running = server.make_server({csi_pb2.DESCRIPTOR.services_by_name["Identity"]: Probed(MISSING)}, [socket])
running.start()
LivenessWatchdog(socket, interval=0.05, watchdog=3.0, probe_timeout=0.2).start()
while asked < 200:
    threading.Event().wait(0.05)
print("alive")
"""


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("s") / "csi.sock"


def served(place: Path, hangs: str, missing: str = "()") -> subprocess.CompletedProcess[str]:
    code = SERVER.replace("HANGS", hangs).replace("MISSING", f"lambda: {missing}")
    return subprocess.run(
        [sys.executable, "-c", code, str(place)], capture_output=True, text=True, timeout=DEADLINE, check=False, cwd="/"
    )


@pytest.mark.parametrize("missing", ["()", "('CAP_SYS_ADMIN',)"], ids=["well", "cannot mount here"])
def test_a_process_that_answers_is_not_ended(place: Path, missing: str) -> None:
    ended = served(place, "pass", missing)

    # Two hundred answers take several times as long as the limit, and that is more than a pause of a busy machine.
    assert (ended.returncode, ended.stdout) == (0, "alive\n"), ended.stderr


@pytest.mark.parametrize(
    "hangs",
    ["threading.Event().wait()", "re.match('(a+)+$', 'a' * 60 + 'b')"],
    ids=["in a call", "with the interpreter held"],
)
def test_a_process_that_hangs_ends_with_a_stack_trace(place: Path, hangs: str) -> None:
    ended = served(place, hangs)

    assert ended.returncode == 1
    assert "alive" not in ended.stdout
    assert "Timeout" in ended.stderr
    assert "in Probe" in ended.stderr


@pytest.mark.mounts
def test_the_probe_command_succeeds_and_fails_with_the_driver() -> None:
    with node_files() as files, private_namespace() as namespace:
        command = [sys.executable, "-m", "gkm_csi.main", "--probe", "--kubelet", str(files.kubelet)]

        def asked() -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                command, capture_output=True, text=True, timeout=DEADLINE, check=False, cwd="/",
                env=os.environ | {"GKM_NODE": NODE},
            )  # fmt: skip

        with driver(files, namespace) as running:
            answer = asked()
            assert (answer.returncode, answer.stdout) == (0, "gkm-csi: the driver answers\n"), answer.stderr
            running.kill()
            answer = asked()
        assert answer.returncode == 1
        assert answer.stderr.startswith(f"gkm-csi: {running.socket}: UNAVAILABLE: ")
        assert len(answer.stderr.splitlines()) == 1
