"""The program `gkm-operator`: `admission`, `controllers` and `provider`, one process each, and `uninstall-check`.

`gkm-operator --check-config --config FILE` checks a configuration and ends.
"""

import argparse
import logging
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from gkm.api import config as config_file
from gkm.api.config import Config, ConfigInvalid
from gkm.api.features import Feature
from gkm.hoststate import logs
from gkm.hoststate.command_line import Parser, print_line
from gkm.probes import addresses

if TYPE_CHECKING:
    from gkm_operator.webhooks import WebhookConfiguration

_LOG = logging.getLogger(__name__)

EXIT_FAILURE, EXIT_USAGE, EXIT_IN_USE = 1, 2, 3
"""Exit codes: 1 for an error outside of the process, 2 for a wrong command line or configuration, 3 for GKM in use."""

SERVICE_NAMES = "gkm-admission.gkm-system.svc,gkm-admission.gkm-system.svc.cluster.local"
MAX_BUDGET_SECONDS = 8.0
"""Limit in seconds of the flag for image checks: the webhooks have timeoutSeconds 10."""

Run = Callable[[argparse.Namespace, Config, Event], int]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line of gkm-operator; return the exit code."""
    parser = _parser()
    arguments = parser.parse_args(_with_command(sys.argv[1:] if argv is None else argv))
    if arguments.check_config:
        return _check(arguments.config)
    logs.configure(arguments.log_level)
    try:
        config = config_file.load(arguments.config)
    except ConfigInvalid as error:
        print_line(f"gkm-operator: {error}", error=True)
        return EXIT_USAGE
    if arguments.command == "admission" and (problem := _admission_problem(arguments)):
        parser.error(problem)
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        return _command(arguments.command)(arguments, config, stop)
    except ModuleNotFoundError:
        raise  # gkm_operator.__main__ prints what to install
    except Exception as error:  # noqa: BLE001 -- every error ends the process
        # The last line must tell a person what to do; the traceback is for a bug report.
        _LOG.debug("process failed", exc_info=True)
        _LOG.critical(
            "process failed", extra=logs.fields(command=arguments.command, error=type(error).__name__, why=str(error))
        )
        return EXIT_FAILURE


def _check(path: Path | None) -> int:
    """Print the problems of a configuration; return the exit code."""
    from gkm_operator import config_check  # noqa: PLC0415 -- serving processes do not need it

    try:
        report = config_check.check(path)
    except ConfigInvalid as error:
        print_line(f"gkm-operator: {error}", error=True)
        return EXIT_USAGE
    for problem in report.problems:
        print_line(f"gkm-operator: {problem}", error=True)
    if report.problems:
        return EXIT_USAGE
    for absent in report.absent:
        print_line(f"gkm-operator: not checked, because it is not on this machine: {absent}", error=True)
    print_line("gkm-operator: the configuration is good")
    return 0


def _uninstall_check(arguments: argparse.Namespace, _: Config, __: Event) -> int:
    """Print the pods that use volumes of GKM or wait behind its gate; return 0 if there are none, else EXIT_IN_USE.

    The chart runs it before it removes anything. `gkm uninstall --check` is the same for a person.
    """
    from gkm.kube.client import connect  # noqa: PLC0415 -- as in _command
    from gkm.kube.volume_users import explanation, gated_pods, pods_with_volumes  # noqa: PLC0415

    api = connect(arguments.kubeconfig, arguments.context)
    users, gated = sorted(pods_with_volumes(api)), sorted(gated_pods(api))
    found = bool(users or gated)
    otherwise = f", or keep GKM: {arguments.otherwise}" if found and arguments.otherwise else ""
    print_line(f"gkm-operator: {explanation(users, gated)}{otherwise}", error=found)
    return EXIT_IN_USE if found else 0


def _command(name: str) -> Run:
    """Return the function that runs a command; import only that command's modules."""
    if name == "admission":
        from gkm_operator.admission.command import run as admission  # noqa: PLC0415

        return admission
    if name == "uninstall-check":
        return _uninstall_check
    if name == "provider":
        from gkm_operator.hypernodes.providers.command import run as provider  # noqa: PLC0415

        return provider
    from gkm_operator.controllers import run as controllers  # noqa: PLC0415

    return controllers


def _with_command(words: Sequence[str]) -> Sequence[str]:
    """Return a command line with a command: `--check-config` alone checks the configuration of both."""
    alone = "--check-config" in words and words[0].startswith("-")
    return ["controllers", *words] if alone else words


