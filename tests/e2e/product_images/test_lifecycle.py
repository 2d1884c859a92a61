"""An installation from an empty cluster until that is empty again: our images, the chart, the commands of our pages.

docs/reference/lifecycle.md has the states, the invariants, and the stand-ins of this test. One cluster and one
sequence: each state begins where the one before ended. build/e2e/lifecycle.txt is the transcript.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import pytest
from support.chart.helm import HelmFailed, Values, helm
from support.chart.release import Release, packaged
from support.cluster import gkm_objects as objects
from support.cluster.cluster import Cluster
from support.cluster.deployment import PARTS, SYSTEM, Deployment
from support.cluster.gkm_objects import MOUNT
from support.docs.shell_blocks import blocks
from support.e2e.mount_identity import file_identity
from support.e2e.product_images import Deployed
from support.e2e.reader import Reader
from support.e2e.traces import in_the_api, on_disk
from support.e2e.transcript import Transcript
from support.product_images import build

pytestmark = [pytest.mark.images, pytest.mark.own_node, pytest.mark.timeout(900)]
CACHE, NAMESPACE = "llama", "default"
"""What the quickstart declares."""
TAG = "4f1c0de"
"""As that of a commit, which the quickstart takes."""
NEXT = "0.2.0"
UPGRADE, UNINSTALL = "docs/how-to/upgrade.md", "docs/how-to/uninstall.md"
LEFT_BEHIND = "cache.gkm.io/default.llama=0123456789ab"
"""A label of a cache that was deleted after the last agent had gone."""
SCRIPTS = {
    "reader": f"while cat {MOUNT}/*/* > /dev/null; do sleep 0.1; done",
    "writer": f"ls {MOUNT}/mine; echo mine > {MOUNT}/mine; while grep -q mine {MOUNT}/mine; do sleep 0.1; done",
}
"""Pods whose container ends, and is started again, at the first read that fails."""
ATTRIBUTES: Mapping[str, Mapping[str, str]] = {"reader": {}, "writer": {"readOnly": "false", "mountPath": MOUNT}}
FRESH = "No such file or directory"
"""What the writer prints while its private layer is empty."""


def test_an_installation_serves_through_upgrade_and_reboot_and_leaves_nothing_when_it_goes(
    bare: Deployed, tmp_path: Path
) -> None:
    transcript = Transcript("lifecycle")
    life = Life(bare, tmp_path, transcript)
    with transcript.step("quickstart, word for word"):
        life.quickstart()
    with transcript.step("two pods use the cache"):
        life.use()
    with transcript.step("upgrade to the next version"):
        life.upgrade()
    with transcript.step("reboot of the node"):
        life.reboot()
    with transcript.step("removal is refused while pods use volumes"):
        life.removal_is_refused()
    values = life.release.values()
    with transcript.step("removal"):
        life.remove()
    with transcript.step("second installation"):
        life.install_again(values)


@dataclass(frozen=True)
class Life:
    """The steps; each checks the state that it leads to."""

    deployed: Deployed
    directory: Path
    transcript: Transcript

    def quickstart(self) -> None:
        printed = self.reader.quickstart()
        self.transcript.write(printed)
        assert printed.splitlines()[-1].split()[:2] == [CACHE, "1/1"]

    def use(self) -> None:
        for name, script in SCRIPTS.items():
            pod = objects.pod(name, NAMESPACE, {"cacheName": CACHE, **ATTRIBUTES[name]}, script)
            pod["spec"]["restartPolicy"] = "Always"
            self.cluster.apply(pod)
        self.serves()
        self._begins_with_an_empty_layer()
        self._has_no_fault()

    def upgrade(self) -> None:
        self.deployed.tag_images(self.registry, NEXT)
        values = dict(self.release.values())
        values["image"] = {"registry": self.registry}
        mounted = self.deployed.mounted(NAMESPACE)
        old = {part: self.pods.ready(part)["metadata"]["uid"] for part in PARTS}
        (kinds,) = (block for block in blocks(UPGRADE) if "gkm crds" in block)
        self.transcript.write(self.reader.run(kinds))
        packaged(NEXT, self.directory)
        self.next_release.install(values)
        for part in PARTS:
            (container,) = self.pods.ready(part, other_than=old[part])["spec"]["containers"]
            assert container["image"].endswith(f":{NEXT}")
        self.serves()
        # Neither unmounted nor mounted anew, and no read failed meanwhile.
        assert self.deployed.mounted(NAMESPACE) == mounted
        assert [self._restarts(name) for name in SCRIPTS] == [0] * len(SCRIPTS)
        self._has_no_fault()

    def reboot(self) -> None:
        mounted, fetched = self.deployed.mounted(NAMESPACE), self._store()
        self.cluster.reboot(lost=[self.pods.run_directory])
        ours = [(self.pods.pod(part)["metadata"]["name"], SYSTEM) for part in PARTS]
        for name, namespace in (*ours, *((name, NAMESPACE) for name in SCRIPTS)):
            self.cluster.until(partial(self._restarts, name, namespace), f"{name} to start again")
        self.serves()
        assert not set(self.deployed.mounted(NAMESPACE)) & set(mounted)
        assert self._store() == fetched, "nothing was fetched again"
        self._begins_with_an_empty_layer()

    def removal_is_refused(self) -> None:
        mounted = self.deployed.mounted(NAMESPACE)
        with pytest.raises(HelmFailed) as refusal:
            self.release.uninstall()
        printed = str(refusal.value)
        self.transcript.write(printed)
        assert f"2 pods use volumes of GKM, which only its CSI driver can unmount: {NAMESPACE}/reader, " in printed
        # Helm upgrades no release whose removal it has begun: the message has the command that goes back.
        _, found, words = printed.partition("or keep GKM: helm ")
        assert found
        helm(*words.partition('"')[0].split(), "--kubeconfig", self.cluster.kubeconfig)
        self.serves()
        assert self.deployed.mounted(NAMESPACE) == mounted

    def remove(self) -> None:
        self.cluster.kubectl("delete", "pods", *SCRIPTS, "-n", NAMESPACE)
        # The page upgrades to the chart of the checkout, so to its images.
        self.deployed.tag_images(self.registry, build.TAG)
        *steps, last = blocks(UNINSTALL)
        for step in steps:
            self.transcript.write(self.reader.run(step))
        self.cluster.kubectl("label", "node", self.cluster.node_name, LEFT_BEHIND)
        self.transcript.write(self.reader.run(last))
        # A namespace goes after what is in it.
        self.cluster.until(lambda: not self.cluster.exists("namespace", SYSTEM), "the namespace to go")
        assert in_the_api(self.cluster) == []
        assert on_disk([self.pods.directory, self.cluster.kubelet_root]) == []
        assert not self.pods.state.exists()
        assert not self.pods.run_directory.exists()

    def install_again(self, values: Values) -> None:
        self.cluster.kubectl("label", "node", self.cluster.node_name, "gkm.io/gpu=true")
        self.release.install({**values, "image": {"registry": self.registry, "tag": TAG}})
        for part in PARTS:
            self.pods.ready(part)
        self.deployed.fleet.declare(CACHE, NAMESPACE, f"{self.registry}/caches/{CACHE}:1")
        self.use()

    def serves(self) -> None:
        """Check that each part, the cache and both pods are ready, and that each pod has its one mount."""
        for part in PARTS:
            self.pods.ready(part)
        self.cluster.until(self._is_ready_everywhere, "the cache to be ready on 1/1")
        for name in SCRIPTS:
            self.cluster.until(partial(self._runs, name), f"the pod {name} to run")
        assert len(self.deployed.mounted(NAMESPACE)) == len(SCRIPTS)

    @cached_property
    def reader(self) -> Reader:
        host = self.deployed.fleet.olareg.host
        config = {
            "store": {"minFreePercent": 0},
            "capture": {"minFreePercent": 0},
            "registries": {"hosts": {host: {"plainHTTP": True}}},
        }
        images = self.deployed.tag_images(self.registry, TAG)
        values = {**self.pods.values(), "config": config}
        return Reader(self.cluster, self.registry, TAG, images, values, self.directory / "quickstart")

    @property
    def pods(self) -> Deployment:
        return self.deployed.pods

    @property
    def cluster(self) -> Cluster:
        return self.deployed.fleet.cluster

    @property
    def release(self) -> Release:
        return self.pods.release

    @property
    def next_release(self) -> Release:
        return replace(self.release, chart=self.directory / f"gkm-{NEXT}.tgz")

    @property
    def registry(self) -> str:
        return f"{self.deployed.fleet.olareg.host}/team"

    def _is_ready_everywhere(self) -> bool:
        status = self.cluster.get("gkmcache", CACHE, NAMESPACE).get("status", {})
        return bool(status.get("ready") == "1/1")

    def _runs(self, name: str) -> bool:
        conditions = self.cluster.get("pod", name, NAMESPACE)["status"].get("conditions", [])
        return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)

    def _restarts(self, name: str, namespace: str = NAMESPACE) -> int:
        (status,) = self.cluster.get("pod", name, namespace)["status"]["containerStatuses"]
        return int(status["restartCount"])

    def _begins_with_an_empty_layer(self) -> None:
        """Wait for the writer's first line: its container is Ready before that. What was memory is gone."""
        self.cluster.until(lambda: FRESH in self.cluster.logs("writer", NAMESPACE), "the writer to find no file")

    def _has_no_fault(self) -> None:
        """Check that `gkm doctor` finds nothing, and leaves no check out."""
        self.reader.run("gkm doctor -o json > doctor.json")
        found = json.loads((self.reader.directory / "doctor.json").read_text())
        assert {each["check"] for each in found if each["severity"] not in ("ok", "skipped")} == set(), found
        assert "images/signatures" in {each["check"] for each in found}

    def _store(self) -> set[tuple[str, int, int, int]]:
        """Return what identifies each file of the store: one that was written anew is another."""
        return {file_identity(path) for path in (self.pods.state / "store" / "sha256").rglob("*")}
