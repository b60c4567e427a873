"""Opening features, whichever way they are stored."""

from tbnets.data import feature_arrays


def open_features(path) -> feature_arrays.Features:
    """Opens features without reading them: see `feature_arrays.open_array`."""
    return feature_arrays.open_array(path)
