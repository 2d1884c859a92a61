"""`gkm-operator admission`: serves the webhook until it is told to end."""

import argparse
import logging
from pathlib import Path
from threading import Event

from gkm.api.config import Config
from gkm.hoststate.logs import fields
from gkm.images.registries.transport import Limits

from gkm_operator.admission.certificates import issue
from gkm_operator.admission.judge import Judge
from gkm_operator.admission.server import AdmissionServer
from gkm_operator.images import RegistryImages

_LOG = logging.getLogger(__name__)


def run(arguments: argparse.Namespace, config: Config, stop: Event) -> int:
    """Serve until `stop`; return the exit code."""
    certificate, key = Path(arguments.tls_cert), Path(arguments.tls_key)
    ca_bundle = b""
    if arguments.self_signed:
        issued = issue(Path(arguments.self_signed), [name for name in arguments.tls_names.split(",") if name])
        certificate, key, ca_bundle = issued.certificate, issued.key, issued.ca_bundle
    # A thread that nobody waits for any more must not hang on for the half minute that a pull may take.
    limits = Limits(connect=arguments.budget, stall=arguments.budget, request=2 * arguments.budget)
    judge = Judge(RegistryImages.of(config, limits), config.verification.mode, seconds=arguments.budget)
    server = AdmissionServer(judge, arguments.listen, certificate, key)
    server.start()
    serving = fields(port=server.port, mode=config.verification.mode)
    try:
        if arguments.webhook_configuration:
            # Only here: who uses cert-manager's certificates needs no API access, nor the memory of its client.
            from gkm.kube.client import connect  # noqa: PLC0415

            from gkm_operator.admission import trust  # noqa: PLC0415

            api = connect(arguments.kubeconfig, arguments.context)
            trust.trust(api, arguments.webhook_configuration, ca_bundle)
            _LOG.info("serving", extra=serving)
            trust.keep(api, arguments.webhook_configuration, ca_bundle, stop)
        else:
            _LOG.info("serving", extra=serving)
            stop.wait()
    finally:
        server.close()
    return 0
