"""How measured numbers are written: one rule for all tables and lines.

A half goes away from zero, as in the tables of the papers: 43.15 is 43.2 and
75.25 is 75.3. Formats of Python would write 43.1, as the float is a little
less than 43.15, and 75.2, the even digit.
"""

import decimal
import math

_NOISE_DIGITS = 9  # Digits after the point below which floats are noise.
_CONTEXT = decimal.Context(prec=400, rounding=decimal.ROUND_HALF_UP)


def rounded(value, digits=1):
    """Writes a number with some digits after the point.

    Args:
        value: number.
        digits: how many digits, from 0.

    Returns:
        The string; of what is not finite, `nan`, `inf` or `-inf`.
    """
    if not math.isfinite(value):
        return f"{value:.1f}"
    exact = decimal.Decimal(f"{value:.{_NOISE_DIGITS}f}")
    step = decimal.Decimal(1).scaleb(-digits)
    return f"{exact.quantize(step, context=_CONTEXT):f}"


def per_cent(share, digits=1):
    """Writes a share of 1 in per cent, without the sign.

    Args:
        share: number; 0.4315 is "43.2".
        digits: how many digits after the point.
    """
    return rounded(100 * share, digits)
