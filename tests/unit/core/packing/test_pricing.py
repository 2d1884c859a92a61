"""The price of a group bounds how many groups have spares that leave, and says what no such plan can have."""

from itertools import product

from gkm.packing.domains.options import Shape
from gkm.packing.domains.pricing import prices
from hypothesis import given
from hypothesis import strategies as st

Ways = list[tuple[tuple[tuple[int, bool], ...], int]]


def fewest_leaving(slots: int, groups: int, shape: Shape, *, short: bool) -> int | None:
    pods = groups * shape.pods - (shape.missing if short else 0)
    if pods > slots or (short and not groups):
        return None
    return next(away for away in range(groups + 1) if pods + (groups - away) * shape.spares <= slots)


def ways(domains: list[int], groups: int, shape: Shape) -> Ways:
    """Return every way to place the groups, with the number of those whose spares leave."""
    found: Ways = []
    for counts in product(range(groups + 1), repeat=len(domains)):
        for last in range(len(domains)) if shape.missing else [-1]:
            away = [
                fewest_leaving(slots, count, shape, short=number == last)
                for number, (slots, count) in enumerate(zip(domains, counts, strict=True))
            ]
            if sum(counts) == groups and None not in away:
                taken = tuple((count, number == last) for number, count in enumerate(counts))
                found.append((taken, sum(some or 0 for some in away)))
    return found


@given(
    st.lists(st.integers(0, 10), min_size=1, max_size=4),
    st.integers(1, 5),
    st.builds(Shape, st.integers(2, 3), st.integers(1, 4), st.integers(0, 1)),
)
def test_no_plan_has_fewer_leaving_and_whatever_a_plan_does_is_allowed_to_it(
    domains: list[int], groups: int, shape: Shape
) -> None:
    found = ways(domains, groups, shape)
    if not found:
        return
    bound = prices(domains, shape, groups)
    assert bound.fewest <= min(away for _, away in found)
    for taken, away in found:
        allowed = bound.allowed(away)
        for slots, (count, short) in zip(domains, taken, strict=True):
            assert any(step.fewest <= count <= step.most and step.short == short for step in allowed[slots]), (
                f"{count} in a domain of {slots}"
            )


def test_where_every_domain_must_fill_up_none_is_left_aside() -> None:
    # A domain of 4 slots holds one group of 2 with its spare, or two without their spares: three groups take both.
    bound = prices([4, 4], Shape(2, 1, 0), 3)
    assert bound.fewest == 2
    assert min(step.fewest for step in bound.allowed(2)[4]) == 1
