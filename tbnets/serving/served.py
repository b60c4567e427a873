"""Calls an exported model with lists and arrays."""

import pathlib
from typing import Any

import numpy as np
import tensorflow as tf

from tbnets.checks import (
    Array,
    Boxes,
    Path,
    Photo,
    Photos,
    checked_number,
    refuse_single,
    short_repr,
)
from tbnets.data.images import (
    BrokenImageError,
    fault_of,
    read_content,
    read_photo,
    read_photo_sizes,
)
from tbnets.errors import InputError
from tbnets.evaluation import boxes as box_math
from tbnets.evaluation.boxes import (
    CHOICE_ARGUMENTS,
    check_boxes,
    clip_boxes,
    non_maximum_suppression,
)
from tbnets.evaluation.score_tiles import PAIRS_AT_ONCE, compare_all
from tbnets.features.proposals import proposer_of
from tbnets.serving import saved_files
from tbnets.serving.inputs import (
    ARGUMENTS,
    IMAGE_BYTES,
    Texts,
    TreeReader,
    as_input,
    is_trees,
)
from tbnets.serving.search import PhotoSearch, answer, are_doubtful
from tbnets.text.vocabulary import Vocabulary

SUPPRESSION = 0.5
"""IoU above which a region counts as a duplicate of a better region."""


