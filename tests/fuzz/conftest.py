"""How many examples Hypothesis draws, and whether the same each time.

By default few, the same each time. `pytest tests/fuzz
--hypothesis-profile=long` draws many, others each time, and runs the tests
that take minutes.
"""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "suite",
    max_examples=10,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[*HealthCheck],
)
settings.register_profile(
    "long",
    settings.get_profile("suite"),
    max_examples=1000,
    derandomize=False,
    print_blob=True,
)
settings.load_profile("suite")
