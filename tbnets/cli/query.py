r"""Search photos by sentences, or sentences by a photo.

Search your own photos:

  tbnets query photos "a dog in the snow" "two children"

The first word is the photo folder, unless a flag specifies the images. The
first search embeds the photos. It creates the folder photos.tbnets next to the
photo folder, and writes the embeddings and a picture of the results
(answers.png) to it. Later searches embed only new and changed photos. Use
--html to write a web page, and --model to use another zoo model or a run
folder:

  tbnets query --model=runs/own --html=answers.html \
      photos "a dog in the snow"

If no sentences are given, the command reads them from the terminal until
Ctrl-D, or one per line from a pipe:

  tbnets query photos < sentences.txt

For a network that was trained on features, name a store or a file of features.
The photos are then used only in pictures:

  tbnets query --model=runs/flickr8k \
      --image_features=test_ims.npy --images=photos "a dog in the snow"

Show which parts of the best photos match the words:

  tbnets query --explain=why.png photos "a dog in the snow"

Find photos that are similar to a photo:

  tbnets query photos --like=dog.jpg

Search the lines of a text file, or the captions of a table, by a photo (or by
an id in --image_features):

  tbnets query --image=photos/dog.jpg --captions=captions.txt

Search an index built by tbnets index (docs/search.md):

  tbnets query --index=photos.index "a dog in the snow"

A network that parses sentences (docs/hm_lstm.md) needs an extra: pip install
"tbnets[parse]".

Doubtful results are marked with ? (docs/search.md): their similarity is low for
a right result, or the model does not know a content word of the sentence.

Each result has a rank, a similarity, and an image id or a caption. The
similarity is the cosine (1 is identical). For a similarity network, it is the
log odds of a match (0 means even odds). If this network was trained with
--pair_loss=softmax, similarities are comparable only between results of one
query. Unknown words, and files that are not photos, are listed and
ignored.
"""

import contextlib
import dataclasses
import os
import pathlib
import sys

from tbnets import files
from tbnets.cli.model_flags import (
    JSON,
    STDOUT,
    RuntimeFlags,
    check_text,
    image_requirements,
    quiet_if_stdout,
    write_answers_json,
)
from tbnets.data.caption_files import CaptionFile
from tbnets.data.caption_formats import read_file
from tbnets.data.captions import CaptionSource, read_captions
from tbnets.data.photos import find_photo, is_listed
from tbnets.data.pictures import open_upright
from tbnets.data.store.reader import open_features
from tbnets.errors import InputError
from tbnets.files import CheckedFile
from tbnets.serving import embedding_cache, search
from tbnets.serving.checksums import identity_of
from tbnets.tasks.settings.flag import (
    Count,
    check_pairs,
    check_place,
    flag,
    must_come_with,
)
from tbnets.text.parsing import short_noun_phrases
from tbnets.visualization import montage, page
from tbnets.visualization.montage import PHOTO_SIZE, draw_sheet

