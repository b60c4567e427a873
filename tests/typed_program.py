"""A program that names every public name, as its users would.

Type checkers read all of it: `mypy` and `basedpyright`, without arguments, in
the clone's folder. It is not run: examples of docstrings and pages are. A line
that ends in `type: ignore` is wrong on purpose, and both report where one is
not.
"""

import pathlib

import numpy as np

import tbnets
from tbnets.checks import Array

CAPTIONS = ["a red dog", "the red dog", "a blue cat", "the blue cat"]
OWNERS = np.array([0, 0, 1, 1])
IDS = np.arange(2)
FEATURES = np.eye(2, 5, dtype=np.float32)
BRACKETS = "(NP (NP (DT a) (NN dog)) (PP (IN on) (NP (NN grass))))"


def words() -> tuple[tbnets.Vocabulary, Array]:
    """Cuts captions into words, and these into ids."""
    vocabulary = tbnets.Vocabulary.build(CAPTIONS, min_count=1, max_words=100)
    size: int = vocabulary.size + len(vocabulary)
    known: tuple[str, ...] = vocabulary.words
    tokenizer = tbnets.Tokenizer(vocabulary, max_tokens=20)
    cut = tbnets.split_words(CAPTIONS).to_list()
    print(size, known[2:], tokenizer.max_tokens, cut)
    return vocabulary, tokenizer(CAPTIONS)


def networks() -> tbnets.EmbeddingNetwork:
    """Builds every network and layer, and compiles them."""
    size = words()[0].size
    network = tbnets.EmbeddingNetwork(
        image_branch=tbnets.Branch((4, 3), dropout=0.2, seed=1),
        text_branch=tbnets.Branch(units=(4, 3), batch_normalization="first"),
        text_encoder=tbnets.MeanOfWords(size, embedding_dim=2),
    )
    network.compile("adam", tbnets.TripletLoss(), gradient_clip_norm=2.0)
    similarity = tbnets.SimilarityNetwork(
        tbnets.Branch((3,)),
        tbnets.Branch((3,)),
        image_encoder=tbnets.FeatureTransform(("signed_sqrt", "l2")),
        text_encoder=tbnets.RecurrentEncoder(size, "gru", units=3),
        head=tbnets.PairHead((4,), scale=1.0),
    )
    similarity.compile(tbnets.FusedAdam(1e-3), pair_loss="softmax")
    trees = tbnets.HMLSTM(
        tbnets.Branch((3,)),
        tbnets.Branch((3,)),
        text_encoder=tbnets.TreeEncoder(size, units=3, tied=True),
        region_branch=tbnets.Branch((3,)),
    )
    scaled = tbnets.EmbeddingNetwork(
        tbnets.Branch((3,)),
        tbnets.Branch((3,)),
    )
    scaled.compile("adam", tbnets.InfoNCELoss(temperature=0.05))
    loss = tbnets.TripletLoss(**tbnets.PRESETS["niu2017"])
    trees.compile(tbnets.FusedSGD(0.1, momentum=0.9), loss, phrase_weight=0.5)
    side = tbnets.CanonicalProjection(2)
    solved = tbnets.CCA(side, tbnets.CanonicalProjection(2), power=4.0)
    solved.compile()
    either: list[tbnets.TwoBranchModel] = [network, similarity, trees, solved]
    encoder: tbnets.TextEncoder = tbnets.MeanOfWords(size)
    dim: int = encoder.output_dim
    layers = (
        *(tbnets.TfidfVectors(size, 4), tbnets.MeanVectors(size, 3)),
        *(tbnets.FisherVectors(size, 3), tbnets.SeededDropout(0.5)),
        *(tbnets.SmallConvNet((4, 4)), tbnets.TreeLSTM(3)),
    )
    print(either, dim, layers)
    return network


def training(network: tbnets.EmbeddingNetwork, folder: pathlib.Path) -> None:
    """Trains, saves, loads."""
    vocabulary, token_ids = words()
    examples = tbnets.Examples.from_arrays(FEATURES, token_ids, OWNERS)
    batches = tbnets.EpochBatches(examples, 2, captions_per_image=2, seed=0)
    batches.epoch += 1
    watch = tbnets.RetrievalMetrics(batches)
    history = network.fit(batches, epochs=2, verbose=0, callbacks=[watch])
    print(history.history["loss"], batches.num_batches)
    images = network.embed_images(FEATURES)
    texts = network.embed_text(token_ids, training=False)
    print(network.similarities(images, texts), network.embedding_dim)
    network.save(folder / "network.keras")
    vocabulary.save(folder / "vocabulary.txt")
    loaded: tbnets.TwoBranchModel = tbnets.load_model(folder / "network.keras")
    vocabulary = tbnets.Vocabulary.load(str(folder / "vocabulary.txt"))
    print(loaded.embed_images(FEATURES), vocabulary)
    pixels = tbnets.ApplicationEncoder("MobileNetV2", image_size=96)
    print(pixels.application)


