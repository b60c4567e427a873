r"""List the models that come with tbnets, or export one for a server.

  tbnets zoo

This command prints the task, language, size and recalls of each model. Other
commands take the model's name as --model=NAME.

  tbnets zoo --export=flickr8k_photos served

This command writes all files that TensorFlow Serving needs to
served/flickr8k_photos: the next version of the SavedModel with warm-up
requests, and the server's configuration files. The command is short for:

  tbnets export --model=flickr8k_photos \
      --output=served/flickr8k_photos --serving

Exports need an extra: pip install "tbnets[serving]". Some models also need
"tbnets[photos]". See docs/zoo.md.
"""

import dataclasses
import pathlib

from tbnets.errors import InputError
from tbnets.serving import zoo
from tbnets.tasks.settings.flag import flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags for the model to export and the output folder."""

    export: str = flag("", "Name of the model to export.")
    folder: list[str] = flag(
        [],
        "Output folder; the model is written to FOLDER/NAME/1.",
        kind="words",
    )


def main(options):
    """Prints the table, or exports a model."""
    if bool(options.export) + len(options.folder) not in (0, 2):
        raise InputError(
            "--export",
            "be set with one output folder",
            f"--export={options.export} and {len(options.folder)} folders",
            "Write for example tbnets zoo --export=flickr8k_photos served.",
        )
    if not options.export:
        print(zoo.describe())
        return
    zoo.check_name(options.export, "--export")
    # Imported late because the table needs neither TensorFlow nor Keras.
    from tbnets.cli import export

    export.main(
        export.Options(
            model=options.export,
            output=str(pathlib.Path(options.folder[0], options.export)),
            serving=True,
        )
    )
