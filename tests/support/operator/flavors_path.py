"""Where kubectl finds the flavors that the policy gkm-runs-flavor accepts, in the ServiceAccount gkm-flavors."""

FLAVORS_PATH = r"jsonpath={.metadata.annotations.gkm\.io/flavors}"
