"""Captions of one source found in another."""

from tbnets.data.captions import CaptionedImages, same_captions


def captioned(images, captions, rows):
    return CaptionedImages(
        tuple(images), captions, rows, "test", "captions.json"
    )


def test_captions_are_found_within_their_photo():
    marked = captioned(
        "xy", ("A dog .", "a cat", "a grey dog", "it"), [0, 0, 1, 1]
    )
    # Photo y stands first; `a cat` is of x and of y.
    own = captioned(
        "yx", ("a cat", "a gray dog", "A cat!", "a dog"), [0, 0, 1, 1]
    )
    rows, is_exact = same_captions(marked, own, [1, 0])
    # `it` takes what is left of y.
    assert rows.tolist() == [3, 2, 1, 0]
    assert is_exact.tolist() == [True, True, False, False]


def test_no_caption_is_found_twice():
    marked = captioned("x", ("a dog", "a dog", "a dog"), [0, 0, 0])
    own = captioned("x", ("a dog", "A dog."), [0, 0])
    rows, is_exact = same_captions(marked, own, [0])
    assert rows.tolist() == [0, 1, -1]
    assert is_exact.tolist() == [True, True, False]
