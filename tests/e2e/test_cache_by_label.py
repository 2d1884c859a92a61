"""Pods that name a cache by a label alone, on a real kubelet: what they see is the cache."""

import ast
import hashlib
import json
from pathlib import Path

from gkm.api.pod_caches import INJECTED
from gkm.images.assembly.image import pack
from gkm.images.assembly.several import scan_caches
from gkm.images.assembly.versions import DependencyVersions
from gkm.images.reference import Reference
from support.cli.command import gkm
from support.cluster import gkm_objects as objects
from support.cluster.gkm_objects import Object
from support.e2e.fleet import CACHE, Fleet
from support.images.directories import KEY, RANK, component, kernel

PATH = "/var/cache/gkm/llama"


def labeled(name: str, namespace: str, script: str, **annotations: str) -> Object:
    """A pod without a volume that has the label of a cache and runs a shell script once."""
    made = objects.pod(name, namespace, {}, script)
    made["metadata"] |= {"labels": {"gkm.io/cache": "llama"}, "annotations": annotations}
    container = made["spec"]["containers"][0]
    del made["spec"]["volumes"], container["volumeMounts"], container["env"]
    return made


def ready(fleet: Fleet, namespace: str, image: Reference) -> None:
    """Declare the cache, and wait until a pod of its label gets everything."""
    fleet.declare("llama", namespace, image)
    fleet.reaches("llama", namespace, "Ready")
    fleet.until(lambda: fleet.cluster.get("gkmcache", "llama", namespace)["status"].get("runtime"), "its runtime")
    label = f"cache.gkm.io/{namespace}.llama"
    fleet.until(lambda: label in fleet.cluster.get("node", fleet.cluster.node_name)["metadata"]["labels"], "the label")

    def is_whole() -> bool:
        tried = labeled("tried", namespace, "true")
        found = fleet.cluster.kubectl("create", "--dry-run=server", "-ojson", "-f-", input=json.dumps(tried))
        return "skipped" not in json.loads(json.loads(found)["metadata"]["annotations"][INJECTED])

    fleet.until(is_whole, "the webhook to see the cache")


def test_a_labeled_pod_sees_its_cache_where_its_variable_says(fleet: Fleet, namespace: str) -> None:
    ready(fleet, namespace, fleet.image("llama"))
    wishes = {"gkm.io/cache-nodes": "required"}
    script = 'cd "$TRITON_CACHE_DIR" && find . -type f -exec sha256sum {} + && touch "$TRITON_CACHE_DIR/new"'
    fleet.cluster.apply(labeled("reader", namespace, script, **wishes))
    printed = {line.split()[1]: line.split()[0] for line in fleet.ended("reader", namespace).splitlines()}
    files = [path for path in CACHE.rglob("*") if path.is_file()]
    assert printed.keys() == {f"./{path.relative_to(CACHE)}" for path in files}
    # Files that name the directory where the cache was built name the mount path instead.
    unmoved = [path for path in files if not path.name.startswith("__grp__")]
    assert all(
        printed[f"./{path.relative_to(CACHE)}"] == hashlib.sha256(path.read_bytes()).hexdigest() for path in unmoved
    )
    pod = fleet.cluster.get("pod", "reader", namespace)
    (injected,) = json.loads(pod["metadata"]["annotations"][INJECTED])["caches"]
    assert (injected["path"], injected["nodes"]) == (PATH, "required")


def test_a_labeled_pod_sees_each_of_several_caches_in_a_directory_of_its_own(
    fleet: Fleet, namespace: str, tmp_path: Path
) -> None:
    component(tmp_path / "root/vllm")
    kernel(tmp_path / "root/triton")
    (tmp_path / "work").mkdir()
    versions = DependencyVersions()
    scanned = scan_caches([tmp_path / "root"], (), versions)
    built = pack(scanned.caches, "llama", tmp_path / "work", versions=versions)
    ready(fleet, namespace, fleet.image("several", built=built))
    assert fleet.cluster.get("gkmcache", "llama", namespace)["status"]["runtime"] == "vllm-triton"
    files = f'"$TRITON_CACHE_DIR"/{KEY}/__grp__fwd.json "$VLLM_CACHE_ROOT"/{RANK}/backbone/vllm_compile_cache.py'
    script = f'echo "$VLLM_CACHE_ROOT" "$TRITON_CACHE_DIR"; for each in {files}; do echo; echo ---; cat "$each"; done'
    script = f'{script}; touch "$TRITON_CACHE_DIR/new"'
    fleet.cluster.apply(labeled("reader", namespace, script, **{"gkm.io/cache-nodes": "required"}))
    variables, group, index = fleet.ended("reader", namespace).split("\n---\n")
    assert variables.split() == [f"{PATH}/vllm", f"{PATH}/triton"]
    assert json.loads(group)["child_paths"]["fwd.cubin"] == f"{PATH}/triton/{KEY}/fwd.cubin"
    ((_, graph),) = ast.literal_eval(index.strip()).values()
    assert graph.startswith(f"{PATH}/vllm/{RANK}/backbone/artifact_")


def test_a_labeled_pod_starts_without_the_cache_and_why_says_so(fleet: Fleet, namespace: str) -> None:
    fleet.cluster.apply(labeled("early", namespace, 'ls -A "$VLLM_CACHE_ROOT" | wc -l; touch "$VLLM_CACHE_ROOT/new"'))
    assert fleet.ended("early", namespace).strip() == "0"
    done = gkm("why", "early", "-n", namespace, "--kubeconfig", fleet.cluster.kubeconfig, "-o", "json")
    assert [step["check"] for step in json.loads(done.stdout) if step["state"] == "broken"] == ["object"]
