"""The flags of `gkm-operator admission`, apart from its code: the other command names them without loading it."""

import argparse

from gkm.hoststate.command_line import Parser
from gkm.probes import addresses

SERVICE_NAMES = "gkm-admission.gkm-system.svc,gkm-admission.gkm-system.svc.cluster.local"
MAX_BUDGET_SECONDS = 8.0
"""Our webhooks have timeoutSeconds 10: the response must leave before that."""


def add_flags(parser: Parser) -> None:
    """Add the flags of this command."""
    parser.add_flag("--listen", "host:port of the webhook", default=":9443", type=addresses.parse)
    parser.add_flag("--health", "host:port of /healthz, /readyz and /metrics", default=":8081", type=addresses.parse)
    parser.add_flag("--tls-cert", "PEM file of the certificate; read again when it changes")
    parser.add_flag("--tls-key", "PEM file of its key")
    parser.add_flag("--self-signed", "issue and renew a CA and a certificate in DIR", metavar="DIR")
    parser.add_flag(
        "--tls-names", "names and addresses in that certificate, separated by commas", default=SERVICE_NAMES
    )
    parser.add_flag("--webhook-configuration", "ValidatingWebhookConfiguration that receives the CA", metavar="NAME")
    parser.add_flag("--budget", "seconds for one image", default="3", type=_budget)


def problem(arguments: argparse.Namespace) -> str:
    """Return the conflict among the flags, or "" without one."""
    if bool(arguments.tls_cert) != bool(arguments.tls_key):
        return "--tls-cert and --tls-key go together"
    if bool(arguments.tls_cert) == bool(arguments.self_signed):
        return "use either --tls-cert and --tls-key, or --self-signed DIR"
    if arguments.webhook_configuration and not arguments.self_signed:
        return "--webhook-configuration needs --self-signed: cert-manager publishes its own CA"
    if arguments.self_signed and not arguments.webhook_configuration:
        return "--self-signed needs --webhook-configuration: the API server must learn of every renewed CA"
    return ""


def _budget(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= MAX_BUDGET_SECONDS:
        raise argparse.ArgumentTypeError(f"between 0 and {MAX_BUDGET_SECONDS:g} seconds")
    return seconds
