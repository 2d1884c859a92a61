"""The configuration: it is usable, its keys are readable, and its features have their rights. Pure."""

from collections.abc import Iterator

from gkm.api.config import Config, ConfigInvalid
from gkm.api.errors import GKMError
from gkm.api.features import INSTALL, install
from gkm.api.installation import ADMISSION, AGENT, CONFIG_MAP, CONTROLLERS, MOUNT, NAMESPACE
from gkm.api.policies import is_pem
from gkm.images.signatures import keys

from gkm_cli.doctor.findings import CORRECT_CONFIGURATION, Finding, Severity, command, named, text_at
from gkm_cli.doctor.installation import subjects
from gkm_cli.doctor.installation.observation import check, needed
from gkm_cli.doctor.installation.observed import InstallationFacts, problem

_OBJECT = named("ConfigMap", NAMESPACE, CONFIG_MAP)


@check("config/invalid", "the configuration can be used", "config_map")
def invalid(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield why the configuration cannot be used."""
    if isinstance(observed.config, ConfigInvalid):
        hint = INSTALL if observed.config_map is None else CORRECT_CONFIGURATION
        why = "every process of GKM reads it at its start, and ends"
        yield Finding(Severity.PROBLEM, _OBJECT, str(observed.config), why, hint)


@check("config/trust", "the configuration has a policy", "config_map caches", subjects.ENFORCED)
def trust(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield a problem if no image can satisfy the configuration: verification is enforced without a policy."""
    config = observed.config
    if isinstance(config, Config) and config.verification.mode == "enforce" and not config.verification.policies:
        # As long as there are no caches, it is what a new installation has.
        severity = Severity.PROBLEM if observed.caches else Severity.WARNING
        why = "verification.mode is enforce, and no policy names a key or an identity"
        hint = "add a policy to verification.policies (docs/reference/configuration.md), or sign and try with mode warn"
        yield Finding(severity, _OBJECT, "no image is trusted: every cache is refused", why, hint)


@check("config/keys", "every key of a policy can be used", "config_map", subjects.KEYS)
def keys_readable(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the keys of policies that cannot be used. Files outside of the ConfigMap are not known."""
    config = observed.config
    policies = config.verification.policies if isinstance(config, Config) else []
    for number, policy in enumerate(policies):
        for index, key in enumerate(policy.keys):
            at = f"verification.policies[{number}].keys[{index}]"
            pem = key if is_pem(key) else text_at(observed.config_map, "data", key.removeprefix(MOUNT))
            if not subjects.is_known(key):
                continue
            why = "no signature can be compared with it, so the images of this policy are refused"
            try:
                if not pem:
                    hint = "add the file to the ConfigMap: configFiles of the chart"
                    yield Finding(Severity.PROBLEM, _OBJECT, f"{at} names {key}, which is not there", why, hint)
                else:
                    # A text that is no PEM would be taken for the path of a file on this machine.
                    keys.load(pem if is_pem(pem) else f"-----BEGIN\n{pem}")
            except GKMError as error:
                yield Finding(Severity.PROBLEM, _OBJECT, f"{at}: {error.message}", why, error.hint)


@check("config/rights", "every feature that is on has its rights", "config_map bindings", subjects.FEATURES)
def rights(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the features that are switched on, and whose rights are not installed."""
    for switch, feature in needed(observed.config):
        if observed.bindings.get(feature.binding) is None:
            yield Finding(
                Severity.PROBLEM,
                _OBJECT,
                f"{switch} is on, and the ClusterRoleBinding {feature.binding} does not exist",
                "the controllers lack the rights of this feature, and end at their start or report it",
                f"{install(feature)}; or switch it off",
            )


@check("rights/bindings", "every process has its rights", "bindings driver config_map")
def account_bindings(observed: InstallationFacts) -> Iterator[Finding]:
    """Yield the processes of GKM whose rights are not bound by a ClusterRoleBinding."""
    for name in (CONTROLLERS, ADMISSION, AGENT):
        found = observed.bindings.get(name)
        role = text_at(found, "roleRef", "name")
        if role == name or (name == AGENT and not observed.needs_nodes):
            continue
        detail, hint = "it does not exist", INSTALL
        if found is not None:
            detail = f"it binds the ClusterRole {role}"
            delete = command("kubectl", "delete", "clusterrolebinding", name)
            hint = f"{delete}, then {INSTALL}: its roleRef cannot be changed"
        why = f"the API server denies the requests of {name}"
        yield problem("ClusterRoleBinding", name, detail, why, hint)
