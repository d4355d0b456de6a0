"""How the chat templates of the XML-like dialects spell calls."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from antiphon.text.dialects.dialect import Dialect
from antiphon.text.dialects.xml_calls import DSML, DSML_V4, GLM, MINIMAX_M2, QWEN3_CODER

BOOK: dict[str, Any] = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "count": {"type": "integer"},
        "price": {"type": "number"},
        "gift": {"type": "boolean"},
        "nothing": {"type": "null"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "at": {"type": "object"},
        "days": {"type": ["integer", "null"]},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "room": {"type": ["string", "integer"]},
        "view": {"enum": ["sea", "hill"]},
        "stars": {"enum": [1, 2, 3]},
        "place": {"$ref": "#/$defs/place"},
        "tree": {"$ref": "#/$defs/tree"},
        "more": {},
    },
    "$defs": {
        "place": {"type": "object", "properties": {"city": {"type": "string"}}},
        "tree": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "array", "items": {"$ref": "#/$defs/tree"}}]},
    },
}

# Those whose values are no strings: DSML says so in the element.
JSON_KEYS = frozenset(BOOK["properties"]) - {"title", "note", "room", "view", "more"}


class Form(Struct, frozen=True, kw_only=True):
    """How one template spells calls; `NAME`, `KEY` and `VALUE` stand for themselves."""

    dialect: Dialect
    before: str = ""  # the calls of a turn
    head: str
    parameter: str
    json_parameter: str = ""  # with a value that is no string; empty: the same
    end: str  # of a call
    between: str = ""
    after: str = ""
    value_end: str
    closing: str  # what closes a call

    def parameters(self, values: dict[str, str]) -> str:
        return "".join(
            ((self.json_parameter if key in JSON_KEYS else "") or self.parameter)
            .replace("KEY", key)
            .replace("VALUE", value)
            for key, value in values.items()
        )

    def call(self, name: str = "search", **values: str) -> str:
        return f"{self.head.replace('NAME', name)}{self.parameters(values)}{self.end}"

    def turn(self, *calls: str) -> str:
        return f"{self.before}{self.between.join(calls)}{self.after}"

    def spelled(self, name: str = "search", **values: str) -> str:
        """A turn of one call."""
        return self.turn(self.call(name, **values))

    def begun(self, name: str = "search", **values: str) -> str:
        """A turn up to the last value, without its end."""
        turn = self.before + self.head.replace("NAME", name) + self.parameters(values)
        return turn[: turn.rindex(self.value_end)].removesuffix(self.line)

    @property
    def line(self) -> str:
        """What the template writes behind a value."""
        return self.parameter.partition("VALUE")[2].partition(self.value_end)[0]


QWEN_FORM = Form(
    dialect=QWEN3_CODER,
    head="<tool_call>\n<function=NAME>\n",
    parameter="<parameter=KEY>\nVALUE\n</parameter>\n",
    end="</function>\n</tool_call>",
    between="\n",
    value_end="</parameter>",
    closing="</function>",
)
GLM_FORM = Form(
    dialect=GLM,
    head="<tool_call>NAME\n",
    parameter="<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>\n",
    end="</tool_call>",
    between="\n",
    value_end="</arg_value>",
    closing="</tool_call>",
)
GLM_47_FORM = Form(
    dialect=GLM,
    head="<tool_call>NAME",
    parameter="<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>",
    end="</tool_call>",
    value_end="</arg_value>",
    closing="</tool_call>",
)
MINIMAX_FORM = Form(
    dialect=MINIMAX_M2,
    before="<minimax:tool_call>\n",
    head='<invoke name="NAME">\n',
    parameter='<parameter name="KEY">VALUE</parameter>\n',
    end="</invoke>\n",
    after="</minimax:tool_call>",
    value_end="</parameter>",
    closing="</invoke>",
)
DSML_FORM = Form(
    dialect=DSML,
    before="<｜DSML｜function_calls>\n",
    head='<｜DSML｜invoke name="NAME">\n',
    parameter='<｜DSML｜parameter name="KEY" string="true">VALUE</｜DSML｜parameter>\n',
    json_parameter='<｜DSML｜parameter name="KEY" string="false">VALUE</｜DSML｜parameter>\n',
    end="</｜DSML｜invoke>\n",
    after="</｜DSML｜function_calls>",
    value_end="</｜DSML｜parameter>",
    closing="</｜DSML｜invoke>",
)
DSML_V4_FORM = Form(
    dialect=DSML_V4,
    before="<｜DSML｜tool_calls>\n",
    head=DSML_FORM.head,
    parameter=DSML_FORM.parameter,
    json_parameter=DSML_FORM.json_parameter,
    end=DSML_FORM.end,
    after="</｜DSML｜tool_calls>",
    value_end=DSML_FORM.value_end,
    closing=DSML_FORM.closing,
)

FORMS = {
    "qwen3-coder": QWEN_FORM,
    "glm-4.5": GLM_FORM,
    "glm-4.7": GLM_47_FORM,
    "minimax-m2": MINIMAX_FORM,
    "deepseek-v3.2": DSML_FORM,
    "deepseek-v4": DSML_V4_FORM,
}
