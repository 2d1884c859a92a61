"""NVIDIA's part: a ResourceClaimTemplate for each ComputeDomain, made at once; its domain owns it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from domains_load import DOMAINS
from gkm.api import computedomains
from gkm.api.mnnvl_metadata import NODE_LABEL
from gkm.kube.client import HttpApi
from gkm.kube.errors import ApiError
from gkm.kube.reflector import Reflector
from gkm.kube.resources import CLAIM_TEMPLATES, Json, Resource
from support.grove.objects import claim_template

TEMPLATES: Resource[Json] = Resource(
    CLAIM_TEMPLATES.api_version, CLAIM_TEMPLATES.kind, CLAIM_TEMPLATES.plural, namespaced=True, type=Json
)


@contextmanager
def templates_made(api: HttpApi) -> Iterator[None]:
    """Make templates until the block ends."""
    with ThreadPoolExecutor(1) as pool:

        def changed(old: Json | None, new: Json | None) -> None:
            if old is None and new is not None:
                pool.submit(_make, api, new)

        reflector = Reflector(api, DOMAINS, changed)
        reflector.start()
        try:
            yield
        finally:
            reflector.close()


def _make(api: HttpApi, domain: Json) -> None:
    metadata = domain["metadata"]
    template = claim_template(
        metadata["name"],
        computedomains.CHANNEL_CLASS,
        namespace=metadata["namespace"],
        labels={NODE_LABEL: metadata["uid"]},
    )
    owner = {
        "apiVersion": computedomains.API_VERSION,
        "kind": computedomains.KIND,
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
    template["metadata"]["ownerReferences"] = [owner]
    try:
        api.create(TEMPLATES, template)
    except ApiError as error:
        if not error.conflict:
            raise
