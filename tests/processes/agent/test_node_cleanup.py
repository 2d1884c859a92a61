"""Nothing of GKM remains on a node that it leaves, and nothing goes while a pod uses a volume."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from gkm.hoststate import locks, records
from gkm.hoststate.layout import Layout
from gkm_agent.store import node_cleanup
from support.agent.fakes import digest_of
from support.agent.machine import AGENT
from support.agent.node import Node
from support.host import fork_server
from support.host.waiting import scaled
from support.peers import require

DIGEST = digest_of("one")


def cleanup(layout: Layout) -> subprocess.CompletedProcess[str]:
    words = ["--remove-state", f"--state={layout.state}", f"--run={layout.run}", f"--kubelet={kubelet(layout)}"]
    return fork_server.server(AGENT, os.environ).run(words, os.environ, scaled(60))


def kubelet(layout: Layout) -> Path:
    return layout.state.parent / "kubelet"


def sockets(layout: Layout) -> list[Path]:
    """Make what the CSI driver and another one have in kubelet's directories; return the files, ours first."""
    found = []
    for driver in ("csi.gkm.io", "other.example"):
        found += [
            kubelet(layout) / "plugins" / driver / "csi.sock",
            kubelet(layout) / "plugins_registry" / f"{driver}-reg.sock",
        ]
    for path in found:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return found


def test_kubelet_has_no_socket_of_ours_afterwards_and_those_of_others(node: Node) -> None:
    csi, registration, *others = sockets(node.layout)
    assert cleanup(node.layout).returncode == 0
    assert not csi.parent.exists()
    assert not registration.exists()
    assert all(path.exists() for path in others)


def test_a_node_with_caches_is_empty_afterwards_and_a_second_time(node: Node) -> None:
    node.want("llama")
    node.settle()
    assert list(node.layout.store.iterdir())
    for _ in range(2):
        done = cleanup(node.layout)
        assert done.returncode == 0, done.stderr
        assert not node.layout.state.exists()
        assert not node.layout.run.exists()


def test_a_mounted_volume_removes_nothing(node: Node) -> None:
    node.want("llama", digest=DIGEST)
    node.settle()
    node.mount(DIGEST)
    before = [*node.layout.state.rglob("*"), *sockets(node.layout)]
    done = cleanup(node.layout)
    assert done.returncode == 3
    (volume,) = records.volume_ids(node.layout)
    assert f"volumes are mounted (1): {volume}" in done.stderr
    assert all(path.exists() for path in before)


def test_files_of_others_stay_and_are_named(node: Node) -> None:
    node.want("llama")
    node.settle()
    theirs = (node.layout.state / "exec" / "data", node.layout.run / "containerd.sock")
    for path in theirs:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    done = cleanup(node.layout)
    assert done.returncode == 0, done.stderr
    left = [path for root in (node.layout.state, node.layout.run) for path in root.rglob("*") if path.is_file()]
    assert sorted(left) == sorted(theirs)
    assert '"others": "exec"' in done.stderr
    assert '"others": "containerd.sock"' in done.stderr


def test_a_link_to_elsewhere_is_removed_and_not_followed(node: Node, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").touch()
    node.layout.state.mkdir(parents=True, exist_ok=True)
    node.layout.captured.symlink_to(elsewhere)
    assert cleanup(node.layout).returncode == 0
    assert (elsewhere / "file").exists()
    assert not node.layout.state.exists()


@pytest.mark.parametrize("process", ["agent", "csi"])
def test_a_process_that_still_runs_removes_nothing(node: Node, process: str) -> None:
    node.want("llama")
    node.settle()
    with (
        locks.process_lock(node.layout.process_lock(process)),
        pytest.raises(node_cleanup.StillRunning, match=f"gkm-{process} runs on this node"),
    ):
        node_cleanup.remove_state(node.layout, kubelet(node.layout), predecessor_seconds=0)
    assert list(node.layout.store.iterdir())


@pytest.mark.mounts
@pytest.mark.parametrize(("busy", "code"), [("state", 0), ("state/store", 1)])
def test_a_disk_of_its_own_stays_and_is_empty(tmp_path: Path, busy: str, code: int) -> None:
    require.root()
    (tmp_path / busy).mkdir(parents=True)
    program = f"{sys.executable} -m gkm_agent.main --remove-state"
    clean = f"{program} --state=state --run=run --kubelet=kubelet; code=$?; ls -A state; exit $code"
    script = f"mount -t tmpfs none {busy} && touch {busy}/entries.json && {clean}"
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, bool(done.stdout)) == (code, bool(code)), done.stderr
