"""Transforms of Apache Beam that embed photos and extract their features."""

from tbnets.beam.transforms import EmbedPhotos as EmbedPhotos
from tbnets.beam.transforms import ExtractFeatures as ExtractFeatures
