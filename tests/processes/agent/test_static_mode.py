"""`gkm-agent --static`: the real command, a real registry and signature, GPUs by the real binding."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest
import yaml
from gkm.hoststate.pointers import CacheState
from gkm.images.reference import Reference
from gkm.images.registries import push
from support.agent.machine import CACHE, REF, Machine, is_ready
from support.fakes.nvml_library import A100
from support.host.waiting import scaled, until
from support.images.archives import cache_image
from support.registry.clients import plain_client
from support.registry.faults import Fault, status, tampered
from support.registry.push import Target
from support.sigstore.key_signatures import SigningKey, sign_legacy


def archs(machine: Machine) -> str:
    """Return the architectures that the test's cache was built for, as a person lists them."""
    check = json.loads((machine.layout.pointer(REF).with_name("check.json")).read_bytes())
    return " and ".join(f"sm_{arch}" for arch in sorted(int(target["arch"]) for target in check["targets"]))


def test_a_signed_cache_becomes_ready_and_the_node_says_so(machine: Machine) -> None:
    result = machine.once()

    assert result.returncode == 0, result.stderr
    pointer = machine.pointer()
    assert pointer is not None
    assert (pointer.state, pointer.digest) == (CacheState.READY, machine.digest)
    content = machine.layout.entry(machine.digest) / "cache"
    assert {path.name for path in content.iterdir()} == {path.name for path in CACHE.iterdir()}
    node = machine.node_object()
    assert (node["apiVersion"], node["kind"]) == ("gkm.io/v1alpha1", "GKMCacheNode")
    assert node["metadata"]["labels"] == {"gkm.node": "node-1", "kubernetes.io/hostname": "node-1"}
    assert node["metadata"]["annotations"]["gkm.io/currentCaches"] == "1 Ready"
    assert node["spec"] == {"nodeName": "node-1"}
    assert node["status"]["gpus"][0]["gpuType"] == "nvidia-h100-80gb-hbm3"
    assert node["status"]["caches"]["vector-add"]["state"] == "Ready"
    assert node["status"]["caches"]["vector-add"]["compatibleGPUs"] == [{"ids": [0]}]


def test_the_old_form_of_a_signature_counts_too(machine: Machine) -> None:
    client = plain_client(machine.registry.host)
    ref = Reference.parse(f"{machine.registry.host}/team/old:1")
    digest = push.image(client, ref, cache_image("old"))
    sign_legacy(Target(machine.registry.host, "team/old"), digest, machine.key)
    value = yaml.load((machine.manifests / "GKMCache-vector-add.yaml").read_text(), yaml.CSafeLoader)
    value["spec"]["image"] = str(ref)
    (machine.manifests / "GKMCache-vector-add.yaml").write_text(yaml.safe_dump(value))

    assert machine.once().returncode == 0


def test_a_cluster_wide_cache_has_its_own_node_object(machine: Machine) -> None:
    machine.declare("everywhere", "ClusterGKMCache")

    assert machine.once().returncode == 0
    assert machine.node_object("_cluster-scoped")["kind"] == "ClusterGKMCacheNode"
    assert len(list(machine.layout.store.iterdir())) == 1


def test_a_second_run_changes_nothing_and_needs_no_registry(machine: Machine) -> None:
    machine.once()
    written = (machine.root / "nodes" / "ml-apps" / "node-1.yaml").read_bytes()
    machine.registry.requests.clear()

    assert machine.once().returncode == 0
    assert machine.registry.requests == []
    assert (machine.root / "nodes" / "ml-apps" / "node-1.yaml").read_bytes() == written


def test_a_gpu_that_does_not_fit_gets_no_byte_of_content(machine: Machine) -> None:
    machine.gpus(A100)

    result = machine.once()

    assert result.returncode == 3
    pointer = machine.pointer()
    assert pointer is not None
    assert (pointer.state, pointer.reason) == (CacheState.INCOMPATIBLE, "ArchitectureMismatch")
    assert pointer.message == f"no GPU of this node fits: GPU 0: built for {archs(machine)}, this GPU is sm_80"
    assert not list(machine.layout.store.iterdir())
    status = machine.node_object()["status"]["caches"]["vector-add"]
    assert status["incompatibleGPUs"][0]["message"] == f"built for {archs(machine)}, this GPU is sm_80"


