r"""List the models that come with tbnets, or export one for a server.

  python tools/zoo.py

This command prints one line for each model: task, language, size and recalls.
Pass a name as --model=NAME to other commands.

  python tools/zoo.py --export=flickr8k_photos served

This command writes served/flickr8k_photos with all files that TensorFlow
Serving needs: the SavedModel as version 1 (or the next one) with warm-up
requests, models.config, docker-compose.yml and kubernetes.yaml. It needs pip
install "tbnets[serving]". A model with only its branches in tbnets needs
"tbnets[photos]" too. The command is equivalent to

  python tools/export.py --model=flickr8k_photos \
      --output=served/flickr8k_photos --serving

tools/export.py also selects signatures and adds an index. docs/zoo.md has more.
"""

import dataclasses
import pathlib

from tbnets.errors import InputError
from tbnets.serving import zoo
from tbnets.tasks.settings.flag import flag


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Flags: the model to export and its folder."""

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
            "be used with one output folder",
            f"--export={options.export} and {len(options.folder)} folders",
            "Write for example tools/zoo.py --export=flickr8k_photos served.",
        )
    if not options.export:
        print(zoo.describe())
        return
    zoo.check_name(options.export, "--export")
    # Imported late: the table needs neither TensorFlow nor Keras.
    from tbnets.cli import export

    export.main(
        export.Options(
            model=options.export,
            output=str(pathlib.Path(options.folder[0], options.export)),
            serving=True,
        )
    )
