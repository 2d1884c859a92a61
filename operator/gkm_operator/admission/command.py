"""The command `gkm-operator admission`: serves the webhook until a signal stops it."""

import argparse
import logging
from functools import partial
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from gkm.api import msgspec_warmup
from gkm.api.config import Config
from gkm.hoststate.logs import fields
from gkm.images.registries.transport import TransportLimits
from gkm.kube.secrets import own_namespace

from gkm_operator import metrics
from gkm_operator.admission import certificates
from gkm_operator.admission.certificates import SHIPPED, Rotation, RotationTimes
from gkm_operator.admission.https.server import AdmissionServer, Reviewer
from gkm_operator.admission.validator import ImageValidator, VerdictCache, review_cache
from gkm_operator.health import health_server
from gkm_operator.images import CheckedImages

if TYPE_CHECKING:
    from gkm.kube.api import Api

    from gkm_operator.admission.workloads import WorkloadReviews

PROGRAM = "gkm-operator-admission"
_LOG = logging.getLogger(__name__)


class CertificateUnusable(RuntimeError):
    """The webhook's certificate files cannot be read, or certificate and key do not belong together."""


def run(arguments: argparse.Namespace, config: Config, stop: Event, times: RotationTimes = SHIPPED) -> int:
    """Serve the admission webhook until `stop`; return the exit code.

    Raises:
        OSError: an address is in use, or our own certificate cannot be written.
        CertificateUnusable: the certificate files cannot be used.
        NotConfigured: no API server is configured that could receive our CA, or show workloads.
    """
    metrics.record_build(PROGRAM)
    # A thread whose caller has given up must not go on for the half minute that a pull may take.
    request_seconds = 2 * arguments.budget
    limits = TransportLimits(connect=arguments.budget, stall=arguments.budget, request=request_seconds)
    images = CheckedImages.of(config, limits, seconds=request_seconds)
    verdicts = VerdictCache(images, images.verifier.stamp)
    validator = ImageValidator(verdicts, config.verification.mode, config.registries, seconds=arguments.budget)
    renew_until_stop = None
    if arguments.self_signed:
        directory = Path(arguments.self_signed)
        names = [name for name in arguments.tls_names.split(",") if name]
        rotation = Rotation(directory, names, times, namespace=own_namespace())
        renew_until_stop = partial(rotation.run, _connect(arguments), arguments.webhook_configuration, stop)
        certificate, key = directory / certificates.CERTIFICATE, directory / certificates.KEY
    else:
        certificate, key = Path(arguments.tls_cert), Path(arguments.tls_key)
    try:
        workloads = _workloads(arguments, config)
        reviewers: dict[str, Reviewer] = {"/validate": partial(review_cache, validator.review)}
        served = reviewers | (workloads.reviewers if workloads else {})
        server = AdmissionServer(served, arguments.listen, certificate, key)
    except OSError as error:  # its text names no file
        reason = error.strerror or str(error)
        raise CertificateUnusable(f"the certificate {certificate} with {key} cannot be used: {reason}") from error
    health = health_server(arguments.health, server.ready.is_set, lambda: server.alive)
    metrics.READY.labels(PROGRAM).set_function(server.ready.is_set)

    def ready() -> None:
        server.ready.set()
        _LOG.info("admission webhook serving", extra=fields(port=server.port, mode=config.verification.mode))

    msgspec_warmup.warm_up()  # all modules are imported now, and no thread runs yet
    server.start()
    try:
        health.start()
        # It is ready without these: caches need no view, and the reviewers of workloads wait for them themselves.
        if workloads is not None:
            workloads.start()
        if renew_until_stop is None:
            ready()
            stop.wait()
        else:
            # Until the API server trusts the CA it rejects this process's responses, so the process is not ready
            # before.
            renew_until_stop(ready)
    finally:
        server.close()
        if workloads is not None:
            workloads.close()
        health.close()
    return 0


def _connect(arguments: argparse.Namespace) -> "Api":
    # With cert-manager's certificates the process needs no API access, and saves the client's memory.
    from gkm.kube.client import connect  # noqa: PLC0415

    return connect(arguments.kubeconfig, arguments.context, metrics.api_answered)


def _workloads(arguments: argparse.Namespace, config: Config) -> "WorkloadReviews | None":
    if not (arguments.domains or arguments.task_groups or arguments.pod_caches or arguments.pod_gates):
        return None
    from gkm_operator.admission.workloads import WorkloadReviews  # noqa: PLC0415 -- as in _connect

    return WorkloadReviews(arguments, config)
