r"""List the models that come with tbnets.

  tbnets zoo

This command prints the task, language, size and recalls of each model. Other
commands take the model's name as --model=NAME. For example, write a model for
TensorFlow Serving, with warm-up requests:

  tbnets export --model=flickr8k_photos \
      --output=served/flickr8k_photos --serving

Some models need an extra: pip install "tbnets[photos]". See docs/zoo.md.
"""

import dataclasses

from tbnets.serving import zoo


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """This command has no flags."""


def main(options):
    """Prints the table of models."""
    print(zoo.describe())
