"""What a run is about: the contract between a task and all that runs it.

`runs`, `training.loop` and the tools know a task by these methods alone. To
add a task, write a subclass and enter it in `tasks.TASKS`.
"""

from tbnets.errors import InputError
from tbnets.tasks.parts import BUILDERS
from tbnets.tasks.task_data import TaskData

FEW_POINTS = (250, 3)
"""Images, and captions of each, with which the projector stays fluent."""


class Task:
    """A kind of run: its data, its network, its measures and its endpoints.

    ::

        task.check(queries)                     # is all of it there?
        fitted   = task.data.fit()              # words, sizes, ...
        network  = task.build(fitted)           # for training and after it
        task.compile(network, steps_per_epoch)  # for training
        for each epoch:
            steps on batches of task.data
            scores  = task.scores(network, dev)
            metrics = task.measure(scores)

    Args:
        settings: the run's settings (see `flags`).

    Attributes:
        best_metric: the metric of the dev split that chooses the best epoch;
            larger is better.
        loss: the scalar of a training step that the progress shows.
        flag_groups: names of the groups of `flags.table` that it reads.
        fixed: (flag, value) of flags that it leaves to others at one value.
        measure_options: options of `measure` beside the scores, which
            tools/evaluate.py has flags for.
        about_pictures: what `pictures` show, in a sentence.
        answers_queries: whether `answer` can be asked.
        make_data: the class of its `data`.
        data: the `TaskData` of the run.
    """

    best_metric = "recall_sum"
    loss = "total_loss"
    flag_groups = ()
    fixed = ()
    measure_options = ()
    about_pictures = ""
    answers_queries = False
    make_data = TaskData

    def __init__(self, settings):
        self.settings = settings
        self.data = self.make_data(settings)

    def check(self, queries=()):
        """Refuses a run that would ask for what is not there.

        Args:
            queries: example queries that the exported model will be asked.

        Raises:
            ValueError, FileNotFoundError: as of `TaskData.check`, or the task
                answers no queries.
        """
        if queries and not self.answers_queries:
            raise InputError(
                "`--example_query` must come with a task that answers queries. "
                f"Received: --example_query={queries[0]} with "
                f"--task={self.settings.task}. Leave it out."
            )
        self.data.check(queries)

    def build(self, fitted):
        """Returns a built Keras model with initial weights from the seed."""
        return BUILDERS[self.settings.model].build(self.settings, fitted)

    def describe(self, network):
        """Returns in a few words what is trained."""
        return self.settings.model

    def compile(self, network, steps_per_epoch):
        """Gives a model its loss and optimizer."""
        BUILDERS[self.settings.model].compile(
            network, self.settings, steps_per_epoch
        )

    def scores(self, network, examples):
        """Returns what `measure` reads: name -> array, or function."""
        raise NotImplementedError

    def measure(self, scores, **options):
        """Returns a flat dict of metrics, by NumPy alone."""
        raise NotImplementedError

    def combine(self, scores, other, others, split, weight):
        """Returns the scores of two runs taken together.

        Args:
            scores: of this run.
            other: `Task` of the other run.
            others: its scores of the same split.
            split: name of the split.
            weight: of the other run, in [0, 1].

        Raises:
            ValueError: the scores of these tasks can not be taken together.
        """
        raise self._does_not_add_up()

    def embeddings(self, scores):
        """Returns the arrays that a split is measured by: name -> array.

        Args:
            scores: of the split.

        Returns:
            dict; {} where more than inner products of embeddings ranks.
        """
        return {}

    def pair_scores(self, scores, records, split):
        """Returns what its scores say of whole images and captions.

        Args:
            scores: of this run.
            records: `CaptionedImages` that are to be scored.
            split: name of the split.

        Returns:
            (scores, learned): an `evaluation.score_tiles.PairScores`, minus
            distances unless they are learned.

        Raises:
            ValueError: the task has none, or its data are others.
        """
        raise self._does_not_add_up()

    def _does_not_add_up(self):
        return InputError(
            "`--combine_with` must come with a task whose scores add up. "
            f"Received: a run of --task={self.settings.task}. Leave it out."
        )

    def health(self, scores):
        """Returns scalars that tell whether training goes well."""
        return {}

    def pictures(self, scores, examples):
        """Returns pictures of what the scores mean, for TensorBoard.

        They are drawn whenever the best epoch improves: they must be few and
        show the same examples each time.

        Returns:
            dict, name -> uint8 `[height, width, 3]`.
        """
        return {}

    def points(self, scores, examples, most=FEW_POINTS):
        """Returns embeddings for TensorBoard's projector, or for a map.

        Args:
            scores: of a split.
            examples: of this split.
            most: how many images, and captions of each, at most.

        Returns:
            A `pictures.points.Points`; None where there is no space that all
            of them share.
        """
        return None

    def headline(self, row):
        """Returns an epoch's dev metrics in a few words."""
        return f"dev {self.best_metric} {row[f'dev/{self.best_metric}']:.4f}"

    def diagnose(self, row):
        """Returns a plain warning when training has gone wrong, or None."""
        return None

    def table(self, metrics, title=""):
        """Returns metrics as text."""
        lines = [f"{name:40} {value:10.4f}" for name, value in metrics.items()]
        return "\n".join([title, *lines])

    def endpoints(self, network, fitted):
        """Returns the `serving.endpoints.Endpoints` of the SavedModel."""
        raise NotImplementedError

    def served_scores(self, model, split):
        """Returns the scores of a split by an exported model.

        Args:
            model: what `serving.served_model.load_saved_model` returned.
            split: name of the split.

        Returns:
            What `measure` reads.

        Raises:
            ValueError: the task measures no exported models.
        """
        raise InputError(
            "`--run_dir` must be a run whose exported model can be measured. "
            f"Received: a run of --task={self.settings.task}, whose task has "
            "no `served_scores`. Write it, or leave the model where it is."
        )

    def example_queries(self):
        """Returns queries to ask the exported model if people name none."""
        return []

    def answer(self, saved_model, queries, folder):
        """Asks an exported model example queries; returns text to print.

        Args:
            saved_model: folder of the SavedModel.
            queries: list of strings.
            folder: folder of the run, for pictures.
        """
        raise NotImplementedError
