"""Counting tells whether a run fits, whatever its scopes: what trying everything finds."""

from dataclasses import replace

import pytest
from gkm.packing.fixes import RefusalSearch
from gkm.packing.inventory import Inventory
from gkm.packing.values import Malleability, Request
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import examples
from support.packing.brute import fits, legal_sizes
from support.packing.cases import Case, cases, scoped_cases


@pytest.mark.heavy
@settings(max_examples=examples(600))
@given(st.one_of(cases(), scoped_cases()))
def test_a_run_fits_by_counting_if_there_is_a_way_to_place_it(case: Case) -> None:
    nodes, request = case[0], replace(case[1], malleability=None)
    assert RefusalSearch(Inventory.from_nodes(nodes), request).fits(request) == fits(nodes, request)


@pytest.mark.heavy
@settings(max_examples=examples(200))
@given(st.one_of(cases(), scoped_cases()))
def test_overlapping_scopes_that_do_not_cut_through_domains_are_counted_alike(case: Case) -> None:
    scopes = {node.place: node.scopes for node in case[0]}
    nodes = tuple(replace(node, scopes=scopes[node.place]) for node in case[0])
    request = replace(case[1], malleability=None)
    assert RefusalSearch(Inventory.from_nodes(nodes), request).fits(request) == fits(nodes, request)


@given(st.integers(1, 40), st.integers(1, 4), st.integers(1, 9), st.integers(1, 60))
def test_the_smallest_size_is_the_smallest_that_is_legal(pods: int, pod: int, step: int, least: int) -> None:
    request = Request(pods * pod, pod, pod, malleability=Malleability(step, least))
    assert request.smallest == replace(request, gpus=min(legal_sizes(request)), malleability=None)
