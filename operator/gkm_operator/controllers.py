"""The command `gkm-operator controllers`: runs all controllers until a signal stops it."""

import argparse
from functools import partial
from threading import Event

from gkm.api import msgspec_warmup
from gkm.api.config import Config
from gkm.images.registries.credentials import PullSecrets
from gkm.kube.client import connect
from gkm.kube.controller import Controller, close_watches, stop_all
from gkm.kube.elector import Elector
from gkm.kube.informers import Informers
from gkm.kube.secrets import KubeSecrets, own_namespace

from gkm_operator import installation, metrics
from gkm_operator.caches.controller import CachesController
from gkm_operator.caches.verification import RecheckSchedule
from gkm_operator.captures.controller import CapturesController
from gkm_operator.captures.reconciler import prove
from gkm_operator.computedomains.controller import DomainsController
from gkm_operator.fabric.controller import FabricController
from gkm_operator.health import health_server
from gkm_operator.hypernodes.controller import TopologyController
from gkm_operator.images import CheckedImages
from gkm_operator.installation import InstallationReport
from gkm_operator.kserve.controller import KServeController
from gkm_operator.plans.controller import PlansController
from gkm_operator.plans.gates.controller import GatesController
from gkm_operator.taskgroups.controller import TaskGroupsController
from gkm_operator.webhooks import CaCopies

PROGRAM = "gkm-operator-controllers"
LEASE_PATIENCE_SECONDS = 3.0
POLL_SECONDS = 0.5


class LeadershipEnded(RuntimeError):
    """Another replica may be the leader now, so this process must end."""


def run(arguments: argparse.Namespace, config: Config, stop: Event) -> int:
    """Run all controllers until `stop`; return the exit code of the process.

    Raises:
        KindsMissing, KindsForeign, MNNVLMissing, RightsMissing: the installation is incomplete
            (gkm_operator.installation).
        TaskGroupsBlocked: the kinds of group templates are missing, or cannot be listed.
        LeadershipEnded: another replica may lead now.
    """
    metrics.record_build(PROGRAM)
    api = connect(arguments.kubeconfig, arguments.context, metrics.api_answered)
    # A separate client, whose timeout is much shorter than the lease.
    impatient = connect(arguments.kubeconfig, arguments.context, metrics.api_answered, timeout=LEASE_PATIENCE_SECONDS)
    elector = Elector(impatient, own_namespace(), arguments.lease, arguments.identity)
    metrics.LEADS.set_function(lambda: elector.is_leader)
    leader = connect(arguments.kubeconfig, arguments.context, metrics.api_answered, before_write=elector.check_leading)
    informers = Informers(api)
    topology = TopologyController(
        leader,
        config,
        instance=arguments.identity,
        informers=informers,
        namespace=own_namespace(),
        succeeds=lambda: elector.succeeds,
    )
    gates = GatesController(leader, config.packing, informers=informers)
    plans = PlansController(
        leader,
        config,
        instance=arguments.identity,
        informers=informers,
        namespace=own_namespace(),
        sources=topology.tree.approved_sources if topology.enabled else None,
        pods=gates.report,
    )
    gates.follow(plans.watcher, plans.wake)
    topology.tree.on_approved = plans.wake
    images = CheckedImages.of(config, secrets=PullSecrets(KubeSecrets(api), config.registries, own_namespace()))
    captures = CapturesController(
        leader, config, partial(prove, images), instance=arguments.identity, informers=informers
    )
    caches = CachesController(
        leader,
        images,
        instance=arguments.identity,
        namespace=own_namespace(),
        schedule=RecheckSchedule.of(config.verification),
        informers=informers,
        further=captures.conditions,
        delivery=config.delivery,
    )
    domains = DomainsController(
        leader, config, instance=arguments.identity, informers=informers, namespace=own_namespace()
    )
    fabric = FabricController(leader, config.fabric, config.topology, informers=informers)
    report = InstallationReport(
        leader, instance=arguments.identity, namespace=own_namespace(), delivery=config.delivery
    )
    groups = TaskGroupsController(
        leader, config, instance=arguments.identity, informers=informers, namespace=own_namespace()
    )
    kernel_caches = KServeController(leader, config.kserve, informers=informers)
    captures.refresh = caches.refresh
    # First the topology: from its start on it knows that requests of an earlier leader may arrive.
    leading: tuple[Controller, ...] = (
        topology,
        caches,
        captures,
        plans,
        gates,
        domains,
        groups,
        kernel_caches,
        fabric,
        report,
    )
    copies = CaCopies(api, arguments.webhook_configuration or (), namespace=own_namespace())
    health = health_server(arguments.health, lambda: caches.synced)
    metrics.READY.labels(PROGRAM).set_function(lambda: caches.synced)
    msgspec_warmup.warm_up()
    # Before the first request to the API server: while that is away, a restart by kubelet would not help.
    health.start()
    copies.work()
    try:
        lease, enabled = (own_namespace(), arguments.lease), config.network.auto_mnnvl_enabled
        there = installation.wait(api, lease, stop, mnnvl_enabled=enabled, also=[groups.check])
        # Every replica watches caches, so that a new leader has their state already; only the leader writes.
        if there and caches.watch(stop) and elector.acquire(stop):
            # Only now: a replica that does not lead knows no queue, and 0 would say that nothing waits.
            metrics.record_depths(leading)
            for controller in leading:
                controller.work()
            _lead(elector, stop)
    finally:
        # kubelet kills after 20 s. The lease comes after the last write: where it is released, the next leader writes
        # HyperNodes at once.
        if stop_all((*leading, copies)):
            elector.release()
        close_watches((*leading, copies))
        health.close()
    return 0


def _lead(elector: Elector, stop: Event) -> None:
    """Return at `stop`.

    Raises:
        LeadershipEnded: another replica may lead now. The process must end at once: it cannot revoke requests it has
            sent.
    """
    while not stop.wait(POLL_SECONDS):
        if not elector.is_leader:
            raise LeadershipEnded("the lease was not renewed in time; another replica takes over")