def losses() -> float:
    """Mines and compares."""
    masks = tbnets.positive_masks(IDS, OWNERS, text_ids=[0, 1, 2, 3])
    texts = FEATURES[OWNERS]
    indices, valid = tbnets.hardest_negatives(
        FEATURES @ texts.T, masks.image_to_text, num_negatives=1
    )
    loss = tbnets.TripletLoss(margin=0.2, term_weights={"image_to_text": 1.0})
    output = loss(FEATURES, texts, IDS, OWNERS)
    again = loss.with_masks(FEATURES, texts, masks)
    print(loss(texts, OWNERS).total, loss.within_view(texts, OWNERS).terms)
    mining = tbnets.CandidateMining()
    tbnets.CandidateMining.from_config(mining.get_config())
    pairs = tbnets.sample_pairs(IDS, OWNERS, seed=[0, 1], num_candidates=2)
    judged = tbnets.logistic_loss(texts[:, 0], OWNERS == 0, pairs.valid)
    print(indices, valid, again.terms["image_to_text"], judged.pair_accuracy)
    return float(output.total)


def data(folder: pathlib.Path) -> tbnets.CaptionedImages:
    """Reads files."""
    table = folder / "captions.csv"
    table.write_text("image,caption\na.jpg,a red dog\nb.jpg,a blue cat\n")
    images = tbnets.read_captions("table", table, "all")
    counts: np.ndarray = images.captions_per_image
    some: tbnets.CaptionedImages = images.subset([1, 0])
    print(images.file_name(0), counts.sum(), some.captions[0].split())
    np.save(folder / "x.npy", FEATURES)
    with tbnets.IndexWriter(folder / "x", {"model": "1f"}, dim=2) as writer:
        writer.put(["a", "b"], np.eye(2))
        writer.remove([])
        writer.remove_others()
    index = tbnets.open_index(folder / "x", model={"model": "1f"})
    best, values = index.search(np.eye(2), 1)
    print(index.ids[best[0, 0]], values.max(), writer.added, len(index))
    features = tbnets.open_features(folder / "x.npy")
    rows: np.ndarray = features.take(features.rows(["1", "0"]))
    print(rows.mean(), features.dim, len(features))
    phrases = tbnets.PhraseRegions(
        images=images,
        image_sizes=np.array([[9, 9], [9, 9]]),
        phrases=["a red dog"],
        phrase_ids=["a.jpg#0#0"],
        phrase_to_caption=np.array([0]),
        spans=np.array([[0, 3]]),
        types=[("animals",)],
        chains=["1"],
        boxes=np.array([[1.0, 2.0, 5.0, 6.0]]),
    )
    print(phrases.num_phrases, phrases.fractions().max(), phrases.type_masks())
    return images


def phrases_of(folder: pathlib.Path) -> list[str]:
    """Reads phrases, and what is wrong with them."""
    problems: list[object] = []
    found = tbnets.read_phrases(folder, None, problems)
    return [found.phrases[row] for row in np.flatnonzero(found.spans[:, 0])]


def photos(contents: list[bytes]) -> Array:
    """Decodes photos."""
    return tbnets.decode_images(contents, image_size=224)


def trees() -> int:
    """Reads a tree and packs a batch of it."""
    tree: tbnets.Tree = tbnets.read_tree(BRACKETS, name="1")
    first: tuple[int, int, int] = tree.phrases("NP")[0]
    arrays = tbnets.tree_arrays([tree], words()[0], max_words=50)
    packed = tbnets.pack_trees(tbnets.TreeRows(arrays).batch([0]))
    print(first, tree.words, tree.bracketed(), packed.roots)
    return tree.num_nodes


