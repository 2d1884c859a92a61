"""gkm doctor names each fault of an installation, and nothing else, with a token of the chart's role for readers."""

import json
from collections.abc import Iterator

import pytest
from gkm.kube.resources import Json
from gkm_cli.doctor.checks import CHECKS
from support.cli.command import gkm
from support.cli.installed_site import NODE, PODS, TEAM, InstalledSite, installed
from support.cli.seeded_faults import FAULTS
from support.cli.seeded_images import running_image
from support.peers import require


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstalledSite]:
    for command in ("helm", "etcd", "kube-apiserver", "kube-controller-manager", "kubectl"):
        require.peer(command)
    with installed(tmp_path_factory.mktemp("installed")) as made:
        yield made


def pod() -> Json:
    """A pod that mounts the cache, which kubelet has not started yet."""
    attributes = {"cacheName": "llama", "mountPath": "/cache"}
    volume = {"name": "kernels", "csi": {"driver": "csi.gkm.io", "volumeAttributes": attributes}}
    mounts, env = [{"name": "kernels", "mountPath": "/cache"}], [{"name": "TRITON_CACHE_DIR", "value": "/cache"}]
    spec = {
        "nodeName": NODE,
        "volumes": [volume],
        "containers": [{"name": "app", "image": "i", "volumeMounts": mounts, "env": env}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "server", "namespace": TEAM}, "spec": spec}


def test_a_healthy_installation_has_no_finding(site: InstalledSite) -> None:
    assert site.findings() == (0, [])


@pytest.mark.parametrize("name", FAULTS)
def test_a_seeded_fault_is_found_by_its_name_alone(site: InstalledSite, name: str) -> None:
    with FAULTS[name](site):
        code, found = site.findings()
    # A configuration that cannot be used leaves two checks of ComputeDomains unknown.
    assert [(severity, check) for severity, check, _ in found if severity != "not checked"] == [("problem", name)], (
        found
    )
    assert code == 3


def test_after_all_faults_the_installation_is_healthy_again(site: InstalledSite) -> None:
    assert site.findings() == (0, [])


def test_images_are_compared_with_a_key_in_the_config_map_and_with_no_file_of_this_machine(site: InstalledSite) -> None:
    with running_image(site, signed=True):
        assert site.findings("--check", "images") == (0, [])
    with running_image(site, signed=True, key="/etc/hostname"):
        code, [(severity, _, why)] = site.findings("--check", "images")
    assert (code, severity, "/etc/hostname" in why) == (1, "not checked", True)


@pytest.mark.parametrize(("images", "expected"), [("*", 0), ("gkm-*", 1)], ids=["about caches", "about GKM"])
def test_an_unsigned_image_that_was_loaded_is_unknown_and_a_policy_about_caches_is_not_about_it(
    site: InstalledSite, images: str, expected: int
) -> None:
    with running_image(site, signed=False, images=images, loaded=True):
        code, found = site.findings("--check", "images")
    assert (code, [severity for severity, _, _ in found]) == (expected, ["not checked"] * expected)


def test_every_check_of_the_installation_has_its_fault() -> None:
    ours = {check.name for check in CHECKS if not check.name.startswith("domains/")}
    assert set(FAULTS) == ours
    assert len(FAULTS) >= 40


def test_the_same_token_is_enough_for_the_other_commands_that_read(site: InstalledSite) -> None:
    with site.created(PODS, pod()):
        explained = gkm("why", "server", "-n", TEAM, "-o", "json", "--kubeconfig", site.reader)
    listed = gkm("cache", "list", "-A", "--kubeconfig", site.reader)
    states = {step["check"]: step["state"] for step in json.loads(explained.stdout)}
    # Kubelet has not started it; all else is read.
    assert (explained.returncode, {name for name, state in states.items() if state != "ok"}) == (
        3,
        {"mount", "hits"},
    )
    assert "not checked" not in states.values()
    assert (listed.returncode, "AllNodesReady" in listed.stdout or "llama" in listed.stdout) == (0, True)
