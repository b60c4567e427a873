"""Files of every kind that stand in a folder of photos, good and broken."""

import io

import numpy as np
import PIL.Image


def file_of(picture, format, **options):
    """Returns a picture as the content of a file."""
    file = io.BytesIO()
    picture.save(file, format, **options)
    return file.getvalue()


def encode(mode="RGB", format="JPEG", size=(40, 30), seed=0, **options):
    """Returns a picture of noise as a file of some format."""
    pixels = np.random.default_rng(seed).integers(0, 256, (*size[::-1], 3))
    picture = PIL.Image.fromarray(pixels.astype(np.uint8)).convert(mode)
    return file_of(picture, format, **options)


CONTENTS = {
    "good.jpg": encode(),
    "Bücher/häß lich ✓.jpg": encode(seed=1),
    "alpha.png": encode("RGBA", "PNG"),
    "grey.jpg": encode("L"),
    "cmyk.jpg": encode("CMYK"),
    "is a png.jpg": encode(format="PNG"),
    "cut.jpg": encode()[:-700],
    "cut.png": encode(format="PNG")[:-99],
    "is a gif.jpg": encode("P", "GIF"),
    "is a bmp.jpg": encode(format="BMP"),
    "is a webp.png": encode(format="WEBP"),
    "scan.tif": encode(format="TIFF"),
    "cut.webp": encode(format="WEBP")[:-99],
    "empty.jpg": b"",
    "text.jpg": b"no photo at all",
}
REASONS = {
    "cut.jpg": "does not decode",
    "cut.png": "does not decode",
    "cut.webp": "is not a complete WebP file",
    "empty.jpg": "is empty",
    "text.jpg": "is not a photo",
    "link.jpg": "does not exist",
}
"""Name of each file that is not a photo -> how the reason begins."""
PHOTOS = sorted(CONTENTS.keys() - REASONS.keys())
FOLDER = "folder.jpg"
"""A folder that is called as a photo is."""


def write_all(folder):
    """Writes them below a folder, with a link that leads nowhere."""
    for name, content in CONTENTS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / FOLDER).mkdir()
    (folder / "link.jpg").symlink_to(folder / "nowhere")
    return folder


def reasons(lines, folder):
    """Returns name -> reason from the lines `left out: FILE, which ...`."""
    found = {}
    for line in lines:
        if line.startswith("left out: "):
            path, _, reason = line[len("left out: ") :].partition(", which ")
            found[path.removeprefix(f"{folder}/")] = reason
    return found


def assert_all_left_out(found):
    """Asserts that every file that is not a photo has its reason."""
    assert found.keys() == REASONS.keys()
    for name, reason in REASONS.items():
        assert found[name].startswith(reason), (name, found[name])
