"""Which profile of Hypothesis runs; see conftest.py."""

import pytest
from hypothesis import settings

IS_LONG = settings.get_current_profile_name() == "long"
only_long = pytest.mark.skipif(
    not IS_LONG, reason="takes minutes: needs --hypothesis-profile=long"
)
