"""Kernels for mappings from paths to leaves: filled, read, flattened and unflattened."""

from typing import Any, Final


def split(
    names: tuple[str, ...], leaves: list[Any], owners: list[int], parts: list[Any]
) -> None:
    """Put each leaf by its path into the mapping of its owner, the last for no owner."""
    last = parts[len(parts) - 1]
    for name, leaf, owner in zip(names, leaves, owners):
        if owner < 0:
            last[name] = leaf
        else:
            parts[owner][name] = leaf


def gather(
    index: dict[str, int],
    known: dict[Any, Any],
    mappings: tuple[Any, ...],
    blank: object,
    plain: frozenset[Any],
) -> Any:
    """The leaves in order, or None where the mappings do not hold each path just once.

    `known` remembers, by the first of them, keys that came before, and where they belong.
    `plain` are the classes of dicts whose values go with their keys.
    """
    count = 0
    for mapping in mappings:
        count += len(mapping)
    if count != len(index):
        return None
    leaves: list[Any] = [blank] * count
    for mapping in mappings:
        keys = tuple(mapping)
        # A class of dict may have an order, or values, of its own.
        if type(mapping) in plain:
            values = tuple(mapping.values())
        else:
            # By `append`, as in `node.attributes`.
            got: list[Any] = []
            for key in keys:
                got.append(mapping[key])
            values = tuple(got)
        if len(keys) != len(values):
            return None
        places: list[Any] = []
        same: Any = known.get(keys[0]) if keys else None
        if same is not None and same[0] == keys:
            places = same[1]
        else:
            for key in keys:
                place = index.get(key)
                if place is None:
                    return None
                places.append(place)
            if keys:
                # Enough for two choices of what goes where.
                if len(known) >= 2 * len(mappings):
                    known.clear()
                known[keys[0]] = (keys, places)
        for i, value in zip(places, values):
            at: int = i
            if leaves[at] is not blank:
                return None
            leaves[at] = value
    return leaves


class PartitionFlatten:
    """`flatten(partition) -> (leaves, names)`."""

    def __init__(self, intern: Any) -> None:
        self.intern: Final = intern

    def __call__(self, partition: Any) -> tuple[object, object]:
        # The keys are looked at each time, since a dict can be edited without its class
        # being told. By identity: a key may be equal to another and not the same, as 1 and
        # True. The leaves are handed out as they are in the dict: JAX iterates over them
        # once.
        try:
            pair: tuple[tuple[Any, ...], Any] = partition._known
            known = pair[0]
            if len(known) == len(partition):
                i = 0
                for key in partition:
                    if key is not known[i]:
                        break
                    i += 1
                if i == len(known):
                    return partition.values(), pair[1]
        except AttributeError:
            pass
        seen = tuple(partition)
        names = self.intern(seen)
        partition._known = (seen, names)
        return partition.values(), names


class PartitionUnflatten:
    """`unflatten(names, leaves) -> partition`."""

    def __init__(self, cls: Any) -> None:
        self.cls: Final = cls

    def __call__(self, names: Any, leaves: Any) -> object:
        keys: tuple[Any, ...] = names.keys
        partition = self.cls()
        i = 0
        for leaf in leaves:
            partition[keys[i]] = leaf
            i += 1
        partition._known = (keys, names)
        return partition
