"""`gkm-operator admission`: serves the webhook until it is told to end."""

import argparse
import logging
from pathlib import Path
from threading import Event

from gkm.api.config import Config
from gkm.hoststate.logs import fields
from gkm.images.registries.transport import Limits

from gkm_operator import metrics
from gkm_operator.admission.certificates.rotation import SHIPPED, Rotation, RotationTimes
from gkm_operator.admission.https.server import AdmissionServer
from gkm_operator.admission.validator import ImageValidator
from gkm_operator.admission.verdict_cache import VerdictCache
from gkm_operator.health import HealthServer
from gkm_operator.images import CheckedImages

_LOG = logging.getLogger(__name__)


class CertificateUnusable(RuntimeError):
    """The files that were named cannot be read, or are no pair."""


def run(arguments: argparse.Namespace, config: Config, stop: Event, terms: RotationTimes = SHIPPED) -> int:
    """Serve until `stop`; return the exit code.

    Raises:
        OSError: an address is taken, or a certificate of our own cannot be written.
        CertificateUnusable: one of somebody else cannot be used.
        NotConfigured: nothing says where the API is, and our CA is to be put there.
    """
    # A thread that nobody waits for any more must not hang on for the half minute that a pull may take.
    patience = 2 * arguments.budget
    limits = Limits(connect=arguments.budget, stall=arguments.budget, request=patience)
    images = CheckedImages.of(config, limits, seconds=patience)
    remembered = VerdictCache(images, images.verifier.stamp)
    judge = ImageValidator(remembered, config.verification.mode, config.registries, seconds=arguments.budget)
    if arguments.self_signed:
        names = [name for name in arguments.tls_names.split(",") if name]
        rotation = Rotation(Path(arguments.self_signed), names, terms)
        server = AdmissionServer(judge, arguments.listen, rotation.files.certificate, rotation.files.key)
    else:
        rotation = None
        server = _with_files(judge, arguments.listen, Path(arguments.tls_cert), Path(arguments.tls_key))
    health = HealthServer(arguments.health, server.ready.is_set, lambda: server.alive)

    def ready() -> None:
        server.ready.set()
        _LOG.info("serving", extra=fields(port=server.port, mode=config.verification.mode))

    server.start()
    try:
        health.start()
        if rotation is None:
            ready()
            stop.wait()
        else:
            # Only here: who uses cert-manager's certificates needs no API access, nor the memory of its client.
            from gkm.kube.client import connect  # noqa: PLC0415

            api = connect(arguments.kubeconfig, arguments.context, metrics.api_answered)
            # Until its CA is trusted the API server would refuse what this process answers: it is not ready before.
            rotation.run(api, arguments.webhook_configuration, stop, ready)
    finally:
        server.close()
        health.close()
    return 0


def _with_files(judge: ImageValidator, address: tuple[str, int], certificate: Path, key: Path) -> AdmissionServer:
    try:
        return AdmissionServer(judge, address, certificate, key)
    except OSError as error:  # neither names a file
        why = error.strerror or str(error)
        raise CertificateUnusable(f"the certificate {certificate} with {key} cannot be used: {why}") from error
