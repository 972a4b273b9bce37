"""View: the mark of a parameter that reads the newest epoch of another processor."""


class View:
    """Marks a parameter as a view, such as ``def answers(queries, weights: fk.View)``.

    A batch gets the newest complete epoch of `weights` as a DataFrame. Falkirk records the number of that epoch before
    it is used, so a replay reads the same epoch. A function under `App.stream` gets a `View` for `Stream.lookup`.

    Args: name: of the processor that is read.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"view {self.name}"
