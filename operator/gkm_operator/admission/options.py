"""What `gkm-operator admission` takes; light, so that the other command may name it without loading it."""

import argparse

from gkm_operator import flags

SERVICE_NAMES = "gkm-admission.gkm-system.svc,gkm-admission.gkm-system.svc.cluster.local"
MAX_BUDGET_SECONDS = 8.0
"""Our webhooks have timeoutSeconds 10: an answer must be under way before."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add what this command takes."""
    flags.add(parser, "--listen", default=":9443", type=flags.address, help="host:port of the webhook")
    flags.add(
        parser, "--health", default=":8081", type=flags.address, help="host:port of /healthz, /readyz and /metrics"
    )
    flags.add(parser, "--tls-cert", help="PEM file of the certificate; read again when it changes")
    flags.add(parser, "--tls-key", help="PEM file of its key")
    flags.add(parser, "--self-signed", metavar="DIR", help="make CA and certificate in DIR and renew them")
    flags.add(parser, "--tls-names", default=SERVICE_NAMES, help="names and addresses in that certificate, by comma")
    flags.add(
        parser,
        "--webhook-configuration",
        metavar="NAME",
        help="keep its CA in this ValidatingWebhookConfiguration",
    )
    flags.add(parser, "--budget", default="3", type=_budget, help="seconds for one image")


def problem(arguments: argparse.Namespace) -> str:
    """Return what is wrong with the flags together, nothing when nothing is."""
    if bool(arguments.tls_cert) != bool(arguments.tls_key):
        return "--tls-cert and --tls-key go together"
    if bool(arguments.tls_cert) == bool(arguments.self_signed):
        return "name a certificate by --tls-cert and --tls-key, or have one made by --self-signed DIR"
    if arguments.webhook_configuration and not arguments.self_signed:
        return "--webhook-configuration needs --self-signed: cert-manager tells the API server of its own CA"
    if arguments.self_signed and not arguments.webhook_configuration:
        return "--self-signed needs --webhook-configuration: nobody else tells the API server of a CA that is renewed"
    return ""


def _budget(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= MAX_BUDGET_SECONDS:
        raise argparse.ArgumentTypeError(f"between 0 and {MAX_BUDGET_SECONDS:g} seconds")
    return seconds
