"""A job type as admission sees it: its limits, its templates, and whether a payload fits.

Made from a published document in any process, or from a handle where the job's code is loaded; only the latter can
evaluate callable keys and tenants. Called by admission, control and handles.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import Any, TypeAlias, cast

from pydantic import ValidationError

from ..domain.errors import JobUnknown, PayloadInvalid, SettingsInvalid
from ..domain.job import OnConflict
from ..domain.limit import RATE
from ..domain.snapshot import JobTypeDoc
from ..domain.text import json_pointer
from .describe import Declared, describe
from .payload_schema import SchemaCheck, refuse_payload
from .policy import Rule
from .schema import Schema, SchemaWalk
from .signature import BodySignature, title
from .template import Template, parse_template


@dataclass(frozen=True, slots=True, kw_only=True)
class CallableRule:
    """A key or tenant made by a function of the payload; `call` is None where the function's module is not loaded."""

    name: str
    call: Callable[[str], str] | None = None


AdmissionRule: TypeAlias = Template | CallableRule

_KEYS = ("idempotency_key", "tenant")


@dataclass(frozen=True, kw_only=True)
class JobType:
    """What an enqueue is measured against. `local_check` is its own model and `handle` its code, where loaded."""

    name: str
    queue: str
    priority: int
    max_attempts: int
    max_crashes: int
    timeout: timedelta | None
    deadline: timedelta | None
    max_queue_time: timedelta | None
    on_conflict: OnConflict
    dedupe_for: timedelta | None
    key_rule: AdmissionRule | None
    tenant_rule: AdmissionRule | None
    limit_rules: tuple[tuple[str, AdmissionRule | None], ...]
    payload_schema: Schema = field(repr=False)
    local_check: Callable[[str], None] | None = field(default=None, repr=False)
    handle: Declared | None = field(default=None, repr=False, compare=False)

    @classmethod
    def parse(cls, document: str) -> JobType:
        """Read a published document.

        Raises:
            SettingsInvalid: it is not one this release can read.
        """
        try:
            content = json.loads(document)
            return _job_type(content, _published_rule)
        except (ValueError, KeyError, TypeError, AttributeError) as exc:
            raise SettingsInvalid(
                f"a published job type cannot be read: {type(exc).__name__}: {exc}",
                fix="publish it again from a worker of this release",
            ) from exc

    @classmethod
    def of_handle(cls, handle: Declared) -> JobType:
        """Make the job type of a handle whose code is loaded.

        Raises:
            SettingsInvalid: its annotations cannot be read, a template names a field that its payload cannot have, or
                other processes could not measure a payload by its schema.
        """
        signature, policy = handle.signature, handle.policy

        declared: dict[str, Rule | None] = {which: getattr(policy, which) for which in _KEYS}
        declared |= {_limit(limit.name): limit.key for limit in policy.limits}
        if policy.rate is not None:
            declared[_limit(RATE)] = policy.rate.key

        def rule(_content: Mapping[str, str], which: str) -> AdmissionRule:
            return _loaded_rule(cast("Rule", declared[which]), signature)

        def check(text: str) -> None:
            parse_payload(handle.name, signature, text)

        made = replace(_job_type(describe(handle), rule, check), handle=handle)
        made.refuse_impossible_templates()
        _ = made._schema_check  # noqa: SLF001 # compiled here, a schema that cannot work stops the start
        return made

    def check_payload(self, text: str, payload: object) -> None:
        """Let a payload through, or refuse it.

        Raises:
            PayloadInvalid: it does not fit; details `errors` hold `{pointer, message}`.
        """
        if self.local_check is None:
            self._schema_check.check(payload)
        else:
            self.local_check(text)

    def evaluate(self, rule: AdmissionRule, text: str, payload: object, what: str) -> str:
        """Make a key or tenant from a payload.

        Raises:
            PayloadInvalid: the payload lacks what it is made from.
            JobUnknown: it is made by a function that this process does not have.
        """
        if isinstance(rule, Template):
            return rule.render(payload, self._walk)
        if rule.call is None:
            raise JobUnknown(
                f"the {what} of {self.name} is made by {rule.name}, which this process has not loaded",
                fix=f"enqueue from a process that has, or declare the {what} as a template",
                name=self.name,
            )
        return rule.call(text)

    def refuse_impossible_templates(self) -> None:
        """Refuse a template that would refuse every payload.

        Raises:
            SettingsInvalid: a field that the payload cannot have.
        """
        for rule in (self.key_rule, self.tenant_rule, *(rule for _, rule in self.limit_rules)):
            if not isinstance(rule, Template):
                continue
            for path in rule.paths:
                if not self._walk.may_have(path):
                    raise SettingsInvalid(
                        f"the template {rule.text!r} of {self.name} names {'.'.join(path)}, which its payload lacks",
                        fix="name a field of the payload, as it is written in JSON",
                    )

    @cached_property
    def _schema_check(self) -> SchemaCheck:
        return SchemaCheck(self.name, self.payload_schema)

    @cached_property
    def _walk(self) -> SchemaWalk:
        return SchemaWalk(self.payload_schema)


