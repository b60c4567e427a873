"""Reads the boxes of Flickr30K Entities: `Annotations/<id>.xml`.

The files count pixels from 1 and name the last one; boxes leave here in the
convention of `tbnets.boxes`. Documents with a DTD are refused, so that no
entity is ever expanded.
"""

import dataclasses
import math
import pathlib
import re
import xml.parsers.expat
from xml.etree import ElementTree

import numpy as np

from tbnets.checked_files import CheckedFile, Problem, ProblemError, shown

MOST_BYTES = 1 << 20
EDGES = ("xmin", "ymin", "xmax", "ymax")
_ADVICE = "Name a file of the folder Annotations of Flickr30K Entities."


@dataclasses.dataclass(frozen=True, eq=False)  # Arrays have no single ==.
class AnnotatedBoxes:
    """What is seen where in one photo.

    Args:
        file_name: of the photo, as the file says.
        width: of the photo in pixels.
        height: of the photo in pixels.
        boxes: `[n, 4]` float64, in the order of the file.
        chains: n tuples of coreference chains: a box may belong to several
            phrases, a chain may have several boxes.
        scenes: chains that are the whole scene; they have no box.
        unseen: chains that are not visible; they have no box.
    """

    file_name: str
    width: int
    height: int
    boxes: np.ndarray
    chains: tuple[tuple[str, ...], ...]
    scenes: frozenset[str] = frozenset()
    unseen: frozenset[str] = frozenset()

    def enclosing_boxes(self) -> dict[str, np.ndarray]:
        """Returns the box around all boxes of each chain that has any.

        Source: Wang et al. 2018, Sec. 4, note 2: one big box around all
        instances of a plural entity.
        """
        merged = {}
        for names, box in zip(self.chains, self.boxes):
            for chain in names:
                other = merged.get(chain, box)
                low = np.minimum(box[:2], other[:2])
                high = np.maximum(box[2:], other[2:])
                merged[chain] = np.concatenate([low, high])
        return merged


def read_annotations(path, problems=None) -> AnnotatedBoxes:
    """Reads the boxes of one photo.

    Args:
        path: XML file.
        problems: list that collects the problems of single objects, which
            are then left out; None raises at the first.

    Raises:
        FileNotFoundError: there is no such file.
        ProblemError: it is no such XML, whatever `problems` is, or an object
            of it is not as it should be; names the file and the line.

    Source: Plummer et al. 2015, "Flickr30k Entities", release 1.0.
    """
    file, strict = CheckedFile(path, problems), CheckedFile(path)
    root = _parse(strict)
    if root.tag != "annotation":
        found = f"expected <annotation>; found <{root.tag}>"
        strict.report(f"{found}. {_ADVICE}", root.line)
    width = _number(strict, root, "size/width")
    height = _number(strict, root, "size/height")
    boxes, chains = [], []
    flagged = {"scene": set(), "nobndbox": set()}
    for item in root.findall("object"):
        names = tuple((one.text or "").strip() for one in item.findall("name"))
        if not all(names) or not names:
            file.report(
                "expected <name> with a chain in <object>; found "
                f"{shown(names)}. Copy the file again.",
                item.line,
            )
            continue
        for box in item.findall("bndbox"):
            found = _box(file, box, width, height)
            if found:
                boxes.append(found)
                chains.append(names)
        for flag, members in flagged.items():
            if (item.findtext(flag) or "0").strip() == "1":
                members.update(names)
    return AnnotatedBoxes(
        file_name=(root.findtext("filename") or "").strip(),
        width=width,
        height=height,
        boxes=np.array(boxes, np.float64).reshape(-1, 4),
        chains=tuple(chains),
        scenes=frozenset(flagged["scene"]),
        unseen=frozenset(flagged["nobndbox"] - flagged["scene"]),
    )


def read_boxes(folder, image_id, photo_size=None) -> np.ndarray:
    """Reads the boxes of a photo from a folder of annotations.

    Args:
        folder: `Annotations` of Flickr30K Entities.
        image_id: the photo's id or file name: `36979` or `36979.jpg`.
        photo_size: width and height in pixels of the photo as it lies on
            disk, to which boxes are scaled from those that the annotation
            tells; None leaves them.

    Returns:
        float64 `[n, 4]`, each box once.
    """
    name = CheckedFile(folder).file_name(image_id, None)
    stem = name.rsplit(".", 1)[0] if "." in name else name
    found = read_annotations(pathlib.Path(folder) / f"{stem}.xml")
    boxes = np.unique(found.boxes, axis=0)
    if photo_size is not None:
        width, height = photo_size
        boxes = boxes * ([width / found.width, height / found.height] * 2)
    return boxes


class _LineElement(ElementTree.Element):
    """An element that knows the line it began on."""

    line = None


def _parse(file):
    """Parses a file without expanding anything; elements know their line."""
    content = file.read_bytes()
    if len(content) > MOST_BYTES:
        file.report(
            f"expected an XML file of at most {MOST_BYTES} bytes; found "
            f"{len(content)}. Name the annotation of one photo."
        )
    parser = xml.parsers.expat.ParserCreate()
    builder = ElementTree.TreeBuilder(element_factory=_LineElement)

    def start(tag, attributes):
        builder.start(tag, attributes).line = parser.CurrentLineNumber

    def refuse(*_):
        file.report(
            "expected XML without a document type; found <!DOCTYPE>. Remove "
            "it: annotations need none.",
            parser.CurrentLineNumber,
        )

    parser.StartElementHandler = start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(content, True)
        return builder.close()
    except ProblemError:
        raise
    # What Python's codecs say of an encoding that the file names.
    except (xml.parsers.expat.ExpatError, LookupError, ValueError) as error:
        raise ProblemError(
            Problem(
                file.path,
                parser.CurrentLineNumber,
                f"expected XML in UTF-8; found {error}. Copy the file again, "
                "or convert it.",
            )
        ) from error


def _number(file, element, path):
    """Returns a whole number above 0 below an element."""
    text = element.findtext(path)
    if text is None or not re.fullmatch(r"\s*[1-9][0-9]{0,8}\s*", text):
        place = element.find(path)
        file.report(
            f"expected a whole number of pixels in <{path}>; found "
            f"{shown(text)}. {_ADVICE}",
            (element if place is None else place).line,
        )
    return int(text)


def _box(file, element, width, height):
    """Returns a box in continuous coordinates, or None with a problem."""
    texts = [element.findtext(edge) for edge in EDGES]
    try:
        edges = [float(text) for text in texts]
    except (TypeError, ValueError):
        edges = [math.nan] * 4
    x_min, y_min, x_max, y_max = edges
    # The first pixel is 1 and the last one belongs to the box; some files
    # begin at 0.
    box = [
        max(x_min - 1, 0.0),
        max(y_min - 1, 0.0),
        min(x_max, float(width)),
        min(y_max, float(height)),
    ]
    if math.isfinite(sum(edges)) and box[0] < box[2] and box[1] < box[3]:
        return box
    file.report(
        f"expected xmin, ymin, xmax, ymax of a box in {width} x {height} "
        f"pixels, counted from 1; found {shown(texts)}. Correct the file.",
        element.line,
    )
    return None
