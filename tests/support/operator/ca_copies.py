"""The controllers' copies of admission's CAs, for tests that run admission without the controllers."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from gkm.api.installation import ADMISSION_CA
from gkm.kube.client import connect
from gkm.kube.secrets import DEFAULT_NAMESPACE
from gkm_operator.webhooks import CaCopies, WebhookConfiguration
from support.cluster.cluster import ADMINS, Cluster

CONTROLLERS = "system:serviceaccount:gkm-system:gkm-controllers"


@contextmanager
def copied(cluster: Cluster, configurations: Sequence[str], account: str = CONTROLLERS) -> Iterator[None]:
    """Copy with an account until the block ends; configurations are named as on the command line.

    Afterwards the CAs of this block are forgotten.
    """
    copies = CaCopies(
        connect(str(cluster.kubeconfig_for(account, () if account == CONTROLLERS else ADMINS))),
        [WebhookConfiguration.parse(each) for each in configurations],
        namespace=DEFAULT_NAMESPACE,
        poll_seconds=0.1,
        repair_seconds=1.0,
    )
    copies.work()
    try:
        yield
    finally:
        copies.close()
        cluster.objects.delete_named("configmap", ADMISSION_CA, DEFAULT_NAMESPACE)