ANSWERS = "answers.png"
"""Default name of the contact sheet."""
OUTPUTS = ("montage", "explain", "html", "json")
"""Flags that name a file to write."""
MOST_ROWS, MOST_ANSWERS = 40, 50
"""Maximum numbers of queries, and of images per query, on a contact sheet."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(RuntimeFlags):
    """Flags for the queries, the network and the outputs."""

    queries: list[str] = flag(
        [],
        "Sentences to search for. The first word is the folder of the "
        "photos, unless a flag names the images.",
        kind="words",
    )
    images: str = flag("", "Folder of photos, subfolders included.")
    index: str = flag(
        "",
        "Folder of an index to search, made by tbnets index. --images names "
        "its photos, for pictures; default: the folder that was indexed.",
    )
    top: Count = flag(5, "Results per query.")
    montage: str | None = flag(
        None,
        "Picture (.png): one row per query (up to 40) with its best images. "
        "Default: answers.png in --cache, but with --index no picture.",
    )
    explain: str = flag(
        "",
        "Picture (.png) of where in the best images each query and its noun "
        "phrases (with the extra parse) are found.",
    )
    html: str = flag(
        "", "Page (.html) with links and the best images for each query."
    )
    cache: str = flag(
        "",
        "Folder that caches the embeddings of --images, which you can delete. "
        "Default: FOLDER.tbnets next to FOLDER.",
    )
    approximate: bool = flag(
        False,
        "Search only some cells of an --index made by tbnets index "
        "--approximate, which is faster.",
    )
    image_features: list[str] = flag(
        [],
        "Feature store, or features [n, dim] (.npy) with their ids in "
        "X_ids.txt next to X_ims.npy. Several are concatenated, as in "
        "training.",
    )
    like: list[str] = flag(
        [], "Photos, or ids of --image_features, to search with."
    )
    image: str = flag("", "Photo, or id, to find captions for.")
    captions: str = flag(
        "",
        "Captions to rank for --image: a text file with one caption per line, "
        "or a table of images and captions as for training.",
    )
    json: str = flag("", JSON)


def embed_images(options, model):
    """Returns ids and embeddings of the images to search."""
    if model.takes_photos:
        folder, cache = options.images, options.cache
        return embedding_cache.embed_folder(model, folder, cache)
    features = open_features(*options.image_features)
    return features.ids, search.embed(
        lambda rows: model.embed_images(features.take(rows)),
        range(len(features)),
        "image",
    )


def example_images(options, model, names):
    """Returns the model's inputs for `names`, which are photo names or ids."""
    if model.takes_photos or not names:
        return names
    features = open_features(*options.image_features)
    return features.take(features.rows(names))


def read_queries(path):
    """Returns the distinct captions of a caption file or a text file."""
    lines, _ = CheckedFile(path).lines(may_be_cp1252=True)
    file = CaptionFile(path, [])
    if file.start.startswith("{") or read_file(file)[1]:
        splits = CaptionSource(path).splits()
        images = (read_captions(path, split) for split in splits)
        lines = [text for each in images for text in each.captions]
    captions = list(dict.fromkeys(filter(None, map(str.strip, lines))))
    if not captions:
        received = f"--captions={path}, which has none"
        raise InputError("--captions", "name a file of captions", received)
    return captions


def answer_image(options, model):
    """Ranks --captions for --image and returns a JSON record."""
    captions = read_queries(options.captions)
    check_gallery(options, model)
    query = example_images(options, model, [options.image])
    query = search.embed_examples(model, query)
    embeddings = search.embed(model.embed_text, captions, "caption")
    order, similarities = search.best(
        model.compare(query, embeddings), options.top
    )
    title = f"{options.image} among {len(captions)} captions"
    rows, values = order[0], similarities[0]
    answers = [captions[row] for row in rows]
    print(search.format_answers(title, values, answers))
    records = search.answers_record("caption", captions, rows, values)
    return {"model": options.model, "image": options.image, "answers": records}


def answer_texts(options, model, gallery=None):
    """Ranks and draws the images for each query; returns a JSON record."""
    queries, like = options.queries, options.like
    examples = example_images(options, model, like)
    ids, embeddings = gallery or embed_images(options, model)
    ranked = search.rank(model, queries, examples, embeddings, options.top)
    notes = search.notes_on(model, queries)
    titles = search.query_titles(queries, notes)
    names = [*titles, *(f"like {image}" for image in like)]
    print(search.format_tables(names, ids, ranked))
    if options.images and options.montage != "":
        write_montage(options, titles, ids, ranked)
    if options.explain:
        write_explanations(options, model, titles, ids, ranked)
    if options.html:
        write_answers_page(options, notes, ids, ranked)
    return query_record(options, notes, ids, ranked)


def query_record(options, notes, ids, ranked):
    """Returns the results as a JSON record."""
    records = [
        {"query": query, "unknown_words": unknown, "note": note}
        for query, (unknown, note) in zip(options.queries, notes)
    ]
    records += [{"like": image} for image in options.like]
    for record, *results in zip(records, *ranked):
        record["answers"] = search.answers_record("image", ids, *results)
    return {"model": options.model, "queries": records}


def answer(options, model, gallery=None):
    """Runs the queries and writes the --json file."""
    with quiet_if_stdout(options.json):
        if options.image:
            record = answer_image(options, model)
        else:
            check_gallery(options, model)
            record = answer_texts(options, model, gallery)
    write_answers_json(options.json, record)


