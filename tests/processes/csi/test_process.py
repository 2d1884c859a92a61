"""The process as a whole: its answers, modules, memory, start and stop."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gkm_csi.proto import csi_pb2, registration_pb2
from support.csi.driver import Client, Driver, driver
from support.csi.namespaces import MountNamespace, private_namespace
from support.csi.nodes import NODE, NodeFiles, node_files, publish_message
from support.csi.rig import Rig
from support.host.waiting import until

MAX_RSS_MIB = 45
"""What the issue allows an idle process."""


@pytest.fixture
def bare() -> Iterator[tuple[NodeFiles, MountNamespace]]:
    with node_files() as files, private_namespace() as namespace:
        yield files, namespace


def run(*flags: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the process to its end, without a namespace: it must end before it mounts."""
    command = [sys.executable, "-m", "gkm_csi.main", *map(str, flags)]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=60, env=os.environ | environment, cwd="/"
    )


@pytest.mark.mounts
def test_the_identity_has_name_and_version(rig: Rig) -> None:
    info = rig.client.call("GetPluginInfo", csi_pb2.GetPluginInfoRequest())
    node = rig.client.call("NodeGetInfo", csi_pb2.NodeGetInfoRequest())
    assert (info.name, node.node_id, node.max_volumes_per_node) == ("csi.gkm.io", NODE, 1024)


@pytest.mark.mounts
def test_it_has_no_capability_that_it_does_not_have(rig: Rig) -> None:
    plugin = rig.client.call("GetPluginCapabilities", csi_pb2.GetPluginCapabilitiesRequest())
    node = rig.client.call("NodeGetCapabilities", csi_pb2.NodeGetCapabilitiesRequest())
    names = {csi_pb2.NodeServiceCapability.RPC.Type.Name(found.rpc.type) for found in node.capabilities}
    assert plugin == csi_pb2.GetPluginCapabilitiesResponse()
    assert names == {"VOLUME_MOUNT_GROUP", "GET_VOLUME_STATS", "VOLUME_CONDITION"}


@pytest.mark.mounts
def test_it_is_ready(rig: Rig) -> None:
    assert rig.client.call("Probe", csi_pb2.ProbeRequest()).ready.value


@pytest.mark.mounts
def test_kubelet_learns_the_socket_from_the_registration_socket(rig: Rig) -> None:
    with Client(rig.driver.registration) as kubelet:
        info = kubelet.call("GetInfo", registration_pb2.InfoRequest())
        assert (info.type, info.name, list(info.supported_versions)) == ("CSIPlugin", "csi.gkm.io", ["1.0.0"])
        assert info.endpoint == str(rig.driver.socket)
        kubelet.call("NotifyRegistrationStatus", registration_pb2.RegistrationStatus(plugin_registered=True))
        assert rig.driver.wait_for("CSI driver registered with kubelet")["driver"] == "csi.gkm.io"
        refused = registration_pb2.RegistrationStatus(plugin_registered=False, error="no such node")
        kubelet.call("NotifyRegistrationStatus", refused)
        assert (
            rig.driver.wait_for("registration of the CSI driver with kubelet failed, kubelet tries again")["reason"]
            == "no such node"
        )


@pytest.mark.mounts
def test_only_root_may_use_the_sockets(rig: Rig) -> None:
    for path in (rig.driver.socket, rig.driver.registration):
        assert path.stat().st_mode & 0o077 == 0


@pytest.mark.mounts
def test_other_calls_are_unimplemented(rig: Rig) -> None:
    assert rig.client.raw_refused("/csi.v1.Node/NodeStageVolume", b"") == "UNIMPLEMENTED"


@pytest.mark.mounts
def test_invalid_and_oversized_messages_are_refused(rig: Rig) -> None:
    assert rig.client.raw_refused("/csi.v1.Node/NodePublishVolume", b"\xff" * 64) == "INVALID_ARGUMENT"
    assert rig.driver.wait_for("gRPC call refused")["reason"] == "the request is not a NodePublishVolumeRequest"
    assert rig.client.raw_refused("/csi.v1.Node/NodePublishVolume", b"\0" * (1 << 20)) == "RESOURCE_EXHAUSTED"
    assert rig.client.call("Probe", csi_pb2.ProbeRequest()).ready.value


