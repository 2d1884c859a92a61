"""For the tests of the testbed itself."""

import pytest

# Failed statements of the contract show their values, as those of tests do.
pytest.register_assert_rewrite("testbed.registry_contract")