def _parser() -> Parser:
    parser = Parser(prog="gkm-operator", description=__doc__)
    parser.add_version()
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text, add_flags in (
        ("admission", "serve the validating webhook", add_admission_flags),
        ("controllers", "reconcile caches and runs", _add_controllers_flags),
        ("provider", "run one topology provider", _add_provider_flags),
        ("uninstall-check", "exit with 3 while pods use volumes of GKM", _add_uninstall_flags),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.add_flag(
            "--config", "configuration file; without it, every unsigned image is refused", metavar="FILE", type=Path
        )
        command.add_argument("--check-config", action="store_true", help="check the configuration and end")
        command.add_log_level()
        command.add_argument("--kubeconfig", help="default: $KUBECONFIG, the pod's service account, ~/.kube/config")
        command.add_argument("--context", help="context in the kubeconfig")
        add_flags(command)
    return parser


def add_admission_flags(parser: Parser) -> None:
    """Add the flags of `gkm-operator admission`."""
    parser.add_flag("--listen", "host:port of the webhook", default=":9443", type=addresses.parse)
    parser.add_flag("--health", "host:port of /healthz, /readyz and /metrics", default=":8081", type=addresses.parse)
    parser.add_flag("--tls-cert", "PEM file of the certificate; read again when it changes")
    parser.add_flag("--tls-key", "PEM file of its key")
    parser.add_flag("--self-signed", "issue and renew a CA and a certificate in DIR", metavar="DIR")
    parser.add_flag(
        "--tls-names", "names and addresses in that certificate, separated by commas", default=SERVICE_NAMES
    )
    _add_webhook_configuration(parser, "webhook configuration that must trust the CA before this process serves")
    for name, feature, text in (
        ("--domains", Feature.DOMAINS, "review workloads for ComputeDomains"),
        ("--task-groups", Feature.TASK_GROUPS, "review group templates, pools, task groups and their pods"),
        ("--pod-caches", Feature.POD_CACHES, "add caches to the pods that name them by labels"),
        ("--pod-gates", Feature.POD_GATES, "pods of runs wait for the plan behind a scheduling gate"),
    ):
        parser.add_flag(name, f"on: {text} (features.{feature} of the chart)", default="off", type=_switch)
    parser.add_flag("--budget", "seconds for one image", default="3", type=_budget)


def _admission_problem(arguments: argparse.Namespace) -> str:
    """Return the conflict among the flags, "" if they do not conflict."""
    if bool(arguments.tls_cert) != bool(arguments.tls_key):
        return "--tls-cert and --tls-key go together"
    if bool(arguments.tls_cert) == bool(arguments.self_signed):
        return "use either --tls-cert and --tls-key, or --self-signed DIR"
    if arguments.webhook_configuration and not arguments.self_signed:
        return "--webhook-configuration needs --self-signed: cert-manager publishes its own CA"
    if arguments.self_signed and not arguments.webhook_configuration:
        return "--self-signed needs --webhook-configuration: the API server must learn of every renewed CA"
    return ""


class _Extend(argparse.Action):
    """Collects a repeated flag in a list; the variable in the environment is used only without the flag."""

    def __call__(
        self,
        _parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,  # noqa: ANN401 -- argparse's
        _option: str | None = None,
    ) -> None:
        """Add a value."""
        found = getattr(namespace, self.dest)
        setattr(namespace, self.dest, (found if isinstance(found, tuple) else ()) + values)


def _webhook_configurations(text: str) -> "tuple[WebhookConfiguration, ...]":
    from gkm_operator.webhooks import WebhookConfiguration  # noqa: PLC0415 -- as in _command

    try:
        return tuple(WebhookConfiguration.parse(each) for each in text.split(","))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _add_webhook_configuration(parser: Parser, text: str) -> None:
    parser.add_flag(
        "--webhook-configuration",
        f"{text}: NAME, validating/NAME or mutating/NAME; may be repeated",
        metavar="NAME",
        action=_Extend,
        type=_webhook_configurations,
    )


def _switch(text: str) -> bool:
    if text not in {"on", "off"}:
        raise argparse.ArgumentTypeError("write on or off")
    return text == "on"


def _budget(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds <= MAX_BUDGET_SECONDS:
        raise argparse.ArgumentTypeError(f"write a number between 0 and {MAX_BUDGET_SECONDS:g} seconds")
    return seconds


def _add_uninstall_flags(parser: Parser) -> None:
    parser.add_flag("--otherwise", "command that keeps GKM after a refusal, for the message", metavar="COMMAND")


def _add_provider_flags(parser: Parser) -> None:
    parser.add_argument("--name", required=True, help="name of the provider in topology.providers")
    parser.add_flag(
        "--class",
        "class of the provider, or name of a built-in one; without it, the built-in one of the name",
        dest="reference",
        metavar="MODULE:CLASS",
    )
    parser.add_flag("--path", "directory with the modules of the provider, after the modules of the image", default="")
    parser.add_flag("--credentials", "directory with the mounted Secret of the provider", metavar="DIR", type=Path)
    parser.add_flag("--max-memory-bytes", "memory that this process may use; 0: any", default="0", type=_bytes)
    parser.add_flag("--health", "host:port of /healthz, /readyz and /metrics", default=":8081", type=addresses.parse)


def _bytes(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError("write a number of bytes")
    return int(text)


def _add_controllers_flags(parser: Parser) -> None:
    parser.add_flag("--health", "host:port of /healthz and /readyz", default=":8081", type=addresses.parse)
    parser.add_flag("--lease", "Lease of the leader, in GKM's namespace", default="gkm-controllers")
    parser.add_flag(
        "--identity",
        "name of this replica; replicas that run at once need different ones, such as their pods' names",
        default=socket.gethostname(),
    )
    _add_webhook_configuration(parser, "webhook configuration that gets the CAs of admission")


if __name__ == "__main__":
    sys.exit(main())
