"""What verbs share that ask a model questions in words."""

import contextlib
import dataclasses
import io
import json

from tbnets import files
from tbnets.errors import InputError
from tbnets.serving import zoo
from tbnets.tasks.settings.flag import flag

MODEL = (
    "Name of a model of the zoo (model_zoo/README.md); or folder of a run of "
    "tools/train.py, whose newest SavedModel is meant; or of one version, "
    "RUN/saved_model/1"
)
"""What --model takes that is at hand."""
ANY_MODEL = (
    f"{MODEL}; or the address of one on a server, http://localhost:8501/NAME."
)
JSON = (
    "JSON file to write what is printed; - for standard output, which then has "
    "nothing else."
)
"""What --json takes."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Asked:
    """Which model is asked."""

    model: str = flag("flickr8k_photos", ANY_MODEL)
    trust: bool = flag(
        False,
        "Load --model whatever ops its graph has: a SavedModel of others can "
        "write files when it is called.",
    )

    def open(self, needed):
        """Loads --model, which must take words.

        Args:
            needed: dict, endpoint that it must have -> what a model with it
                is, and what to do with another.
        """
        if "://" in self.model:
            from tbnets.extras.server.client import Client

            model = Client.at(self.model)
        else:
            model = zoo.open_model(self.model, self.trust)
        return checked(model, self.model, needed)


def checked(model, name, needed):
    """Returns a model that can be asked what it is asked, in words.

    Args:
        model: a `Served`.
        name: what the user calls it.
        needed: see `Asked.open`.
    """
    for endpoint, (kind, advice) in needed.items():
        if not model.has(endpoint):
            raise InputError(
                f"`--model` must {kind}. Received: --model={name}, "
                f"which has {sorted(model.signatures)}. {advice}"
            )
    if not model.takes_captions:
        raise InputError(
            f"`--model` must take words. Received: --model={name}, "
            "which takes text features. Use one that was trained on words."
        )
    return model


STDOUT = "-"
"""What a file is called that is standard output."""


def alone(path):
    """Returns a context that prints nothing where JSON goes there alone."""
    if path == STDOUT:
        return contextlib.redirect_stdout(io.StringIO())
    return contextlib.nullcontext()


def write_json(path, record):
    """Writes what was found to --json, if it is given."""
    if path == STDOUT:
        print(json.dumps(record, indent=2, sort_keys=True))
    elif path:
        files.write_json(path, record)
        print(f"\nThe same as JSON: {path}")


def check_text(tool, texts):
    """Refuses sentences with bytes that are no text."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(
                f"`{tool}` must be asked in UTF-8. Received: {text!r}. Convert "
                "the words, or set the terminal to UTF-8."
            ) from error
