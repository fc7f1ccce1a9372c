"""What `keys`, `values` and `items` of an archive's records are: they go through its index a page at a time."""

from collections.abc import ItemsView, KeysView, ValuesView


class Keys(KeysView):
    __slots__ = ()

    def __iter__(self):
        return self._mapping._each("names")


class Values(ValuesView):
    __slots__ = ()

    def __iter__(self):
        return self._mapping._each("records")


class Items(ItemsView):
    __slots__ = ()

    def __iter__(self):
        return self._mapping._each("both")
