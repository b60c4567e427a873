"""What `peers` compares: tables of rows, and the arrays that they are given."""

from typing import NamedTuple


class Row(NamedTuple):
    """One row of a table.

    Attributes:
        name: what it is called.
        builder: `module:function`, see `peers_worker.serve`.
        package: what pip calls the package that it needs.
        same: whether its definition is that of tbnets in this table, so that
            values agree.
    """

    name: str
    builder: str
    package: str = "tbnets"
    same: bool = True


class Table(NamedTuple):
    """Rows that are compared; the first is the floor, the second is tbnets.

    Attributes:
        title: what all rows do.
        rows: list of `Row`.
        captions: of each image.
        make: function that makes the arrays.
        sizes: of images, where a user asks for none.
    """

    title: str
    rows: list[Row]
    captions: int = 2
    make: str = "embeddings"
    sizes: tuple[int, ...] = (500, 1500)


FLOOR = Row("matmuls alone, TensorFlow", "peers_ours:matmuls")
TORCH_FLOOR = Row("matmuls alone, PyTorch", "peers_torch:matmuls", "torch")
METRIC = "pytorch-metric-learning"
SENTENCES = "sentence-transformers"
ADDONS = "tensorflow-addons"
SUPERVISED = Row(
    f"{METRIC}: SupConLoss", "peers_packages:supervised_metric", METRIC
)
CROSSED = Row(f"{METRIC}: NTXentLoss", "peers_packages:crossed_metric", METRIC)
TABLES = {
    "top_k": Table(
        "K = 10 hardest negatives of each pair, Euclidean, mean of violations",
        [
            FLOOR,
            Row("tbnets TripletLoss", "peers_ours:top_k"),
            TORCH_FLOOR,
            Row("plain PyTorch", "peers_torch:top_k", "torch"),
        ],
    ),
    "hardest": Table(
        "the hardest negative of each pair, cosine, sum (VSE++)",
        [
            FLOOR,
            Row("tbnets TripletLoss", "peers_ours:hardest"),
            TORCH_FLOOR,
            Row("plain PyTorch", "peers_torch:hardest", "torch"),
            Row(
                f"{METRIC}: BatchHardMiner, TripletMarginLoss",
                "peers_packages:hardest_metric",
                METRIC,
            ),
        ],
        captions=1,
    ),
    "all": Table(
        "all triplets, Euclidean, mean of violations",
        [
            FLOOR,
            Row("tbnets TripletLoss", "peers_ours:every"),
            Row(
                f"{METRIC}: TripletMarginLoss",
                "peers_packages:all_metric",
                METRIC,
            ),
        ],
    ),
    "one_view": Table(
        "images and captions as one view, hardest positive and negative",
        [
            FLOOR._replace(builder="peers_ours:within_matmuls"),
            Row("tbnets TripletLoss", "peers_ours:batch_hard"),
            TORCH_FLOOR._replace(builder="peers_torch:within_matmuls"),
            Row(
                f"{METRIC}: BatchHardMiner, TripletMarginLoss",
                "peers_packages:batch_hard_metric",
                METRIC,
            ),
            Row(
                f"{SENTENCES}: BatchHardTripletLoss",
                "peers_packages:batch_hard_sentences",
                SENTENCES,
            ),
            Row(
                f"{ADDONS}: triplet_hard_loss",
                "peers_addons:hard_addons",
                ADDONS,
            ),
            Row(
                f"{ADDONS}: triplet_semihard_loss",
                "peers_addons:semihard_addons",
                ADDONS,
                same=False,
            ),
        ],
        captions=1,
    ),
    "infonce": Table(
        "softmax over the batch, both directions",
        [
            FLOOR,
            Row("tbnets InfoNCELoss", "peers_ours:softmax"),
            TORCH_FLOOR,
            Row(
                "open_clip: ClipLoss", "peers_packages:clip", "open_clip_torch"
            ),
            Row(
                f"{SENTENCES}: MultipleNegativesRankingLoss, both ways",
                "peers_packages:ranking_both",
                SENTENCES,
            ),
            SUPERVISED,
            CROSSED,
        ],
        captions=1,
    ),
    "infonce_one_way": Table(
        "softmax over the batch, images ask alone",
        [
            FLOOR,
            Row("tbnets InfoNCELoss", "peers_ours:softmax_one_way"),
            Row(
                f"{SENTENCES}: MultipleNegativesRankingLoss",
                "peers_packages:ranking",
                SENTENCES,
            ),
        ],
        captions=1,
    ),
    "infonce_of_two": Table(
        "softmax over the batch, both directions, several positives",
        [
            FLOOR,
            Row("tbnets InfoNCELoss", "peers_ours:softmax"),
            SUPERVISED,
            CROSSED._replace(same=False),
        ],
    ),
    "step": Table(
        "train step, 4096/6000 -> 2048 -> 512, VSE++, Adam",
        [
            FLOOR._replace(builder="peers_ours:step_matmuls"),
            Row("tbnets EmbeddingNetwork", "peers_ours:train_step"),
            Row("plain PyTorch", "peers_torch:train_step", "torch"),
        ],
        make="step",
    ),
    "trees": Table(
        "child-sum LSTM over trees of 12 words, 300 -> 512",
        [
            Row("matmuls alone, TensorFlow", "peers_trees:products"),
            Row("tbnets TreeLSTM(tied=True)", "peers_trees:child_sum"),
            Row("DGL, messages by level", "peers_dgl:child_sum", "dgl"),
        ],
        captions=1,
        make="trees",
        sizes=(64,),
    ),
    "evaluation": Table(
        "retrieval in both directions, recalls at 1, 5, 10",
        [
            Row("product alone, NumPy", "peers_ranking:product"),
            Row("tbnets, exact ranks", "peers_ranking:exact_ranks"),
            Row(
                "faiss: IndexFlatIP, ten best",
                "peers_ranking:flat_index",
                "faiss-cpu",
            ),
            Row("plain PyTorch, ten best", "peers_torch:recalls", "torch"),
        ],
        captions=5,
        sizes=(1000, 5000),
    ),
}
