"""The batches of an epoch -> the share that each replica has of them.

A batch is shared in even parts: of its images, of its captions, and of
whatever else it holds, the first part to the first replica. Every worker draws
all batches, which costs little, and reads what its own replicas have.
"""

from typing import NamedTuple

from tbnets.errors import InputError


class Share(NamedTuple):
    """A replica's part of things that stand in a row.

    Attributes:
        place: of the replica, from 0.
        count: replicas that share.
    """

    place: int = 0
    count: int = 1

    def of(self, num_rows):
        """Returns the slice of so many rows."""
        bounds = (self.place + i for i in range(2))
        return slice(*(bound * num_rows // self.count for bound in bounds))

    def read(self, source, rows):
        """Reads its part of rows as they stand in the batch of them all.

        Args:
            source: of `batch(rows)`; where rows have `lengths`, they are as
                wide as in the whole batch.
            rows: int64 `[n]`, those of the whole batch.
        """
        if hasattr(source, "lengths"):
            return source.batch(rows)[self.of(len(rows))]
        return source.batch(rows[self.of(len(rows))])


WHOLE = Share()


def distributed(strategy, batches):
    """Returns what an epoch holds for the replicas of a strategy.

    Args:
        strategy: a `tf.distribute.Strategy`.
        batches: of an epoch, with `dataset_of(shares)`; `smallest`, if not
            None, is the fewest photos of a batch, of which a network that
            looks at pixels needs one for each replica.

    Returns:
        `tf.distribute.DistributedDataset` of `num_batches`.

    Raises:
        ValueError: a batch has no photo for some replica.
    """
    count = strategy.num_replicas_in_sync
    if batches.smallest is not None and batches.smallest < count:
        raise InputError(
            "Batches must hold a photo for each replica. Received: one of "
            f"{batches.smallest} for {count} replicas. Take another "
            "`images_per_batch`, or fewer replicas."
        )

    def own(context):
        per_worker = count // context.num_input_pipelines
        first = context.input_pipeline_id * per_worker
        places = range(first, first + per_worker)
        return batches.dataset_of([Share(place, count) for place in places])

    return strategy.distribute_datasets_from_function(own)
