"""Pods with hostUsers: false on a real kubelet, with containerd 2 and a runc that maps the ids of mounts."""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from gkm.hoststate.names import CacheRef
from support.cli.command import gkm
from support.cluster import gkm_objects as objects
from support.cluster.gkm_objects import MOUNT, Object
from support.csi import attacks
from support.e2e.mapped_node import NAMESPACE, MappedNode, in_user_namespace, privileged
from support.e2e.triton_pods import compiling, hits, with_directories
from support.e2e.volumes import tree
from support.peers import require
from support.peers.tiers import USER_NAMESPACES
from support.triton.cache import compiled

pytestmark = pytest.mark.heavy

ATTRIBUTES = {"cacheName": "llama", "mountPath": MOUNT}
MAPPED = ATTRIBUTES | {"userNamespace": "true"}
PRIVATE = MAPPED | {"readOnly": "false"}
FORMS = {attacks.READ_ONLY: MAPPED, attacks.PRIVATE: PRIVATE}
MAPPING = "cat /proc/self/uid_map"


@pytest.fixture(scope="module")
def node() -> Iterator[MappedNode]:
    require.containerd()
    for command in ("etcd", "kube-apiserver", "kube-scheduler", "kubelet", "kubectl", *sorted(USER_NAMESPACES)):
        require.peer(command)
    with tempfile.TemporaryDirectory(prefix="gkm-", ignore_cleanup_errors=True) as directory:
        Path(directory).chmod(0o755)  # root of a pod is not root of the machine, and passes its directories
        with MappedNode.start(Path(directory)) as found:
            digest = found.files.entry(attacks.CONTENT)
            found.files.pointer(CacheRef(NAMESPACE, "llama"), digest=digest, size_bytes=1)
            yield found


def pod(name: str, attributes: dict[str, str], script: str) -> Object:
    return objects.pod(name, NAMESPACE, attributes, script)


@pytest.mark.parametrize("form", FORMS)
def test_root_of_a_pod_attacks_its_volume_and_the_store_stays(node: MappedNode, form: str) -> None:
    before = tree(node.files.layout.store)
    program = Path(attacks.__file__)
    attacker = pod(f"attack-{form}", FORMS[form], f"{sys.base_prefix}/bin/python3 {program} {MOUNT}")
    printed = node.ended(in_user_namespace(with_directories(attacker, sys.base_prefix, str(program.parent))))

    outcomes = json.loads(printed)
    assert {name: found for name, found in outcomes.items() if found != attacks.ATTACKS[name].expected(form)} == {}
    node.delete(f"attack-{form}")
    assert tree(node.files.layout.store) == before
    assert node.nothing_left()


@pytest.mark.parametrize("user", [0, 1000])
def test_a_pod_reads_its_cache_and_writes_its_own_layer(node: MappedNode, user: int) -> None:
    name = f"private-{user}"
    script = f"{MAPPING}; cat {MOUNT}/key/kernel.bin; echo; mkdir {MOUNT}/new && echo mine > {MOUNT}/new/file"
    script += f" && echo mine > {MOUNT}/key/file && cat {MOUNT}/new/file {MOUNT}/key/file"
    printed = node.ended(in_user_namespace(pod(name, PRIVATE, script), runAsUser=user, runAsGroup=user))

    mapping, *rest = printed.splitlines()
    inside, outside, number = map(int, mapping.split())
    assert (inside, number) == (0, 65536)
    assert outside >= 65536
    assert rest == ["kernel", "mine", "mine"]
    node.delete(name)
    assert node.nothing_left()


def test_a_pod_without_a_user_namespace_has_the_plain_overlay(node: MappedNode) -> None:
    script = f"cat {MOUNT}/key/kernel.bin; echo; ls -A {MOUNT}"
    printed = node.ended(privileged(pod("plain", ATTRIBUTES, script)))
    assert printed.split() == ["kernel", "first", "index", "key", "replaced", "spare"]
    node.delete("plain")


def test_without_the_attribute_the_event_and_gkm_why_name_the_cause(node: MappedNode) -> None:
    node.cluster.apply(in_user_namespace(pod("unmapped", ATTRIBUTES, "true")))
    said = "failed to set MOUNT_ATTR_IDMAP"
    node.cluster.until(lambda: any(said in message for message in node.events("unmapped")), "the event of the pod")
    done = gkm("why", "unmapped", "-n", NAMESPACE, "--kubeconfig", node.cluster.kubeconfig, "-o", "json")

    (step,) = [found for found in json.loads(done.stdout) if found["check"] == "volume"]
    assert step["state"] == "broken"
    assert "the pod has hostUsers: false and the volume kernels lacks userNamespace" in step["detail"]
    assert 'add userNamespace: "true" to the volumeAttributes of kernels' in step["hint"]
    node.delete("unmapped")


def test_triton_hits_through_the_links_and_compiles_a_miss_into_the_layer(node: MappedNode, tmp_path: Path) -> None:
    with require.absences():
        compiled(tmp_path / "built")
    digest = "sha256:" + "7" * 64
    content = node.files.layout.entry(digest) / "cache"
    shutil.copytree(tmp_path / "built", content)
    for path in (content, *content.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    node.files.pointer(CacheRef(NAMESPACE, "triton"), digest=digest, size_bytes=1)
    before = tree(content)

    reads = compiling("hits", NAMESPACE, MAPPED | {"cacheName": "triton"}, 128)
    assert hits(node.ended(in_user_namespace(reads))) == [True]
    writes = compiling("misses", NAMESPACE, PRIVATE | {"cacheName": "triton"}, 128, 256, 256)
    assert hits(node.ended(in_user_namespace(writes))) == [True, False, True]
    for name in ("hits", "misses"):
        node.delete(name)
    assert tree(content) == before
