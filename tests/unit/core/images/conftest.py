"""The fixtures of the tests of images."""

from support.images.fixtures import built, layout, mcv, site, site_without_referrers

__all__ = ["built", "layout", "mcv", "site", "site_without_referrers"]
