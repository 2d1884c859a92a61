"""The real kube-apiserver asks the real webhook process; people see what kubectl prints."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from operator_site import Shelf, cache, manifests, operator
from testbed import peers, ports
from testbed.cluster import Cluster
from testbed.processes import Process
from testbed.sigstore import Flaw
from testbed.waiting import until

pytestmark = pytest.mark.peers
NAMESPACE = "default"
CONFIGURATION = "gkm-caches-under-test"


class Webhooked:
    """A cluster whose caches called adm-… are judged by a running webhook."""

    def __init__(self, cluster: Cluster, images: Shelf) -> None:
        self.cluster = cluster
        self.images = images

    def apply(self, manifest: dict[str, Any], *arguments: str) -> tuple[int, str]:
        """Apply as a person would; return kubectl's exit code and what it printed."""
        done = subprocess.run(
            [peers.binary("kubectl"), f"--kubeconfig={self.cluster.kubeconfig}", "apply", "--filename=-", *arguments],
            input=json.dumps(manifest),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def webhook(gkm_cluster: Cluster, images: Shelf, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhooked]:
    directory = tmp_path_factory.mktemp("admission")
    port = ports.free()
    _configure(gkm_cluster, port)
    config = directory / "config.yaml"
    config.write_text(images.config(), encoding="utf-8")
    arguments = (
        "admission",
        f"--config={config}",
        f"--listen=127.0.0.1:{port}",
        f"--self-signed={directory / 'tls'}",
        "--tls-names=127.0.0.1",
        f"--webhook-configuration={CONFIGURATION}",
        f"--kubeconfig={gkm_cluster.kubeconfig}",
    )
    try:
        with operator(directory, *arguments) as process:
            process.ready(lambda: _serving(process), "it serves")
            running = Webhooked(gkm_cluster, images)
            refused = cache("adm-probe", "https://no.reference.test", NAMESPACE)
            # An API server takes a moment to see a changed configuration.
            until(lambda: running.apply(refused, "--dry-run=server")[0] != 0, "the webhook is asked")
            yield running
            process.stop()
            assert process.popen.returncode == 0, process.tail()
    finally:
        gkm_cluster.kubectl("delete", "validatingwebhookconfiguration", CONFIGURATION)


def _serving(process: Process) -> bool:
    return '"event": "serving"' in process.log.read_text(encoding="utf-8")


def _configure(cluster: Cluster, port: int) -> None:
    (found,) = (manifest for manifest in manifests() if manifest["kind"] == "ValidatingWebhookConfiguration")
    found["metadata"]["name"] = CONFIGURATION
    (hook,) = found["webhooks"]
    hook["clientConfig"] = {"url": f"https://127.0.0.1:{port}/validate"}
    hook["matchConditions"].append({"name": "ours", "expression": "object.metadata.name.startsWith('adm-')"})
    cluster.apply(found)


def test_a_signed_image_is_admitted_without_a_word(webhook: Webhooked) -> None:
    for bundle in (False, True):
        image, _ = webhook.images.push(f"good-{bundle}".lower(), bundle=bundle)
        code, said = webhook.apply(cache(f"adm-good-{bundle}".lower(), image, NAMESPACE))
        assert (code, "Warning" in said) == (0, False), said


@pytest.mark.parametrize(
    ("flaw", "reason"),
    [
        (None, "SignatureMissing"),
        (Flaw.WRONG_KEY, "SignatureInvalid"),
        (Flaw.FLIPPED_PAYLOAD, "SignatureInvalid"),
        (Flaw.OTHER_SUBJECT, "SignatureInvalid"),
        (Flaw.MISSING, "Signature"),
    ],
)
@pytest.mark.parametrize("namespace", [NAMESPACE, None])
def test_an_image_that_is_not_signed_rightly_is_refused_in_one_sentence(
    webhook: Webhooked, flaw: Flaw | None, reason: str, namespace: str | None
) -> None:
    image, digest = webhook.images.push(f"bad-{flaw}".lower().replace("flaw.", ""), flaw=flaw)
    code, said = webhook.apply(cache("adm-bad", image, namespace))
    assert code == 1
    assert f"image {image} is refused ({reason}" in said
    assert digest in said
    assert "needs a signature by key" in said
    assert len(said.strip().splitlines()) == 1


def test_an_image_that_is_not_there_is_refused(webhook: Webhooked) -> None:
    code, said = webhook.apply(cache("adm-none", f"{webhook.images.registry.host}/team/none:1", NAMESPACE))
    assert code == 1
    assert "(NotFound)" in said


def test_what_is_not_done_yet_is_said_to_who_asks_for_it(webhook: Webhooked) -> None:
    image, _ = webhook.images.push("asking")
    asking = cache("adm-asking", image, NAMESPACE)
    asking["spec"] |= {"updatePolicy": {"mode": "Track"}}
    code, said = webhook.apply(asking)
    assert code == 0, said
    assert "Warning: updatePolicy Track is not supported yet: the tag is resolved once" in said


def test_an_image_of_a_registry_that_is_away_is_admitted_with_a_warning(webhook: Webhooked) -> None:
    code, said = webhook.apply(cache("adm-away", f"{webhook.images.closed_port}/team/any:1", NAMESPACE))
    assert code == 0, said
    assert "Warning: image" in said
    assert "not verified yet" in said


def test_a_dry_run_is_judged_and_leaves_nothing(webhook: Webhooked) -> None:
    good, _ = webhook.images.push("dry-good")
    bad, _ = webhook.images.push("dry-bad", flaw=None)
    assert webhook.apply(cache("adm-dry", good, NAMESPACE), "--dry-run=server")[0] == 0
    assert webhook.apply(cache("adm-dry", bad, NAMESPACE), "--dry-run=server")[0] == 1
    assert not webhook.cluster.exists("gkmcache", "adm-dry", NAMESPACE)


def test_an_update_is_judged_when_it_names_another_image_only(webhook: Webhooked) -> None:
    image, _ = webhook.images.push("moving")
    assert webhook.apply(cache("adm-update", image, NAMESPACE))[0] == 0
    webhook.images.push("moving", flaw=None, salt="the tag moved to something unsigned")
    labelled = cache("adm-update", image, NAMESPACE, labels={"a": "1"})
    assert webhook.apply(labelled) == (0, "gkmcache.gkm.io/adm-update configured\n")
    other, _ = webhook.images.push("moving-other", flaw=None)
    assert webhook.apply(cache("adm-update", other, NAMESPACE))[0] == 1


def test_an_object_that_is_being_deleted_loses_its_finalizers(webhook: Webhooked) -> None:
    image, _ = webhook.images.push("going")
    assert webhook.apply(cache("adm-going", image, NAMESPACE, finalizers=["test.gkm.io/x"]))[0] == 0
    webhook.images.push("going", flaw=None, salt="gone bad")
    cluster = webhook.cluster
    cluster.kubectl("delete", "gkmcache", "adm-going", "--namespace", NAMESPACE, "--wait=false")
    patch = '{"metadata":{"finalizers":null}}'
    cluster.kubectl("patch", "gkmcache", "adm-going", "--namespace", NAMESPACE, "--type=merge", f"--patch={patch}")
    cluster.until(lambda: not cluster.exists("gkmcache", "adm-going", NAMESPACE), "it is gone")


def test_the_schema_refuses_what_no_webhook_needs_to_see(webhook: Webhooked) -> None:
    code, said = webhook.apply(cache("schema-scheme", "https://registry.test/team/cache:1", NAMESPACE))
    assert (code, "without a scheme" in said) == (1, True)
    code, said = webhook.apply(cache("schema-space", "registry.test/team cache:1", NAMESPACE))
    assert (code, "spec.image" in said) == (1, True)


def test_only_the_status_subresource_writes_status(webhook: Webhooked) -> None:
    image, _ = webhook.images.push("forged")
    forged = cache("adm-forged", image, NAMESPACE) | {"status": {"resolvedDigest": "sha256:" + "0" * 64}}
    assert webhook.apply(forged)[0] == 0
    assert "status" not in webhook.cluster.get("gkmcache", "adm-forged", NAMESPACE)
