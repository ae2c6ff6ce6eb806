"""Templates: what they read, what they make of a payload, and what they refuse."""

from __future__ import annotations

import pytest

from app.domain.errors import PayloadInvalid, SettingsInvalid
from app.jobs.schema import SchemaWalk, refuse_remote_references
from app.jobs.template import parse_template

SCHEMA = {
    "type": "object",
    "properties": {
        "order_id": {"type": "integer"},
        "shop": {"type": "string", "default": "main"},
        "big": {"type": "boolean", "default": False},
        "customer": {"anyOf": [{"$ref": "#/$defs/Customer"}, {"type": "null"}], "default": {"id": 5}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "any": {"title": "Any"},
        "tree": {"$ref": "#/$defs/Tree"},
    },
    "$defs": {
        "Customer": {
            "type": "object",
            "properties": {"id": {"type": "integer"}, "kind": {"type": "string", "default": "person"}},
        },
        "Tree": {"type": "object", "properties": {"next": {"$ref": "#/$defs/Tree"}}},
    },
}
WALK = SchemaWalk(SCHEMA)


@pytest.mark.parametrize(
    ("template", "payload", "made"),
    [
        ("order:{order_id}", {"order_id": 12}, "order:12"),
        ("{shop}/{order_id}", {"order_id": 2**60 + 1}, "main/1152921504606846977"),
        ("{shop}", {"shop": "é {x}"}, "é {x}"),
        ("{big}", {}, "false"),
        ("{big}", {"big": True}, "true"),
        ("{order_id}", {"order_id": 1.0}, "1.0"),
        ("{customer.id}", {}, "5"),
        ("{customer.id}-{customer.kind}", {"customer": {"id": 7}}, "7-person"),
        ("{labels.team}", {"labels": {"team": "a"}}, "a"),
        ("{{{shop}}}", {}, "{main}"),
        ("}}{{", {}, "}{"),
        ("constant", {}, "constant"),
    ],
)
def test_a_template_sees_the_payload_as_sent_and_the_defaults(template: str, payload: object, made: str) -> None:
    assert parse_template(template).render(payload, WALK) == made


@pytest.mark.parametrize(
    ("template", "payload", "pointer"),
    [
        ("{order_id}", {}, "/order_id"),
        ("{order_id}", {"order_id": None}, "/order_id"),
        ("{customer.id}", {"customer": None}, "/customer/id"),
        ("{customer.id}", {"customer": {}}, "/customer/id"),
        ("{customer}", {}, "/customer"),
        ("{labels.team}", {"labels": ["team"]}, "/labels/team"),
        ("{shop}", {"shop": ["a"]}, "/shop"),
        ("{order_id}", [], "/order_id"),
        ("{a/b~c}", {}, "/a~1b~0c"),
    ],
)
def test_a_missing_field_is_a_refusal_that_names_it(template: str, payload: object, pointer: str) -> None:
    with pytest.raises(PayloadInvalid) as caught:
        parse_template(template).render(payload, WALK)
    assert caught.value.details == {"pointer": pointer}


@pytest.mark.parametrize(
    "text", ["", "{", "}", "{}", "a{b", "a}b", "{a..b}", "{a!r}", "{a:>3}", "{a[0]}", "{ a }", "{.a}"]
)
def test_text_that_is_no_template_is_refused(text: str) -> None:
    with pytest.raises(SettingsInvalid):
        parse_template(text)


@pytest.mark.parametrize("path", ["order_id", "customer.id", "labels.x", "any.thing.at.all", "tree.next.next.next"])
def test_a_path_the_schema_allows_may_be_there(path: str) -> None:
    assert WALK.may_have(tuple(path.split(".")))


@pytest.mark.parametrize("path", ["orderid", "customer.name", "order_id.x", "tree.other"])
def test_a_path_the_schema_does_not_know_may_not(path: str) -> None:
    assert not WALK.may_have(tuple(path.split(".")))


@pytest.mark.parametrize("reference", ["https://example.com/a.json", "other.json", "//host/x", "file:///etc/passwd"])
def test_references_out_of_the_document_are_refused(reference: str) -> None:
    with pytest.raises(SettingsInvalid):
        refuse_remote_references({"properties": {"a": [{"$ref": reference}]}}, "a.job")
