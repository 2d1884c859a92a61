"""What every test may ask for by name. Nothing is started before the first test that asks."""

import gc
import hashlib
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from gkm.api import msgspec_warmup
from support.cluster.cluster import Cluster
from support.examples import load_profile
from support.host import workers
from support.host.compiling import by_one_at_first
from support.host.waiting import scaled
from support.operator.fixtures import gkm_cluster
from support.peers import require, tiers
from support.registry.distribution import Distribution
from support.registry.olareg import Olareg
from support.registry.server import Registry
from support.sigstore.cosign import Cosign
from xdist.remote import Producer

__all__ = ["gkm_cluster"]

TESTS = Path(__file__).parent

# Failed statements of the contract show their values, as those of tests do.
pytest.register_assert_rewrite("support.registry.contract")

load_profile()


@pytest.hookimpl(tryfirst=True)  # before pytest-timeout reads the option
def pytest_configure(config: pytest.Config) -> None:
    if config.option.timeout is None:
        config.option.timeout = scaled(float(config.getini("timeout")))
    config.addinivalue_line("markers", "own_node: starts a node of its own, so it runs before the shared one exists")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark a test with what the tests of its folder need, unless it says itself that it needs more."""
    marker = tiers.MARKERS.get(item.path.relative_to(TESTS).parts[0])
    if marker and not any(map(item.get_closest_marker, set(tiers.MARKERS.values()))):
        item.add_marker(marker)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Let one worker of xdist compile the tests of a fresh clone."""
    if not hasattr(session.config, "workerinput"):
        return (yield)
    chosen = hashlib.sha256("\n".join(session.config.args).encode()).hexdigest()[:16]
    with by_one_at_first(TESTS.parent / "build" / f"compiled-{chosen}"):
        return (yield)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put tests that start nodes of their own first: a machine has room for one, and the shared one stays."""
    for item in items:
        if limit := item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(scaled(limit.args[0])), append=False)
    items.sort(key=lambda item: (item.get_closest_marker("own_node") is None, workers.rank(item.nodeid)))


def pytest_collection_finish() -> None:
    """Prepare what was imported.

    Threads of tests decode, as those of our processes. The garbage collector leaves out what stays, modules and
    thousands of tests, at each of its full passes.
    """
    msgspec_warmup.warm_up()
    gc.collect()
    gc.freeze()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> workers.Groups | None:
    """Distribute the tests with real partners by groups; None leaves it to xdist."""
    return workers.Groups(config, log) if config.getoption("dist") == "loadscope" else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name each test that was left out, below its reason: what a run does not show must not be silent."""
    reasons: dict[str, list[str]] = {}
    for report in terminalreporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons.setdefault(reason.removeprefix("Skipped: "), []).append(report.nodeid)
    for reason, names in sorted(reasons.items()):
        terminalreporter.section(f"left out, {len(names)} tests: {reason}")
        for name in sorted(names):
            terminalreporter.line(name)


@pytest.fixture(scope="session")
def as_root() -> None:
    """What a test asks for that only root can do; without root it is left out."""
    require.root()


@pytest.fixture(scope="session")
def short_directory() -> Iterator[Path]:
    """A directory with a path short enough for the Unix sockets of a node."""
    with tempfile.TemporaryDirectory(prefix="gkm-", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A control plane: API server, etcd, controller-manager. Shared: use namespaces of your own."""
    for command in ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl"):
        require.peer(command)
    with Cluster.start(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="session")
def node_cluster(short_directory: Path) -> Iterator[Cluster]:
    """A cluster with a scheduler and one real node. Shared: use namespaces of your own, delete your pods."""
    require.containerd()
    for command in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"):
        require.peer(command)
    with Cluster.start(short_directory / "c", node=True) as running:
        yield running


@pytest.fixture(scope="session")
def olareg(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Olareg]:
    """The real olareg. Shared: use repositories of your own."""
    require.peer("olareg")
    with Olareg.start(tmp_path_factory.mktemp("olareg")) as running:
        yield running


@pytest.fixture(scope="session")
def distribution(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Distribution]:
    """The real distribution, which has no referrers API. Shared: use repositories of your own."""
    require.peer("distribution")
    with Distribution.start(tmp_path_factory.mktemp("distribution")) as running:
        yield running


@pytest.fixture(scope="session")
def cosign(tmp_path_factory: pytest.TempPathFactory) -> Cosign:
    """The real cosign 3 with a key pair."""
    require.peer("cosign")
    return Cosign.create(tmp_path_factory.mktemp("cosign"))


@pytest.fixture
def registry() -> Iterator[Registry]:
    """A registry in this process that misbehaves on request."""
    with Registry.start() as running:
        yield running
