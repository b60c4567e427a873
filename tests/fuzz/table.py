"""Breaks files by the thousand, and prints what came of it."""

import collections
import tempfile

import tqdm

from tbnets.errors import InputError
from tbnets.files import shown
from tests.fuzz import child

KINDS = ("clean", "harmless", "accepted", "fault")
TITLES = ("reader", "tried", "clean", "harmless", "accepted", "faults")


def chosen(readers, names):
    """Returns the readers of some names, all for none.

    Args:
        readers: name -> `reader.Reader`.
        names: list of strings.
    """
    unknown = [name for name in names if name not in readers]
    if unknown:
        raise InputError(
            "`--readers` must be names of readers. Received: --readers="
            f"{','.join(names)}, and there is no {unknown[0]}. Choose of "
            f"{', '.join(readers)}."
        )
    return {name: readers[name] for name in names or readers}


def run(readers, count, seed):
    """Breaks each reader's file `count` times; prints faults and the table.

    Args:
        readers: name -> `reader.Reader`.
        count: mutations of each.
        seed: of all of them.

    Returns:
        The number of faults.
    """
    counts = {name: collections.Counter() for name in readers}
    numbers = dict.fromkeys(readers, range(count))
    with tqdm.tqdm(
        total=count * len(readers), unit="file", mininterval=1, disable=None
    ) as bar:
        for answer in child.run(readers, numbers, seed):
            bar.set_description(answer.reader, refresh=False)
            bar.update()
            counts[answer.reader][answer.kind] += 1
            if answer.kind == "fault":
                place = f"{answer.reader}:{answer.number}"
                reason = shown_line(answer.detail)
                bar.write(f"{place}  {answer.what}  {reason}")
    print(format_table(counts))
    return sum(count["fault"] for count in counts.values())


def shown_line(detail):
    """Returns the first line of an answer's detail, not too long."""
    line = detail.partition("\n")[0]
    return line if len(line) <= 300 else shown(line)


def format_table(counts):
    """Returns a Markdown table.

    Args:
        counts: reader -> kind of answer -> number.
    """
    rows = [
        [name, sum(count.values()), *(count[kind] for kind in KINDS)]
        for name, count in counts.items()
    ]
    rows.append(["all", *(sum(row[i] for row in rows) for i in range(1, 6))])
    lines = [TITLES, ["---", *["---:"] * 5], *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def show_one(readers, place, seed):
    """Breaks one file once more, keeps it, and prints what came of it.

    Args:
        readers: name -> `reader.Reader`.
        place: `READER:NUMBER`.
        seed: of the mutation.

    Returns:
        The number of faults, 0 or 1.
    """
    name, _, number = place.partition(":")
    if not number.isdecimal():
        raise InputError(
            "`--only` must be READER:NUMBER. Received: --only="
            f"{place}. Write it as a fault is shown."
        )
    one = chosen(readers, [name])
    (answer,) = child.run(one, {name: [int(number)]}, seed)
    folder = tempfile.mkdtemp(prefix=f"{name}-{number}-")
    path = child.keep(name, one[name], int(number), seed, folder)
    print(f"broken    {answer.what}\nfile      {path}")
    print(f"{answer.kind:<9} {answer.detail}")
    return int(answer.kind == "fault")
