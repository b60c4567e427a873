"""The settings of a run: the groups of flags that it reads, nothing else."""

import dataclasses
import functools

from tbnets.tasks.settings.flag import reads, written
from tbnets.tasks.settings.table import ALL, GROUPS, complete


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """What a run was asked for: the fields of all groups that it reads.

    `settings_class` makes its subclasses. Where neither task nor model reads
    a group, there are no such settings; `isinstance` tells.

    Args:
        fixed: flag -> value, of those that task and model leave at one value;
            settings even where nobody reads their group.
        started_in: folder from which relative places start; "" for the
            current one.
    """

    fixed: dict = dataclasses.field(default_factory=dict)
    started_in: str = ""

    def __getattr__(self, name):
        if name in vars(self).get("fixed", ()):
            return self.fixed[name]
        if f"{name}_" in vars(self):  # `from_`, by the name of its flag.
            return vars(self)[f"{name}_"]
        raise AttributeError(
            f"`settings.{name}` is none of this run's settings: neither its "
            "task nor its model names a group of flags that has it."
        )

    def values(self):
        """Returns name -> value of all that is set, and `started_in`."""
        return self._own() | self.fixed

    def _own(self):
        """Returns the same without those that are left at one value."""
        found = {name.rstrip("_"): value for name, value in vars(self).items()}
        del found["fixed"]
        return found

    def replace(self, **changes):
        """Returns settings of which some have other values."""
        return dataclasses.replace(self, **changes)

    def flags(self):
        """Returns the `Flag`s of its groups, in the order of the table."""
        return [flag for name, flag in ALL.items() if name in self._own()]

    def reads(self, name):
        """Tells whether a flag is read: its group, under these values."""
        return name in self._own() and reads(ALL[name], self)

    def flags_read(self):
        """Returns those that are read under the values of the others."""
        return [flag for flag in self.flags() if reads(flag, self)]

    def as_table(self):
        """Returns the settings that are read as a Markdown table.

        A row a flag: its value, its default and its help. Flags that have not
        their default come first.
        """
        defaults = complete({"loss": getattr(self, "loss", None)})
        rows = {True: [], False: []}
        for flag in self.flags_read():
            both = getattr(self, flag.name), defaults[flag.name]
            changed = both[0] != both[1]
            mark = "**" if changed else ""
            cells = (f"`{text}`" if text else "" for text in map(written, both))
            cells = (f"{mark}{flag.name}{mark}", *cells, flag.help)
            cells = (cell.replace("|", "\\|") for cell in cells)
            rows[changed].append(f"| {' | '.join(cells)} |")
        head = ["| flag | value | default | what it is |", "|---|---|---|---|"]
        return "\n".join([*head, *rows[True], *rows[False]])

    def comparable(self):
        """Returns the settings by which two runs may be compared.

        Those that are read, without files and folders: name -> number, bool
        or string.
        """
        read = [flag.name for flag in self.flags_read() if not flag.is_place]
        values = {name: getattr(self, name) for name in read}
        return {
            k: written(v) if type(v) is list else v for k, v in values.items()
        }


@functools.cache
def settings_class(groups):
    """Returns the class of settings that hold groups of flags.

    Args:
        groups: frozenset of their names in `table.GROUPS`.
    """
    bases = (Settings, *(GROUPS[name] for name in GROUPS if name in groups))
    return dataclasses.make_dataclass(
        "Settings", (), bases=bases, frozen=True, kw_only=True
    )


def make_settings(record, groups, fixed):
    """Returns the settings that groups of flags make of a record.

    Args:
        record: flag -> value, of all of them; and `started_in`.
        groups: names of the groups that are read.
        fixed: see `Settings`.
    """
    made = settings_class(frozenset(groups))
    values = record | fixed | {"fixed": fixed}
    names = [field.name for field in dataclasses.fields(made)]
    return made(**{name: values[name.rstrip("_")] for name in names})
