"""Defines flags, checks and JSON output that commands with --model share."""

import contextlib
import dataclasses
import io
import json

from tbnets import files, lite
from tbnets.errors import InputError, MissingPackageError
from tbnets.features import hub
from tbnets.serving import zoo
from tbnets.tasks.settings.flag import flag

MODEL = (
    "Name of a zoo model (model_zoo/README.md); or a run folder of "
    "tbnets train, whose newest SavedModel is used; or the folder of one "
    "version, RUN/saved_model/1; or hub:PRESET, a Keras Hub preset"
)
"""Help of --model, for models on this machine."""
ANY_MODEL = (
    f"{MODEL}; or the address of a model on a server, "
    "http://localhost:8501/NAME."
)
JSON = (
    "JSON file for the results; - writes them to standard output, without "
    "other output."
)
"""Help of --json."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrustFlag:
    """The flag for models with unusual ops."""

    trust: bool = flag(
        False,
        "Load --model even if its graph has ops that read or write files. "
        "Use it only for models that you trust.",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelFlags(TrustFlag):
    """Flags for the model that runs the queries."""

    model: str = flag("flickr8k_photos", ANY_MODEL)

    def open(self, requirements, flag="--model"):
        """Loads --model, which must accept text.

        `requirements` maps each required endpoint to two strings for the error
        message: the requirement and the advice. Errors name the `flag`.
        """
        if "://" in self.model and not hub.is_hub(self.model):
            from tbnets.extras.server.client import Client

            server, _, name = self.model.rpartition("/")
            model = Client(server, name)
        else:
            model = zoo.open_model(self.model, self.trust)
        return check_model(model, self.model, requirements, flag)


RUNTIMES = ("auto", "litert", "tensorflow")


@dataclasses.dataclass(frozen=True, kw_only=True)
class RuntimeFlags(ModelFlags):
    """Flags for a model that runs in LiteRT or TensorFlow."""

    runtime: str = flag(
        "auto",
        "litert starts at once and needs the `lite` extra and a "
        "LiteRT model (tbnets export --litert; flickr8k_sentences has one); "
        "tensorflow runs every model. auto: litert if both are there.",
        choices=RUNTIMES,
    )

    def open(self, requirements, flag="--model"):
        """Loads --model like `ModelFlags.open`, but in the chosen runtime."""
        is_local = hub.is_hub(self.model) or "://" not in self.model
        is_found = is_local and lite.find(self.model) is not None
        if self.runtime == "litert" or (self.runtime == "auto" and is_found):
            try:
                model = lite.load(self.model)
            except MissingPackageError:
                if self.runtime == "litert":
                    raise
            else:
                return check_model(model, self.model, requirements, flag)
        return super().open(requirements, flag)


def image_requirements(advice):
    """Returns the `requirements` that a search passes to `ModelFlags.open`."""
    requirement = "be a network for whole images", advice
    return {"embed_image": requirement, "embed_text": requirement}


def check_endpoints(model, name, requirements, flag="--model"):
    """Raises an error if a model lacks an endpoint in `requirements`."""
    received = f"{flag}={name}, which has {sorted(model.signatures)}"
    for endpoint, (requirement, advice) in requirements.items():
        if not model.has(endpoint):
            raise InputError(flag, requirement, received, advice)


def check_model(model, name, requirements, flag="--model"):
    """Checks that a model has endpoints and accepts words, and returns it."""
    check_endpoints(model, name, requirements, flag)
    if not model.takes_captions:
        received = f"{flag}={name}, which takes text features"
        raise InputError(flag, "take words", received)
    return model


STDOUT = "-"
"""File name that means standard output."""


def quiet_if_stdout(path):
    """Returns a context manager that hides other output if `path` is "-"."""
    if path == STDOUT:
        return contextlib.redirect_stdout(io.StringIO())
    return contextlib.nullcontext()


def write_answers_json(path, record):
    """Writes the results to --json, if it is set."""
    if path == STDOUT:
        print(json.dumps(record, indent=2, sort_keys=True))
    elif path:
        files.write_json(path, record)
        print(f"\nThe results as JSON: {path}")


def check_text(tool, texts):
    """Raises an error if a sentence is not valid UTF-8."""
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise InputError(tool, "get text in UTF-8", repr(text)) from error
