"""Text that a notebook shows set and not quoted: a hint as Markdown, a solution as code."""


class Text(str):
    """A string with a look of its own in a notebook."""

    code: bool

    def __new__(cls, value: str, code: bool = False) -> "Text":
        """Text; `code` says that it is Python."""
        text = super().__new__(cls, value)
        text.code = code
        return text

    def __repr__(self) -> str:
        return str(self)

    def _repr_markdown_(self) -> str:
        return f"```python\n{self}\n```" if self.code else str(self)
