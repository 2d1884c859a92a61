"""Pods that name a cache by a label alone, on a real kubelet: what they see is the cache."""

import hashlib
import json

from gkm.api.pod_caches import INJECTED
from support.cli.command import gkm
from support.cluster import gkm_objects as objects
from support.cluster.gkm_objects import Object
from support.e2e.fleet import CACHE, Fleet

PATH = "/var/cache/gkm/llama"


def labeled(name: str, namespace: str, script: str, **annotations: str) -> Object:
    """A pod without a volume that has the label of a cache and runs a shell script once."""
    made = objects.pod(name, namespace, {}, script)
    made["metadata"] |= {"labels": {"gkm.io/cache": "llama"}, "annotations": annotations}
    del made["spec"]["volumes"], made["spec"]["containers"][0]["volumeMounts"]
    return made


def test_a_labeled_pod_sees_its_cache_where_its_variable_says(fleet: Fleet, namespace: str) -> None:
    fleet.declare("llama", namespace, fleet.image("llama"))
    fleet.reaches("llama", namespace, "Ready")
    fleet.until(lambda: fleet.cluster.get("gkmcache", "llama", namespace)["status"].get("runtime"), "its runtime")
    label = f"cache.gkm.io/{namespace}.llama"
    fleet.until(lambda: label in fleet.cluster.get("node", fleet.cluster.node_name)["metadata"]["labels"], "the label")

    def is_whole() -> bool:
        tried = labeled("tried", namespace, "true")
        found = fleet.cluster.kubectl("create", "--dry-run=server", "-ojson", "-f-", input=json.dumps(tried))
        return "skipped" not in json.loads(json.loads(found)["metadata"]["annotations"][INJECTED])

    fleet.until(is_whole, "the webhook to see the cache")
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


def test_a_labeled_pod_starts_without_the_cache_and_why_says_so(fleet: Fleet, namespace: str) -> None:
    fleet.cluster.apply(labeled("early", namespace, 'ls -A "$VLLM_CACHE_ROOT" | wc -l; touch "$VLLM_CACHE_ROOT/new"'))
    assert fleet.ended("early", namespace).strip() == "0"
    done = gkm("why", "early", "-n", namespace, "--kubeconfig", fleet.cluster.kubeconfig, "-o", "json")
    assert [step["check"] for step in json.loads(done.stdout) if step["state"] == "broken"] == ["object"]