class Served(PhotoSearch):
    """A loaded SavedModel of any task.

    A method raises an error if the model lacks the required endpoint.

    Args:
        path: folder of the SavedModel.
        signatures: name -> concrete function.
        metadata: content of `assets.extra/tbnets.json`, or {}.
        vocabulary: `Vocabulary` of the model's texts, or None.
        root: object that TensorFlow loaded, which keeps the variables alive;
            None if the model is on a server.
    """

    def __init__(
        self,
        path: Path,
        signatures: dict,
        metadata: dict,
        vocabulary: Vocabulary | None = None,
        root: Any = None,
    ) -> None:
        self.path: Path = pathlib.Path(path)
        self.metadata = metadata
        self.signatures = signatures
        self.vocabulary = vocabulary
        self.root = root

    __repr__ = short_repr(
        "path",
        "embedding_dim",
        signatures=lambda self: " ".join(sorted(self.signatures)),
    )

    def inputs(self, name: str) -> dict[str, tf.TensorSpec]:
        """Returns the input `tf.TensorSpec`s of an endpoint, by name.

        Raises:
            ValueError: the model has no such endpoint.
        """
        if not self.has(name):
            raise InputError(
                "signature",
                f"be in {sorted(self.signatures)}",
                f"signature={name!r} of {self.path}",
                "To take photos, export with --cnn_weights=imagenet.",
            )
        return self.signatures[name].structured_input_signature[1]

    @property
    def takes_photos(self) -> bool:
        """Whether the model takes photos rather than image features."""
        return any(IMAGE_BYTES in self.inputs(name) for name in self.signatures)

    @property
    def takes_captions(self) -> bool:
        """Whether the model takes strings rather than text features."""
        names = {"embed_text", "embed_phrases"} & set(self.signatures)
        specs = [spec for name in names for spec in self.inputs(name).values()]
        return any(spec.dtype == tf.string or is_trees(spec) for spec in specs)

    @property
    def embedding_dim(self) -> int | None:
        """The embedding size, or None if the model returns no embeddings."""
        specs = [f.structured_outputs for f in self.signatures.values()]
        sizes = [x["embeddings"].shape[-1] for x in specs if "embeddings" in x]
        return next((size for size in sizes if size is not None), None)

    def call(self, signature: str, **inputs: Any) -> dict[str, np.ndarray]:
        """Calls a signature.

        Args:
            signature: name of the signature.
            **inputs: the inputs by name, as lists or arrays.

        Returns:
            dict of NumPy arrays, by output name.

        Raises:
            ValueError: the model lacks the signature, or an input is invalid.
        """
        specs = self.inputs(signature)
        for name, value in inputs.items():
            inputs[name] = as_input(name, specs[name], value)
        return self._ask(signature, inputs)

    def _ask(self, name, inputs):
        self.inputs(name)
        answers = self.signatures[name](**inputs)
        return {key: value.numpy() for key, value in answers.items()}

    def _input(self, name, rows):
        [spec] = self.inputs(name).values()
        argument = ARGUMENTS[name]
        if not is_trees(spec):
            return {spec.name: as_input(argument, spec, rows)}
        refuse_single(argument, rows)
        reader = TreeReader(self.vocabulary, self.metadata.get("max_tokens"))
        return {spec.name: tf.constant(reader.read(rows))}

    def _embed(self, name, rows):
        return self._ask(name, self._input(name, rows))["embeddings"]

    def embed_text(self, texts: Texts) -> np.ndarray:
        """Embeds texts.

        Args:
            texts: list of `m` strings, or float array `[m, text_dim]`. If the
                model reads trees, strings are parsed, and `text.trees.Tree`s
                are also accepted.

        Returns:
            float32 NumPy array `[m, embedding_dim]`, unit vectors.
        """
        return self._embed("embed_text", texts)

    def embed_phrases(self, phrases: Texts) -> np.ndarray:
        """Embeds phrases, like `embed_text`."""
        return self._embed("embed_phrases", phrases)

    def embed_regions(self, features: Array) -> np.ndarray:
        """Embeds features of regions, float array `[n, region_dim]`."""
        return self._embed("embed_regions", features)

    def embed_features(self, features: Array) -> np.ndarray:
        """Embeds image features with a model that also takes photos.

        Args:
            features: float array `[n, feature_dim]`.

        Returns:
            float32 NumPy array `[n, embedding_dim]`, unit vectors.
        """
        return self._embed("embed_features", features)

    def embed_cells(self, images: Photos) -> np.ndarray:
        """Returns the contribution of each cell of a photo to its embedding.

        The mean of the contributions is the photo's embedding. Their inner
        products with a text embedding show how well the text matches each cell.

        Args:
            images: `n` photos, as in `embed_images`. The contributions of a
                broken photo are 0.

        Returns:
            float32 NumPy array `[n, height, width, embedding_dim]`.

        Raises:
            ValueError: the model has no signature `embed_cells`.
        """
        return self._embed("embed_cells", images)

    def heat_maps(self, images: Photos, texts: Texts) -> np.ndarray:
        """Shows where photos match texts.

        Args:
            images: `n` photos, as in `embed_images`.
            texts: `m` texts, as in `embed_text`.

        Returns:
            float NumPy array `[n, m, height, width]`. The mean of a map
            approximates the similarity of the photo and the text (see
            `endpoints.embed_map`).

        Raises:
            ValueError: the model has no signature `embed_cells`.
        """
        cells, texts = self.embed_cells(images), self.embed_text(texts)
        return np.einsum("nyxd,md->nmyx", cells, texts, optimize=True)

    def try_images(self, images: Photos) -> tuple[np.ndarray, list[str]]:
        """Embeds images, and reports broken photos instead of raising an error.

        Args:
            images: as in `embed_images`.

        Returns:
            (embeddings, reasons): float32 `[n, embedding_dim]`; and, for each
            photo, "" if it is valid, or its fault, such as "is empty". The
            embedding of a broken photo is 0.
        """
        inputs = self._input("embed_image", images)
        answers = self._ask("embed_image", inputs)
        statuses = [reason.decode() for reason in answers.get("status", ())]
        contents = inputs[IMAGE_BYTES].numpy() if statuses else []
        # `fault_of` describes faults in more detail than the graph.
        reasons = [
            reason and (fault_of(content) or reason)
            for content, reason in zip(contents, statuses)
        ]
        return answers["embeddings"], reasons

    def _compare_learned(self, first, second):
        row, column = sorted(self.inputs("compare"))

        def compare(rows, columns):
            pairs = {row: tf.constant(rows), column: tf.constant(columns)}
            return self._ask("compare", pairs)["similarities"]

        return compare_all(compare, first, second, PAIRS_AT_ONCE)

    def search_own_index(self, queries: Texts, top: int) -> list:
        """Searches the index in the model, like `search` without `images`."""
        inputs = self._input("embed_text", queries)
        k = tf.constant(min(top, tf.int32.max))  # No index has more rows.
        results = self._ask("search", {**inputs, "k": k})
        values = results["similarities"]
        count = self.metadata.get("index_size", np.inf)
        doubtful = are_doubtful(self, queries, values, count)
        return [
            [answer(i.decode(), *numbers) for i, *numbers in zip(*found)]
            for found in zip(results["ids"], values, doubtful)
        ]

    def propose(self, photo: Photo) -> np.ndarray:
        """Proposes boxes for a photo, with the settings used in training.

        Args:
            photo: a photo, as in `embed_images`.

        Returns:
            float32 NumPy array `[n, 4]` in pixels of the upright photo, best
            first. If the whole photo was a region in training, its box comes
            last.

        Raises:
            BrokenImageError: the photo is broken.
            ValueError: as in `features.proposals.proposer_of`.
        """
        made_by = self.metadata.get("metadata", {})
        made_by = made_by.get("image_features_made_by", {})
        proposer = proposer_of(made_by.get("proposals", {}))
        return proposer(read_photo(photo))[0]

    def find(  # noqa: PLR0913  (a choice is three of them)
        self,
        phrases: Texts,
        photo: Photo,
        top: int = 1,
        boxes: Boxes | None = None,
        choice: str | None = None,
        choice_temperature: float | None = None,
        choice_area_exponent: float | None = None,
    ) -> list[list[tuple[np.ndarray, float]]]:
        """Finds the regions of a photo that phrases describe.

        If two regions have an IoU above 0.5, only the more similar region is
        returned.

        Args:
            phrases: as in `embed_phrases`.
            photo: a photo, as in `embed_images`.
            top: maximum number of regions for each phrase.
            boxes: candidates, float `[n, 4]` in pixels of the upright photo;
                None for the boxes of `propose`, which needs the `regions`
                extra.
            choice: `most_similar`; `expected_overlap`, the region on which many
                similar regions agree; or `mean_box`, the mean of the regions
                around the most similar region (see `evaluation.boxes.Choice`).
                None for the choice in the model's metadata, or else
                `most_similar`.
            choice_temperature: temperature of `expected_overlap` and
                `mean_box`, in units of the similarity; None for the default.
            choice_area_exponent: exponent of a region's area in the weights of
                `expected_overlap` and `mean_box`, 0 by default.

        Returns:
            list that contains, for each phrase, a list of regions, best first.
            A region is `(box, similarity)`: a float32 array `[4]` and a float.
            If no box is proposed, the lists are empty.

        Raises:
            BrokenImageError: the photo is broken.
            ValueError: as in `localize` and `propose`.

        Example:
            model.find(["a red ball"], "photo.jpg")[0]  # [(box, similarity)]
        """
        if not self.has("embed_phrases"):
            expected = "be called on a network for phrase localization"
            raise InputError("find", expected, self.path)
        top = checked_number("top", top, 1, whole=True)
        chosen = choice, choice_temperature, choice_area_exponent
        options = own_choice(self) if choice is None else {}
        pairs = zip(CHOICE_ARGUMENTS, chosen)
        options |= {k: v for k, v in pairs if v is not None}
        rule = box_math.checked_choice(**options)
        content = read_content(photo)  # Encodes pixels only once.
        try:
            if boxes is None:
                boxes = self.propose(content)
            boxes = _inside(boxes, content)
            similarities = self.localize(phrases, content, boxes)
        except BrokenImageError as error:
            raise BrokenImageError(photo, error.reason) from error
        scores, answers = box_math.answers(similarities, boxes, rule)
        answers, regions = answers.astype(np.float32), []
        for values, score, answer_boxes in zip(similarities, scores, answers):
            rows = non_maximum_suppression(boxes, score, SUPPRESSION, top)
            regions.append([(answer_boxes[i], float(values[i])) for i in rows])
        return regions

    def localize(
        self, phrases: Texts, photo: Photo, boxes: Boxes
    ) -> np.ndarray:
        """Compares each phrase with each box of a photo.

        Args:
            phrases: as in `embed_phrases`.
            photo: a photo, as in `embed_images`.
            boxes: `[n, 4]` in pixels of the upright photo; `n` may be 0.

        Returns:
            float32 NumPy array `[m, n]`, as in `similarity`.

        Raises:
            BrokenImageError: the photo is broken.
            ValueError: the boxes are invalid, or the model does not take
                photos.
        """
        content = read_content(photo)
        inputs = {
            **self._input("embed_phrases", phrases),
            "boxes": tf.constant(check_boxes(boxes), tf.float32),
            IMAGE_BYTES: tf.constant(content),
        }
        answers = self._ask("localize", inputs)
        reason = answers.get("status", b"").decode()
        if reason:
            raise BrokenImageError(photo, fault_of(content) or reason)
        return answers["similarities"]