def test_another_key_is_refused_with_what_was_looked_for(machine: Machine) -> None:
    configuration = yaml.load((machine.root / "config.yaml").read_text(), yaml.CSafeLoader)
    configuration["verification"]["policies"][0]["keys"] = [SigningKey().public_pem.decode()]
    (machine.root / "config.yaml").write_text(yaml.safe_dump(configuration))

    assert machine.once().returncode == 3
    pointer = machine.pointer()
    assert pointer is not None
    assert (pointer.state, pointer.reason) == (CacheState.FAILED, "SignatureInvalid")
    assert "needs a signature by key" in pointer.message


def test_without_configuration_everything_unsigned_by_a_known_key_is_refused(machine: Machine) -> None:
    configuration = {"registries": {"hosts": {machine.registry.host: {"plainHTTP": True}}}}
    (machine.root / "config.yaml").write_text(yaml.safe_dump(configuration))

    assert machine.once().returncode == 3
    pointer = machine.pointer()
    assert pointer is not None
    assert pointer.reason == "SignatureMissing"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (lambda digest: tampered(f"/manifests/{digest}"), "DigestMismatch"),
        (lambda _: tampered("/blobs/"), "SignatureInvalid"),
        (lambda _: status("/manifests/", 503), "RegistryUnavailable"),
        (lambda _: status("/manifests/", 403), "Unauthorized"),
    ],
)
def test_the_object_has_the_failure_of_the_registry(
    machine: Machine, fault: Callable[[str], Fault], reason: str
) -> None:
    machine.registry.misbehave(fault(machine.digest))

    assert machine.once().returncode == 3
    pointer = machine.pointer()
    assert pointer is not None
    assert (pointer.state, pointer.reason) == (CacheState.FAILED, reason)
    assert not list(machine.layout.store.iterdir())
    machine.registry.behave()
    assert machine.once().returncode == 0


def test_an_invalid_manifest_is_logged_and_the_others_are_served(machine: Machine) -> None:
    (machine.manifests / "broken.yaml").write_text("kind: Pod")

    result = machine.once()

    assert result.returncode == 3
    assert machine.node_object()["status"]["caches"]["vector-add"]["state"] == "Ready"
    events = [json.loads(line) for line in result.stderr.splitlines()]
    assert any(
        event["event"].startswith("cache manifest unreadable") and event["file"] == "broken.yaml" for event in events
    )


def test_it_follows_the_directory_until_it_is_stopped(machine: Machine) -> None:
    with machine.running(machine.arguments()) as process:
        until(lambda: is_ready(machine), "the cache is Ready")
        (machine.manifests / "GKMCache-vector-add.yaml").unlink()
        until(lambda: not list(machine.layout.store.iterdir()), "the entry is collected")
        until(lambda: not (machine.root / "nodes" / "ml-apps").exists(), "the node object is gone")
        process.send_signal(signal.SIGTERM)
        assert process.wait(scaled(20)) == 0


def test_a_second_agent_on_the_same_state_is_refused(machine: Machine) -> None:
    with machine.running(machine.arguments()):
        until(lambda: is_ready(machine), "the cache is Ready")
        second = machine.once()
        assert second.returncode == 1
        assert "another gkm-agent runs on this state directory" in second.stderr


def test_killed_during_a_real_pull_it_ends_ready_after_a_restart(machine: Machine) -> None:
    command = [sys.executable, "-m", "gkm_agent.main", *machine.arguments()]
    for event in ("pull started", "GPUs of this node changed"):
        environment = os.environ | machine.variables
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
            try:
                assert process.stderr is not None
                for line in process.stderr:
                    if json.loads(line)["event"] == event:
                        break
            finally:
                process.kill()

    assert machine.once().returncode == 0
    assert is_ready(machine)
    assert not list(machine.layout.work.iterdir())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("verification: {mode: maybe}", "maybe"), ("verifcation: {}", "verifcation"), ("{", "not YAML")],
)
def test_a_configuration_that_cannot_be_meant_stops_it_at_once(machine: Machine, text: str, complaint: str) -> None:
    (machine.root / "config.yaml").write_text(text)

    result = machine.once()

    assert result.returncode == 1
    assert complaint in result.stderr
    assert "config.yaml" in result.stderr
    assert not machine.layout.caches.exists()