def text_features(folder: pathlib.Path) -> tuple[float, float]:
    """Fits encoders on captions and on word vectors."""
    path = folder / "glove.txt"
    path.write_text("red 1 0 0\nblue 0 1 0\ndog 0 0 1\ncat 0 1 1\n")
    vectors: tbnets.WordVectors = tbnets.read_word_vectors(
        path, words()[0].words
    )
    mean = tbnets.MeanFeatures().fit(CAPTIONS, vectors)
    tfidf = tbnets.TfidfFeatures(num_terms=10).fit(CAPTIONS)
    fisher = tbnets.FisherFeatures(2, pca_dim=0).fit(CAPTIONS, vectors)
    mixture = tbnets.HybridMixture(2).fit(vectors.vectors.astype(float))
    reader = tbnets.CaptionReader(mean, max_tokens=20)
    dims: tuple[int, ...] = (mean.dim, tfidf.dim, fisher.dim, reader.dim)
    print(dims, mixture.weights_.sum(), reader(CAPTIONS), fisher.describe())
    both = mean.transform(CAPTIONS), tfidf.transform(CAPTIONS)
    return float(both[0].sum()), float(both[1].sum())


def measures() -> str:
    """Ranks, and tells how well."""
    texts = FEATURES[OWNERS]
    metrics = tbnets.evaluate_retrieval(FEATURES, texts, OWNERS)
    groups = [*range(len(FEATURES))]
    ranks = tbnets.retrieval_ranks(
        FEATURES, texts, OWNERS.tolist(), image_groups=groups
    )
    low, high = tbnets.bootstrap_interval(
        ranks["text_to_image"].ranks, lambda some: float(np.mean(some <= 1))
    )
    boxes = np.array([[0.0, 0.0, 4.0, 4.0], [4.0, 4.0, 8.0, 8.0]])
    found = tbnets.evaluate_localization(
        np.array([[0.9, 0.1]]), [boxes], [[0, 0, 4, 4]], [0], recall_at=(1,)
    )
    print(low + high, found["phrase_to_region/recall_at_1"])
    return tbnets.format_table(metrics, title=tbnets.__version__)


def served_models(network: tbnets.EmbeddingNetwork, photo: bytes) -> None:
    """Exports, loads, searches, finds."""
    folder: pathlib.Path = tbnets.export_saved_model(
        network, words()[0], "served/1", image_shape=(5,), half_precision=True
    )
    served = tbnets.load_saved_model(folder)
    cosines: np.ndarray = served.similarity(FEATURES, ["a red dog"])
    print(cosines.max(), served.has("embed_text"), served.vocabulary)
    names: list[str] = tbnets.zoo.names()
    sizes = {told.name: told.size for told in tbnets.zoo.describe()}
    model = tbnets.zoo.load("flickr8k_photos")
    like = model.search(images="photos", like=["dog.jpg", photo], cache=False)
    print(sizes[names[0]], like)
    for answers in model.search(["a dog", "a cat"], "photos", top=3):
        for answer in answers:
            print(answer.image, round(answer.similarity, 3), answer.confidence)
    rows: np.ndarray = model.embed_images(
        [photo, "a.jpg", pathlib.Path("b.jpg")]
    )
    print(model.compare(rows, model.embed_text(["a dog"])).shape)
    localizer = tbnets.zoo.open_model("scenes_localization", trust=False)
    [found] = localizer.find(["a ball"], photo, boxes=[[0, 0, 9, 9]])
    for box, cosine in found:
        print(box.tolist(), cosine)
    print(localizer.localize(["a ball"], "a.jpg", localizer.propose("a.jpg")))
    with tbnets.Client("grpc://localhost", "flickr8k_photos", timeout=9) as one:
        print(one.search(["a dog"], "photos"), one.states()[0]["state"])


def wrong(network: tbnets.EmbeddingNetwork, model: tbnets.Vocabulary) -> None:
    """Calls that no checker lets pass."""
    tbnets.Branch(units="2048")  # type: ignore
    tbnets.TripletLoss(margin="0.2")  # type: ignore
    print(tbnets.EmbedingNetwork)  # type: ignore
    network.compile("adam", "mse")  # type: ignore
    network.embed_text("a red dog", training="yes")  # type: ignore
    model.lod("vocabulary.txt")  # type: ignore
    tbnets.zoo.load("flickr8k").serch(["a dog"], "photos")  # type: ignore
    print(words()[0].wrds)  # type: ignore
    tbnets.evaluate_retrieval(FEATURES, FEATURES, IDS, recall_at=5)  # type: ignore
    print(tbnets.read_tree(BRACKETS).word)  # type: ignore
