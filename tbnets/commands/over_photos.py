"""What verbs share that make a store from photos: flags, a bar, a report."""

import dataclasses
import time

from tbnets.commands.data_flags import Captions
from tbnets.data.photos import find_photos, left_out_lines, sort_files
from tbnets.features import extraction
from tbnets.flags.flag import REQUIRED, Count, flag
from tbnets.progress import progress_bar


@dataclasses.dataclass(frozen=True, kw_only=True)
class Photos(Captions):
    """Which photos are worked on, and where the store goes."""

    images: str = flag(REQUIRED, "Folder of the photos.")
    captions: str = flag(
        "",
        "Captions whose images are wanted, and which tell their splits; "
        "without, all photos below --images, each under its path as id.",
    )
    output: str = flag(REQUIRED, "Folder of the store to write.")
    shard_images: Count = flag(
        extraction.SHARD_IMAGES,
        "Photos a shard: a kill costs no more than this.",
    )

    def find(self):
        """Returns what `find_photos` does by these flags; tells of the rest."""
        if not self.captions:
            _, others = sort_files(self.images)
            for line in left_out_lines({}, others, len(others))[:1]:
                print(line)
        return find_photos(self.images, *self.where, self.splits)

    def work_through(self, photos, writer, what, work):
        """Does what is left with a bar, completes the store, and tells.

        Args:
            photos: what `find` returned.
            writer: the `FeatureWriter` of the store.
            what: is done, in a word.
            work: function as `extraction.extract`, of these two,
                `shard_images` and `progress`.
        """
        start, before = time.perf_counter(), len(writer.done)
        left = len(extraction.remaining(photos, writer))
        with progress_bar(left, what, "photo", leave=True) as bar:
            failures = work(
                photos,
                writer=writer,
                shard_images=self.shard_images,
                progress=bar.update,
            )
        writer.finish()
        seconds = time.perf_counter() - start
        for path, reason in failures:
            print(f"left out: {path}, which {reason}")
        done = len(writer.done) - before
        speed = f", {done / seconds:.1f} photos/s" if done else ""
        print(
            f"{done} photos in {seconds:.0f} s{speed}; {len(writer.done)} in "
            f"the store, {len(failures)} left out"
        )
