"""What mkdocstrings has to be told of our docstrings, to see their sections as such."""

import re
from typing import Any

import griffe

_FORMS = (
    # It knows examples, in the plural alone.
    (r"^Example:$", "Examples:"),
    # A paragraph of its own, or else a box.
    (r"^Cost: ", "**Cost:** "),
    # Of a class these are no arguments of its `__init__`.
    (r"^Arguments \(class keywords\):$", "Keyword Arguments: Class keywords:"),
)


class Docstrings(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            for form, other in _FORMS:
                obj.docstring.value = re.sub(form, other, obj.docstring.value, flags=re.M)