def answer_typed(options, model, gallery):
    """Runs queries typed at the terminal until Ctrl-D."""
    check_gallery(options, model)
    gallery = gallery or embed_images(options, model)
    with contextlib.suppress(ImportError):
        import readline  # noqa: F401  (adds line editing and history)
    sys.stdin.reconfigure(errors="replace")
    print(f"Type a query for {len(gallery[0]):,} images; Ctrl-D ends.")
    with contextlib.suppress(EOFError):
        while True:
            if sentence := input("> ").strip():
                query_options = dataclasses.replace(options, queries=[sentence])
                answer(query_options, model, gallery)
    print()


def with_folder(options):
    """Uses the first word as --images, unless a flag specifies the images."""
    image_flags = options.images, options.image, options.captions, options.index
    if any(image_flags) or not options.queries:
        return options
    first, *queries = options.queries
    if not os.path.isdir(first):
        if options.image_features:
            return options
        expected = "get the folder of the photos before the sentences"
        advice = "Or add --images, --index or --image_features."
        raise InputError(
            "tbnets query", expected, f"{first}, which is no folder", advice
        )
    return dataclasses.replace(options, images=first, queries=queries)


def check_query_flags(options, is_typed=False):
    """Raises an error if a query is missing or a flag has no effect."""
    by_image = bool(options.image)
    num_queries = len(options.queries) + len(options.like) + is_typed
    if by_image == bool(num_queries) or by_image != bool(options.captions):
        raise InputError(
            "tbnets query",
            "get sentences, --like, or --image and --captions",
            f"{num_queries} sentences or --like, --image={options.image}, "
            f"--captions={options.captions}",
        )
    check_pairs(options, {"approximate": "index"})
    if options.explain and not (options.queries or is_typed):
        raise must_come_with(options, "explain", "sentences")
    check_text("tbnets query", options.queries)
    for name in OUTPUTS:
        path = vars(options)[name]
        if path and name != "json" and (by_image or not options.images):
            needs = "sentences and --images, the folder of the photos"
            raise must_come_with(options, name, needs, "Add --images=FOLDER.")
        check_place(name, path)
    if not by_image:
        check_outputs(options)


def check_gallery(options, model):
    """Raises an error if the images that the network needs are missing."""
    flag_name = "images" if model.takes_photos else "image_features"
    by_photo = model.takes_photos and (options.image or options.index)
    by_index = options.index and not (options.image or options.like)
    if not (by_photo or by_index or vars(options)[flag_name]):
        expected = "be given, because this network takes them"
        raise InputError(f"--{flag_name}", expected, "none")


def check_outputs(options):
    """Raises an error if an output would overwrite a photo or other output."""
    places = {name: vars(options)[name] for name in OUTPUTS}
    if options.cache and options.images and options.montage is None:
        places["cache"] = os.path.join(options.cache, ANSWERS)
    uses = dict.fromkeys(map(os.path.realpath, options.like), "a photo")
    for name, path in places.items():
        real = pathlib.Path(os.path.realpath(path or STDOUT))
        if path in (None, "", STDOUT) or (real.exists() and not real.is_file()):
            continue
        if options.images and is_listed(real, options.images):
            uses[str(real)] = "among the photos of --images"
        if use := uses.get(str(real)):
            expected = "differ from all photos and outputs"
            raise InputError(f"--{name}", expected, f"{path}, which is {use}")
        uses[str(real)] = f"the value of --{name}"


def write_montage(options, titles, ids, ranked):
    """Writes the contact sheet to --montage or to the cache folder.

    `titles` are the sentences with their notes.
    """
    folder = files.folder_beside(options.images, options.cache)
    path = pathlib.Path(options.montage or folder / ANSWERS)
    queries = [*titles, *map(pathlib.Path, options.like)]
    best = [values[:MOST_ROWS, :MOST_ANSWERS] for values in ranked]
    sheet = montage.draw_montage(queries[:MOST_ROWS], ids, best, options.images)
    try:
        if not options.montage:
            files.make_folder_of(options.images, folder)
        files.write_png(path, sheet)
    except OSError as error:
        if options.montage:
            raise
        print(f"note: no picture of the results: {error}", file=sys.stderr)
    else:
        print(f"\nThe best images side by side: {path}")