@pytest.mark.mounts
def test_a_refusal_is_one_log_line_without_secrets_of_the_pod(rig: Rig) -> None:
    volume, target = rig.volume()
    message = publish_message(volume, target, {"cacheName": "nowhere"})
    # Field 7 holds secrets: an unknown field to us.
    message.MergeFromString(b"\x3a\x0e\x0a\x03key\x12\x07hunter2")
    code, text = rig.client.refused("NodePublishVolume", message)
    assert (code, "GKMCache ml-apps/nowhere is not known" in text) == ("UNAVAILABLE", True), text
    line = rig.driver.wait_for("gRPC call refused")
    assert (line["level"], line["call"], line["code"]) == ("warning", "NodePublishVolume", "UNAVAILABLE")
    assert "hunter2" not in str(rig.driver.logged)


@pytest.mark.mounts
def test_idle_it_stays_within_its_memory(
    bare: tuple[NodeFiles, MountNamespace],
    record_property: Callable[[str, object], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    started = time.monotonic()
    with driver(*bare) as running, Client(running.socket) as client, Client(running.registration) as kubelet:
        client.call("Probe", csi_pb2.ProbeRequest())
        kubelet.call("GetInfo", registration_pb2.InfoRequest())
        seconds = time.monotonic() - started
        rss = _rss_mib(running)
    record_property("csi_idle_rss_mib", round(rss, 1))
    record_property("csi_ready_s", round(seconds, 2))
    with capsys.disabled():
        print(  # noqa: T201 -- a report
            f" [gkm-csi: {rss:.1f} MiB RSS idle, both sockets answered {seconds:.2f} s after the start] ", end=""
        )
    assert rss <= MAX_RSS_MIB


def test_the_process_loads_only_grpc_protobuf_and_shared_modules() -> None:
    code = (
        "import sys; before = set(sys.modules); import gkm_csi.main;"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd="/").stdout
    foreign = {name for name in loaded.split() if name not in sys.stdlib_module_names}
    foreign = {name for name in foreign if not name.startswith(("cython_runtime", "_cython_"))}
    # grpcio requires typing_extensions, and loads grpc_tools where it is installed: with the driver it is not.
    assert foreign - {"typing_extensions", "grpc_tools"} == {"gkm", "gkm_csi", "google", "grpc"}


def test_of_ours_it_loads_nothing_but_hoststate_mounts_and_the_table_of_runtimes() -> None:
    code = (
        "import sys, gkm_csi.main; print(*sorted(name for name in sys.modules if name.startswith(('gkm.', 'google'))))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd="/").stdout
    roots = {".".join(name.split(".")[:2]) for name in loaded.split()}
    assert {name for name in roots if name.startswith("gkm.")} == {*("gkm.hoststate", "gkm.mounts", "gkm.runtimes")}


@pytest.mark.mounts
def test_sigterm_ends_it_and_leaves_the_sockets_so_that_kubelet_expects_it_back(
    bare: tuple[NodeFiles, MountNamespace],
) -> None:
    with driver(*bare) as running:
        assert running.stop() == 0
        running.wait_for("CSI driver stopped")
        assert running.socket.is_socket()
        assert running.registration.is_socket()


@pytest.mark.mounts
@pytest.mark.parametrize("emptied", ["csi.gkm.io", "plugins_registry"])
def test_removed_sockets_are_restored(bare: tuple[NodeFiles, MountNamespace], emptied: str) -> None:
    with driver(*bare) as running:
        directory = next(path.parent for path in (running.socket, running.registration) if path.parent.name == emptied)
        for path in directory.iterdir():
            path.unlink()
        running.wait_for("sockets of the CSI driver missing, listening again")
        until(lambda: running.socket.is_socket() and running.registration.is_socket(), "the sockets to be back")
        with Client(running.socket) as client:
            client.call("Probe", csi_pb2.ProbeRequest())
        with Client(running.registration) as client:
            assert client.call("GetInfo", registration_pb2.InfoRequest()).name == "csi.gkm.io"


@pytest.mark.mounts
def test_a_second_process_waits_for_the_first_to_end(bare: tuple[NodeFiles, MountNamespace]) -> None:
    with driver(*bare) as first, driver(*bare, ready=False) as second:
        first.stop()
        second.wait_for("CSI driver ready")
        with Client(second.socket) as client:
            client.call("Probe", csi_pb2.ProbeRequest())


@pytest.mark.mounts
def test_a_second_process_beside_a_running_one_ends(bare: tuple[NodeFiles, MountNamespace]) -> None:
    with driver(*bare) as first, driver(*bare, ready=False) as second:
        second.wait_for("another gkm-csi serves this node, this one ends")
        with Client(first.socket) as client:
            client.call("Probe", csi_pb2.ProbeRequest())


@pytest.mark.mounts
def test_sockets_of_a_dead_process_are_replaced(bare: tuple[NodeFiles, MountNamespace]) -> None:
    with driver(*bare) as first:
        first.kill()
        assert first.socket.exists()
    with driver(*bare) as second, Client(second.socket) as client:
        client.call("Probe", csi_pb2.ProbeRequest())


@pytest.mark.mounts
def test_one_socket_can_serve_for_both(bare: tuple[NodeFiles, MountNamespace]) -> None:
    files, namespace = bare
    path = files.kubelet / "plugins_registry" / "csi.gkm.io-reg.sock"
    flags = ("--endpoint", f"unix://{path}", "--kubelet-endpoint", "/host/one.sock")
    with (
        driver(files, namespace, *(("-m", "gkm_csi.main"), *flags), ready=False) as running,
        Client(path) as client,
    ):
        running.wait_for("CSI driver ready")
        client.call("Probe", csi_pb2.ProbeRequest())
        assert client.call("GetInfo", registration_pb2.InfoRequest()).endpoint == "/host/one.sock"


def test_a_node_that_cannot_mount_reports_the_missing_feature() -> None:
    namespace = ["unshare", "--user", "--map-current-user"] if os.geteuid() == 0 else []
    with node_files() as files:
        places = ("--state", files.layout.state, "--run", files.layout.run, "--kubelet", files.kubelet)
        # In a user namespace of its own, without a mount namespace of its own, a process may not mount.
        command = [*namespace, sys.executable, "-m", "gkm_csi.main", "--node", NODE, *map(str, places)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd="/") as process:
            running = Driver(process, files)
            try:
                assert process.stderr is not None
                lines = []
                for line in process.stderr:
                    lines.append(line)
                    if '"CSI driver ready"' in line:
                        break
                assert any("must run privileged" in line for line in lines)
                with Client(running.socket) as client:
                    code, text = client.refused("Probe", csi_pb2.ProbeRequest())
                    assert code == "FAILED_PRECONDITION"
                    assert "must run privileged (CAP_SYS_ADMIN)" in text
                    target = files.target("csi-1")
                    message = publish_message("csi-1", target, {"cacheName": files.ready().name})
                    assert client.refused("NodePublishVolume", message) == (code, text)
                    assert not target.exists()
            finally:
                process.kill()


def test_a_file_instead_of_a_socket_is_an_error() -> None:
    with node_files() as files:
        path = files.kubelet / "plugins" / "csi.gkm.io" / "csi.sock"
        path.parent.mkdir(parents=True)
        path.write_text("not a socket")
        ended = run(
            "--node", NODE, "--kubelet", files.kubelet, "--state", files.layout.state, "--run", files.layout.run
        )
        assert ended.returncode == 1
        assert "cannot listen there" in ended.stderr
        assert path.read_text() == "not a socket"


def test_a_socket_path_that_is_too_long_is_an_error() -> None:
    with node_files() as files:
        places = ("--kubelet", files.kubelet, "--state", files.layout.state, "--run", files.layout.run)
        ended = run("--node", NODE, *places, CSI_ENDPOINT=f"unix://{files.root}/{'x' * 100}.sock")
        assert ended.returncode == 1
        assert "107 bytes" in ended.stderr


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ((), "set the name of the node"),
        (("--node", "x" * 257), "set the name of the node"),
        (("--node", "n", "--kubelet", "relative"), "must be an absolute path"),
        (("--node", "n", "--state", "/a/../b"), "must be an absolute path"),
        (("--node", "n", "--max-volumes", "-1"), "must be a number"),
        (("--node", "n", "--capture-min-free-percent", "91"), "a number from 0 to 90"),
        (("--node", "n", "--capture-min-free-percent", "nan"), "a number from 0 to 90"),
        (("--node", "n", "--log-level", "loud"), "is not one of debug, info, warning, error"),
    ],
)
def test_an_invalid_option_is_an_error(flags: tuple[str, ...], told: str) -> None:
    ended = run(*flags, GKM_NODE="")
    assert ended.returncode == 2
    assert told in ended.stderr


def _rss_mib(running: Driver) -> float:
    status = Path(f"/proc/{running.process.pid}/status").read_text(encoding="ascii")
    (line,) = [line for line in status.splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024