class JobTypes:
    """Published job types, each parsed and compiled once per document; bounded by the number of names."""

    def __init__(self) -> None:
        self._parsed: dict[str, tuple[str, JobType]] = {}

    def of(self, doc: JobTypeDoc) -> JobType:
        """Give the job type of a published document.

        Raises:
            SettingsInvalid: it cannot be read.
        """
        known = self._parsed.get(doc.name)
        if known is None or known[0] != doc.document:
            known = (doc.document, JobType.parse(doc.document))
            self._parsed[doc.name] = known
        return known[1]


def parse_payload(name: str, signature: BodySignature, text: str) -> Any:  # noqa: ANN401 # the author's own model
    """Give the model of a payload text.

    Raises:
        PayloadInvalid: the model refuses it; details `errors` hold `{pointer, message}`.
    """
    try:
        return signature.model.model_validate_json(text)
    except ValidationError as exc:
        found = exc.errors(include_url=False, include_context=False, include_input=False)
        errors = [{"pointer": json_pointer(each["loc"]), "message": each["msg"]} for each in found]
        refuse_payload(name, errors[:20])


def _job_type(
    content: Mapping[str, Any],
    rule: Callable[[Mapping[str, str], str], AdmissionRule],
    local_check: Callable[[str], None] | None = None,
) -> JobType:
    policy = content["policy"]
    rules = {which: policy[which] and rule(policy[which], which) for which in _KEYS}
    rate = policy.get("rate")  # a document of an earlier release has neither
    limits = {limit["name"]: limit["key"] for limit in policy.get("limits", ())} | ({RATE: rate["key"]} if rate else {})
    return JobType(
        name=content["name"],
        queue=policy["queue"],
        priority=policy["priority"],
        max_attempts=policy["retry"]["max_attempts"],
        max_crashes=policy["retry"]["max_crashes"],
        timeout=_duration(policy["timeout_ms"]),
        deadline=_duration(policy["deadline_ms"]),
        max_queue_time=_duration(policy["max_queue_time_ms"]),
        on_conflict=cast("OnConflict", policy["on_conflict"]),
        dedupe_for=_duration(policy["dedupe_for_ms"]),
        key_rule=rules["idempotency_key"],
        tenant_rule=rules["tenant"],
        limit_rules=tuple((name, key and rule(key, _limit(name))) for name, key in limits.items()),
        payload_schema=content["payload_schema"],
        local_check=local_check,
    )


def _limit(name: str) -> str:
    """Name a limit's key among the rules of a type; no field of a policy has a space in its name."""
    return f"limit {name}"


def _duration(milliseconds: int | None) -> timedelta | None:
    return None if milliseconds is None else timedelta(milliseconds=milliseconds)


def _published_rule(content: Mapping[str, str], _which: str) -> AdmissionRule:
    template = content.get("template")
    return CallableRule(name=content["callable"]) if template is None else parse_template(template)


def _loaded_rule(rule: Rule, signature: BodySignature) -> AdmissionRule:
    if isinstance(rule, str):
        return parse_template(rule)

    def call(text: str) -> str:
        payload = signature.model.model_validate_json(text)
        try:
            made = rule(payload)
        except Exception as exc:
            raise PayloadInvalid(
                f"{title(rule)} raised {type(exc).__name__} for a payload",
                fix="make it return a text for every payload its model accepts, or correct the payload",
            ) from exc
        if not isinstance(made, str):
            raise PayloadInvalid(
                f"{title(rule)} made {type(made).__name__} of a payload where a text is needed",
                fix="return a str from it",
            )
        return made

    return CallableRule(name=title(rule), call=call)
