"""Our registry and the real one keep the same contract, so what is tested against ours holds for real ones."""

import pytest
from support.registry.contract import STATEMENTS, Contract
from support.registry.distribution import Distribution
from support.registry.olareg import Olareg
from support.registry.server import Registry


@pytest.mark.parametrize("statement", STATEMENTS)
def test_ours(registry: Registry, statement: str) -> None:
    getattr(Contract(registry.host), statement)()


@pytest.mark.partners
@pytest.mark.parametrize("statement", STATEMENTS)
def test_olareg(olareg: Olareg, statement: str) -> None:
    getattr(Contract(olareg.host), statement)()


@pytest.mark.partners
@pytest.mark.parametrize("statement", [name for name in STATEMENTS if "referrers" not in name])
def test_distribution(distribution: Distribution, statement: str) -> None:
    getattr(Contract(distribution.host), statement)()
