"""Statistics of more rows than fit in memory."""

import numpy as np

NOISE = 1e-6


class StreamingStatistics:
    """Mean and standard deviation of features, in one pass over them.

    Batches are merged by the update of Chan et al. 1983, in float64, so that
    a mean far from 0 does not swallow the deviation.
    """

    def __init__(self):
        self.count = 0
        self.mean = 0.0
        self._squares = 0.0

    def update(self, features):
        """Adds features.

        Args:
            features: `[n, dim]` numbers; `n` may be 0.
        """
        features = np.asarray(features, np.float64)
        count = len(features)
        if not count:
            return
        mean = features.mean(axis=0)
        shift = mean - self.mean
        total = self.count + count
        self._squares += np.square(features - mean).sum(axis=0)
        self._squares += np.square(shift) * (self.count * count / total)
        self.mean = self.mean + shift * (count / total)
        self.count = total

    @property
    def variance(self):
        """The population variance, float64 `[dim]`."""
        return self._squares / self.count

    @property
    def deviation(self):
        """The standard deviation, float64 `[dim]`.

        It is 0 where a feature never changes. Rounding leaves some noise
        there; what is below a millionth of the mean counts as no change.
        """
        deviation = np.sqrt(self.variance)
        noise = NOISE * np.abs(self.mean)
        return np.where(deviation > noise, deviation, 0.0)
