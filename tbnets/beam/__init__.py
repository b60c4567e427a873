"""Transforms of Apache Beam that embed photos and extract their features."""

from tbnets.errors import import_extra
from tbnets.startup import quiet_tensorflow

with quiet_tensorflow():  # Beam prints warnings, too.
    import_extra("beam", "apache_beam")

from tbnets.beam.transforms import EmbedPhotos as EmbedPhotos  # noqa: E402
from tbnets.beam.transforms import ExtractFeatures as ExtractFeatures  # noqa: E402
