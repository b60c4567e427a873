"""The data of a run: the contract between them and all that reads them."""

from tbnets.tasks.fitted import check_fitted_kinds


class TaskData:
    """What a run reads: checked, fitted, opened split by split, batched.

    ::

        data.resume(state, splits, where)    # a run that goes on
        data.check(queries)                  # is all of it there?
        fitted  = data.fit()                 # words, sizes, ...
        train   = data.load("train", fitted)
        batches = data.batches(train)
        for each epoch:
            data.start_epoch(network, train, epoch)
            batches.epoch = epoch
            steps on batches.dataset, batches.num_batches of them

    Examples are whatever `load` returns; only their task looks inside, but
    for `counts`, how many of what there are: name -> int; and `samples()`,
    what layers that need the statistics of the training split measure: name
    of a layer of the network -> arrays.

    Args:
        settings: the run's settings (see `flags`).

    Attributes:
        fits: names that are always in what `fit` returns.
        held: what it holds from epoch to epoch: name -> JSON value or NumPy
            array. A checkpoint keeps it, a resumed run starts with it.
        reads: what reads images and texts, in a few words; "" where that is
            not told.
        recipe: what a run does where its flags say nothing: (title, values),
            what that is for, in a few words, and flag -> value.
    """

    fits = ()
    reads = ""
    recipe = "", {}

    def __init__(self, settings):
        self.settings = settings
        self.held = {}

    def resume(self, state, splits, where):
        """Takes over what a run has fitted and holds, before data are read.

        Args:
            state: its `checkpoints.RunState`.
            splits: names of splits, which need not exist, whose data must
                fit what was fitted.
            where: the checkpoint that remembers it, for messages.

        Raises:
            ValueError: saying what differs, or is none of what `fit` returns.
        """
        check_fitted_kinds(state.fitted, where, self.fits)
        self.held = state.held

    @property
    def test_split(self):
        """The split that is reported on at the end; "" where none is there."""
        return self.settings.test_split

    def check(self, queries=()):
        """Refuses a run that would ask for what is not there.

        Called before anything is computed or written.

        Args:
            queries: example queries that the exported model will be asked.

        Raises:
            ValueError, FileNotFoundError: a split, photos or features are
                missing, or flags contradict each other.
        """

    def fit(self):
        """Returns what the training split tells before any step.

        Returns:
            dict, name -> JSON value or NumPy array: all that the network,
            `load` and endpoints need to know of the data. Checkpoints keep
            it.
        """
        raise NotImplementedError

    def load(self, split, fitted):
        """Returns the examples of a split."""
        raise NotImplementedError

    def notes(self, fitted):
        """Returns what people should know of the data: title -> text.

        Args:
            fitted: what `fit` returned when the run began.
        """
        return {}

    def start_epoch(self, network, train, epoch):
        """Prepares an epoch (from 0): what follows may read `held`."""

    def batches(self, train):
        """Returns the batches of any one epoch, as `data.EpochBatches`."""
        raise NotImplementedError