def write_explanations(options, model, titles, ids, ranked):
    """Draws where photos match queries and their noun phrases, to --explain."""
    sheet_rows, advice = [], ""
    for number, query in enumerate(options.queries[:MOST_ROWS]):
        phrases = [query]
        try:
            phrases += [x for x in short_noun_phrases(query) if x != query]
        except ModuleNotFoundError:
            advice = '. Noun phrases need: pip install "tbnets[parse]"'
        rows = [[] for _ in phrases]
        best = zip(*(values[number, :MOST_ANSWERS] for values in ranked))
        for rank, (place, similarity, is_doubtful) in enumerate(best, start=1):
            name = ids[place]
            path = find_photo(options.images, name)
            if path is None:
                continue
            [maps] = model.heat_maps([path], phrases)
            photo = open_upright(path, 2 * PHOTO_SIZE)
            mark = "?" * bool(is_doubtful)
            name = montage.shorten(files.readable(name), PHOTO_SIZE)
            label = f"{rank}    {similarity:.3f}{mark}    {name}"
            for row, phrase, heat in zip(rows, phrases, maps):
                title = titles[number] if phrase == query else phrase
                row.append(montage.explanation(photo, heat, title, label))
        sheet_rows += rows
    if not any(sheet_rows):
        print("\nnote: --explain is not drawn, because the photos are missing.")
        return
    legend = "Bright and coloured: where the photo matches the words above."
    sheet = draw_sheet(sheet_rows, legend)
    files.write_png(options.explain, sheet)
    print(f"\nWhere the words are found: {options.explain}{advice}")


def write_answers_page(options, notes, ids, ranked):
    """Writes the results as an HTML page to --html."""
    sections = []
    texts = [note for _, note in notes]
    texts += ["photos like it"] * len(options.like)
    queries = [*options.queries, *options.like]
    for query, note, rows, values in zip(queries, texts, *ranked[:2]):
        names = [ids[row] for row in rows]
        sections.append(page.Section(query, note, names, values))
    about = f"The best of {len(ids):,} photos in {options.images}"
    about += f", found by {options.model}"
    page.write_page(options.html, sections, options.images, about)
    print(f"\nThe results as a page: {options.html}")


def main(options):
    """Runs the queries."""
    options, index = with_folder(options), None
    if options.index:
        # This module imports TensorFlow.
        from tbnets.serving.search_index import open_approximate, open_index

        open_any = open_approximate if options.approximate else open_index
        index = open_any(options.index)
        options = dataclasses.replace(
            options,
            images=options.images or str(index.photos or ""),
            montage=options.montage or "",  # Nothing is written unasked.
        )
    query_flags = options.queries, options.like, options.image, options.captions
    searched = options.images, options.index, options.image_features
    is_open = any(searched) and not any(query_flags)
    terminals = (x and x.isatty() for x in (sys.stdin, sys.stdout))
    is_typed = is_open and all(terminals)
    if is_open and not is_typed and sys.stdin:
        lines = os.fsdecode(sys.stdin.buffer.read()).removeprefix("\ufeff")
        queries = list(filter(None, map(str.strip, lines.splitlines())))
        options = dataclasses.replace(options, queries=queries)
    check_query_flags(options, is_typed)
    advice = f"Try tbnets localize --model={options.model} PHOTO PHRASE."
    needs_tensorflow = index is not None or options.explain
    if needs_tensorflow and options.runtime == "auto":
        # `tbnets index` embeds photos with TensorFlow.
        options = dataclasses.replace(options, runtime="tensorflow")
    requirements = image_requirements(advice)
    if options.explain:
        requirements["embed_cells"] = (
            "draw --explain, which needs the signature embed_cells",
            "It needs features that are averages of one map of a photo.",
        )
    model = options.open(requirements)
    if index is not None:
        index.check_embedded_by(identity_of(model))
    gallery = None if index is None else (index.ids, index)
    (answer_typed if is_typed else answer)(options, model, gallery)
