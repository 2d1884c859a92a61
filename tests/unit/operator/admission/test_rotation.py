"""Renewing our certificates: each step against an API in memory, with clocks that are set by hand."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event, Thread

import pytest
from cryptography import x509
from gkm.api.installation import ADMISSION_CA
from gkm.kube.errors import ApiError
from gkm.kube.resources import CONFIGMAPS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from gkm.kube.secrets import DEFAULT_NAMESPACE
from gkm_operator.admission.certificates import CERTIFICATE, NotTrusted, Rotation, RotationTimes, make
from gkm_operator.webhooks import CaCopies, WebhookConfiguration
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.host.waiting import scaled, until
from support.kube.fake_api import FakeApi
from support.operator.webhook_configurations import NAME, NOW, a_configuration, an_api, copy, published, trusted, writes

DAY = timedelta(days=1)


@dataclass
class Site:
    """A rotation whose clocks are set by hand."""

    directory: Path
    api: FakeApi = field(default_factory=an_api)
    now: datetime = NOW
    elapsed: float = 0.0
    times: RotationTimes = field(default_factory=RotationTimes)

    def __post_init__(self) -> None:
        self.rotation = Rotation(self.directory, ["x"], self.times, now=lambda: self.now, elapsed=lambda: self.elapsed)

    def look(self, later: timedelta = timedelta(0), *, seconds: float = 0.0) -> None:
        """Check, and let the controllers copy what was published."""
        self.now += later
        self.elapsed += seconds
        self.check(WebhookConfiguration(NAME))
        copy(self.api)

    def check(self, *configurations: WebhookConfiguration) -> bool:
        """Check; return whether the serving CA is trusted."""
        try:
            self.rotation.check(self.api, configurations)
        except NotTrusted:
            return False
        return True

    @property
    def served(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate((self.directory / CERTIFICATE).read_bytes())

    def accepted(self) -> bool:
        """Whether a client with our clock, which trusts the CAs that the API server has, accepts the serving
        certificate.
        """
        good = self.served.not_valid_before_utc <= self.now < self.served.not_valid_after_utc
        return good and any(_issued(self.served, authority) for authority in trusted(self.api))


def _issued(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    said = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
    return said == authority.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_a_new_ca_is_trusted_first_and_served_by_when_it_has_settled(site: Site) -> None:
    site.look()
    first, before = site.served, trusted(site.api)
    site.look(60 * DAY)
    assert (site.served, len(trusted(site.api))) == (first, 2)
    site.look(seconds=1)
    site.look(seconds=299)
    assert site.served == first
    site.look(seconds=1)
    assert site.served != first
    assert site.accepted()
    assert before[0] in trusted(site.api)
    site.look(59 * DAY)
    assert writes(site.api) == 2


def test_of_cas_that_have_expired_none_stays_over_the_years(site: Site) -> None:
    for _ in range(40):
        site.look(30 * DAY, seconds=300)
        site.look()
        site.look(seconds=300)
        site.look()
        assert site.accepted()
    assert len(trusted(site.api)) <= 3


def test_a_lost_ca_is_written_again_before_its_certificate_serves(site: Site) -> None:
    site.look()
    first = site.served
    site.look(60 * DAY)
    site.look()
    site.api.delete(VALIDATING_WEBHOOKS, NAME)
    site.api.create(VALIDATING_WEBHOOKS, a_configuration("", ""))
    site.look(seconds=1000)
    assert (site.served, len(trusted(site.api))) == (first, 2)
    site.look(seconds=60)
    assert site.served != first
    assert site.accepted()


def test_during_an_api_outage_the_old_pair_serves_and_one_new_pair_is_issued(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.look()
    first = site.served
    made = [0]

    def counted(*arguments: object) -> object:
        made[0] += 1
        return make(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("gkm_operator.admission.certificates.make", counted)
    site.api.fault = lambda _verb, _plural: ApiError(0, "Unreachable", "away")
    site.now += 60 * DAY
    for _ in range(20):
        with pytest.raises(ApiError, match="away"):
            site.look(DAY, seconds=86400)
    assert (site.served, made) == (first, [1])
    site.api.fault = lambda _verb, _plural: None
    site.look()
    assert site.served == first
    site.look()
    site.look(seconds=300)
    assert site.served != first
    assert site.accepted()


def test_an_expired_certificate_is_replaced_by_the_first_check_after_an_api_outage(site: Site) -> None:
    site.look()
    site.api.fault = lambda _verb, _plural: ApiError(0, "Unreachable", "away")
    with pytest.raises(ApiError, match="away"):
        site.look(91 * DAY)
    site.api.fault = lambda _verb, _plural: None
    site.look()
    assert site.accepted()


def test_a_disk_that_is_full_leaves_the_old_pair_and_is_tried_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.look()
    first = site.served
    site.look(60 * DAY)
    site.look()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("gkm_operator.admission.certificates._replace", full)
        with pytest.raises(OSError, match="No space"):
            site.look(seconds=300)
    assert site.served == first
    site.look()
    assert site.served != first
    assert site.accepted()


def test_a_missing_configuration_does_not_keep_the_ca_from_the_others(site: Site) -> None:
    missing = WebhookConfiguration("missing", MUTATING_WEBHOOKS)
    with pytest.raises(ApiError, match="missing"):
        site.check(missing, WebhookConfiguration(NAME))
    with pytest.raises(ApiError, match="missing"):
        copy(site.api, missing, WebhookConfiguration(NAME))
    assert len(trusted(site.api)) == 1


def test_a_new_pair_does_not_serve_before_all_configurations_have_its_ca(site: Site) -> None:
    other = WebhookConfiguration(NAME, MUTATING_WEBHOOKS)
    both = [WebhookConfiguration(NAME), other]
    site.api.create(MUTATING_WEBHOOKS, a_configuration("") | {"kind": MUTATING_WEBHOOKS.kind})
    site.check(*both)
    copy(site.api, *both)
    first = site.served
    site.now += 60 * DAY
    site.check(*both)
    copy(site.api, *both)
    assert site.check(*both)
    site.elapsed += 300
    # Applied anew, as by a person who knows no CA.
    site.api.delete(MUTATING_WEBHOOKS, NAME)
    site.api.create(MUTATING_WEBHOOKS, a_configuration("") | {"kind": MUTATING_WEBHOOKS.kind})
    assert not site.check(*both)
    assert site.served == first
    copy(site.api, *both)
    assert site.check(*both)
    assert site.served != first


def test_a_pair_whose_ca_nobody_copies_is_not_trusted_and_the_error_names_who_copies_it(site: Site) -> None:
    for _ in range(2):
        with pytest.raises(
            NotTrusted, match=f"{NAME} has no CA .* kubectl logs -n gkm-system deployment/gkm-controllers"
        ):
            site.rotation.check(site.api, [WebhookConfiguration(NAME)])
    assert len(published(site.api)) == 1
    copy(site.api)
    assert site.rotation.check(site.api, [WebhookConfiguration(NAME)])


def test_a_check_that_finds_its_ca_lost_is_followed_by_another_one_soon(site: Site) -> None:
    site.look()
    assert site.rotation.check(site.api, [WebhookConfiguration(NAME)])
    site.api.delete(CONFIGMAPS, ADMISSION_CA, DEFAULT_NAMESPACE)
    assert not site.rotation.check(site.api, [WebhookConfiguration(NAME)])
    assert site.rotation.check(site.api, [WebhookConfiguration(NAME)])


JUMPS = st.lists(st.integers(-40000, 40000).map(lambda days: days * DAY / 10), max_size=12)


@settings(max_examples=examples(30))  # each makes a dozen keys
@given(jumps=JUMPS)
def test_after_a_clock_jump_the_next_check_serves_a_valid_pair_and_issues_one_at_most(
    tmp_path_factory: pytest.TempPathFactory, jumps: list[timedelta]
) -> None:
    site = Site(tmp_path_factory.mktemp("jumps"))
    site.look()
    for jump in jumps:
        before = set(trusted(site.api))
        site.look(jump, seconds=60)
        assert site.accepted()
        assert len(set(trusted(site.api)) - before) <= 1


def test_an_early_clock_of_one_replica_removes_other_cas_for_one_check_only(tmp_path: Path) -> None:
    right = Site(tmp_path / "right")
    wrong = Site(tmp_path / "wrong", api=right.api)
    right.look()
    wrong.look(3650 * DAY)
    assert not right.accepted()
    right.look()
    assert right.accepted()
    wrote = writes(right.api)
    for _ in range(10):
        wrong.look(seconds=60)
        right.look(seconds=60)
    assert right.accepted()
    assert writes(right.api) == wrote


def test_checks_go_on_whatever_the_api_server_answers(tmp_path: Path) -> None:
    api, stop, told = FakeApi(), Event(), list[str]()
    rotation = Rotation(tmp_path, ["x"], RotationTimes(check_seconds=0.01, copy_seconds=0.01, retry_seconds=0.01))
    configurations = [WebhookConfiguration(NAME)]
    keeper = Thread(target=rotation.run, args=(api, configurations, stop, lambda: told.append("trusted")))
    copies = CaCopies(api, configurations, namespace=DEFAULT_NAMESPACE, poll_seconds=0.01, repair_seconds=0.01)

    def looks_on(what: str) -> None:
        looks = len(api.calls)
        until(lambda: len(api.calls) > looks + 2, what)

    keeper.start()
    copies.work()
    try:
        looks_on("there is none yet")
        assert told == []
        api.create(VALIDATING_WEBHOOKS, a_configuration(""))
        until(lambda: told, "it is trusted")
        api.delete(VALIDATING_WEBHOOKS, NAME)
        looks_on("there is none any more")
        api.fault = lambda _verb, _plural: ApiError(0, "Unreachable", "away")
        looks_on("nobody answers")
        api.fault = lambda _verb, _plural: None
        api.create(VALIDATING_WEBHOOKS, a_configuration("", ""))
        until(lambda: api.get(VALIDATING_WEBHOOKS, NAME)["webhooks"][1]["clientConfig"].get("caBundle"), "told again")
        assert told == ["trusted"]
        looks_on("all is well")
        api.calls.clear()
        looks_on("all is well")
        assert {verb for verb, _, _ in api.calls} == {"get"}
    finally:
        stop.set()
        copies.close()
        keeper.join(scaled(10))
    assert not keeper.is_alive()
