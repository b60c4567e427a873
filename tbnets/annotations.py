"""Names for annotations: what many signatures take or give.

Editors and type checkers look into them. At run time they are names alone:
nothing is imported for them.
"""

from typing import TYPE_CHECKING

from typing_extensions import TypeAliasType

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import numpy as np
    import PIL.Image
    import tensorflow as tf

Array = TypeAliasType("Array", "np.ndarray | tf.Tensor")
Integers = TypeAliasType("Integers", "np.ndarray | tf.Tensor | Sequence[int]")
Batch = TypeAliasType("Batch", "Mapping[str, np.ndarray | tf.Tensor]")
Tensors = TypeAliasType("Tensors", "dict[str, tf.Tensor]")
Boxes = TypeAliasType("Boxes", "np.ndarray | Sequence[Sequence[float]]")
Path = TypeAliasType("Path", "str | os.PathLike[str]")
Strings = TypeAliasType(
    "Strings", "list[str] | tuple[str, ...] | np.ndarray | tf.Tensor"
)
"""Not any sequence: a string alone is a sequence of strings too."""
Photo = TypeAliasType(
    "Photo", "str | os.PathLike[str] | bytes | PIL.Image.Image | np.ndarray"
)
"""A file, the content of one, a picture or its pixels."""
Photos = TypeAliasType("Photos", "Sequence[Photo] | np.ndarray | tf.Tensor")
