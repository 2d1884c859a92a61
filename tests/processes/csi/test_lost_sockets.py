"""Removed sockets, files in their places, and a process that is stopped during a call."""

import shutil
import threading
from pathlib import Path

import pytest
from gkm_csi.proto import csi_pb2
from support.csi.driver import Client, driver
from support.csi.namespaces import private_namespace
from support.csi.nodes import node_files, publish_message
from support.host.waiting import until

HARNESS = Path(__file__).parents[2] / "support" / "csi"


@pytest.mark.mounts
def test_a_file_instead_of_the_plugins_directory_ends_no_process() -> None:
    with node_files() as files, private_namespace() as namespace, driver(files, namespace) as running:
        place = running.socket.parent
        shutil.rmtree(place)
        place.write_text("in the way")
        running.wait_for("listening on the sockets of the CSI driver failed, will retry")
        assert running.process.poll() is None
        place.unlink()
        until(running.socket.is_socket, "the socket to be back")
        with Client(running.socket) as client:
            assert client.call("Probe", csi_pb2.ProbeRequest()).ready.value


@pytest.mark.mounts
def test_a_successor_begins_when_the_last_call_has_ended_or_its_process_has() -> None:
    with node_files() as files, private_namespace() as namespace:
        ref = files.ready()
        target = files.target("csi-1")
        held = files.root / "held"
        slow = (str(HARNESS / "held_driver.py"), "os.mkdir", "mount", str(held))
        message = publish_message("csi-1", target, {"cacheName": ref.name})
        with driver(files, namespace, slow) as first, Client(first.socket) as client:
            call = threading.Thread(target=client.refused, args=("NodePublishVolume", message))
            call.start()
            until(held.exists, "the call to be in its step")
            first.process.terminate()
            with driver(files, namespace) as second:
                # The end of the process freed its lock: the kernel takes its program away before it closes its files.
                # Its parent may see the end a moment later.
                assert not Path(f"/proc/{first.process.pid}/exe").exists()
                call.join(60)
                with Client(second.socket) as again:
                    again.call("NodePublishVolume", message)
                assert len(namespace.mounts(target)) == 1
