"""One control plane with the admission of group templates for the tests of this directory."""

from support.operator.template_admission import site

__all__ = ["site"]
