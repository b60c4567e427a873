"""Searches photos with LiteRT, without TensorFlow.

`pip install --no-deps tbnets` and `pip install ai-edge-litert numpy pillow`
install all that this package needs. docs/on_device.md describes the models,
which `tbnets export --litert` writes.

::

    from tbnets import lite

    model = lite.load("flickr8k_photos")
    model.search(["a dog in the snow"], "photos", top=3)
"""

from tbnets.lite.model import Model, find, load

__all__ = ["Model", "find", "load"]