def _inside(boxes, photo):
    boxes = np.asarray(boxes)
    boxes = check_boxes(boxes[None] if boxes.shape == (4,) else boxes)
    width, height = read_photo_sizes([photo])[0]
    seen = clip_boxes(boxes, width, height)
    outside = np.flatnonzero((seen[:, 2:] <= seen[:, :2]).any(axis=1))
    if outside.size:
        expected = f"overlap the photo of {width} x {height} pixels"
        raise InputError("boxes", expected, boxes[outside[0]].tolist())
    return boxes.astype(np.float32)


def own_choice(model):
    """Returns the `choice*` arguments of `find` in a model's metadata."""
    saved = model.metadata.get("metadata", {}).get("choice", {})
    return {name: saved[name] for name in CHOICE_ARGUMENTS if name in saved}


def load_saved_model(path: Path, trust: bool = False) -> Served:
    """Loads a SavedModel that `export_saved_model` wrote.

    A SavedModel is a program. A graph with ops that could access files is
    rejected before it is executed.

    Args:
        path: folder of the SavedModel; or a folder of numbered versions, the
            newest of which is loaded.
        trust: whether to allow all ops in the model's graph.

    Returns:
        A `Served`.

    Raises:
        FileNotFoundError: there is no SavedModel.
        ValueError: the SavedModel is damaged, has no signatures or has
            forbidden ops.

    Example:
        served = tbnets.load_saved_model("served/1")
        served.similarity(image_features, ["a red dog"])  # [n, 1] cosines
    """
    path, root, metadata = saved_files.load_graph(path, trust)
    words = saved_files.read_vocabulary(path)
    return Served(path, dict(root.signatures), metadata, words, root)
