"""Names weights identically in every process and Keras version.

Keras numbers the layers of a class within a process, so the first branch of the
third network may be called `branch_2`. Here, its name is `branch`.
"""

import re

import keras


def weight_names(network):
    """Returns the names of a network's weights, in the order of the weights.

    A name consists of the names of layers and of the weight, such as
    `branch/fc1/kernel`.
    """
    paths = _paths(network)
    paths = [paths[id(weight)] for weight in network.weights]
    names = renumbered(paths)
    return ["/".join(names[path]) for path in paths]


def _paths(layer):
    """Returns a dict from each weight's id to its path, a tuple of names."""
    # In Keras 2, weights have no `path`.
    paths = {}
    inner = [*vars(layer).values(), *getattr(layer, "layers", ())]
    for each in inner:
        for child in each if isinstance(each, list | tuple) else [each]:
            if isinstance(child, keras.layers.Layer):
                for key, path in _paths(child).items():
                    paths[key] = (child.name, *path)
    for weight in layer.weights:
        name = weight.name.rpartition("/")[2].partition(":")[0]
        paths.setdefault(id(weight), (name,))
    return paths


def uncounted(name):
    """Splits a name into its base and the number that Keras appends."""
    base, number = re.fullmatch(r"(.*?)(?:_(\d+))?", name).groups()
    return base, int(number or 0)


def renumbered(paths):
    """Maps each path to a path with layers numbered within their parent."""
    beside = {}
    for path in paths:
        for depth, part in enumerate(path):
            beside.setdefault(path[:depth], set()).add(uncounted(part))

    def name(above, part):
        base, number = uncounted(part)
        before = [n for b, n in beside[above] if b == base and n < number]
        return f"{base}_{len(before)}" if before else base

    return {
        path: tuple(name(path[:i], part) for i, part in enumerate(path))
        for path in paths
    }
