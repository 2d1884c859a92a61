"""An image of GKM in a registry of the tests, which a pod of the CSI driver names, with a policy about it."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy

from gkm.kube.resources import CONFIGMAPS, Json
from support.cli import installed_site as site_of
from support.cli.installed_site import CONFIG, SYSTEM, InstalledSite
from support.registry.push import EMPTY_CONFIG, OCI_LAYER_GZIP, Target
from support.registry.server import Registry
from support.registry.store import digest_of
from support.sigstore.key_signatures import SigningKey, sign_bundle

FILE = "/etc/gkm/release.pub"
"""A key that the ConfigMap has as a file."""


@contextmanager
def running_image(
    site: InstalledSite, *, signed: bool, key: str = FILE, images: str = "gkm-*", loaded: bool = False
) -> Iterator[None]:
    """Run an image of the registry's. `images` is the last part of the policy's glob.

    A `loaded` image was imported into its node, which then states the digest of its configuration.
    """
    signer = SigningKey()
    with Registry.start() as registry:
        target = Target(registry.host, "team/gkm-csi")
        digest = target.image([(b"layer", OCI_LAYER_GZIP)], tag="1")
        if signed:
            sign_bundle(target, digest, signer)
        made: Json = deepcopy(CONFIG)
        # Users may name no image of this registry.
        made["registries"] = {"allow": ["registry.example"], "hosts": {registry.host: {"plainHTTP": True}}}
        made["verification"]["policies"].append({"images": [f"{registry.host}/team/{images}"], "keys": [key]})
        patch = site_of.config_text(made)
        patch["data"]["release.pub"] = signer.public_pem.decode()
        (container,) = site.api.get(site_of.PODS, "gkm-csi-0", SYSTEM)["spec"]["containers"]
        image_id = digest_of(EMPTY_CONFIG) if loaded else f"{target}@{digest}"
        status = {
            "name": container["name"],
            "image": f"{target}:1",
            "imageID": image_id,
            "ready": True,
            "restartCount": 0,
        }
        with (
            site.patched(CONFIGMAPS, "gkm-config", SYSTEM, patch),
            site.patched(
                site_of.PODS, "gkm-csi-0", SYSTEM, {"spec": {"containers": [container | {"image": f"{target}:1"}]}}
            ),
            site.patched(site_of.PODS, "gkm-csi-0", SYSTEM, {"status": {"containerStatuses": [status]}}, status=True),
        ):
            yield
