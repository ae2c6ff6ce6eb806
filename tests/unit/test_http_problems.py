from __future__ import annotations

import json
from http import HTTPStatus
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.control.render import render
from app.domain.errors import (
    DriverUnavailable,
    JobDuplicate,
    JobStateConflict,
    NotImplementedYet,
    OutlastError,
    RequestInvalid,
    error_classes,
)
from app.http.problems import STATUS, RequestFacts, is_fault, problem_document, problem_response, status_of

FACTS = RequestFacts(request_id="r", instance="/v1/jobs")
ANY_TEXT = st.text(st.characters(codec=None), max_size=40)


@pytest.mark.parametrize("error_class", error_classes().values())
def test_every_code_has_a_status_of_http(error_class: type[OutlastError]) -> None:
    status = STATUS[error_class.code]
    assert HTTPStatus(status) >= HTTPStatus.BAD_REQUEST
    document = problem_document(error_class("what happened", fix="what to do"), FACTS)
    assert (document["code"], document["status"]) == (error_class.code, status)
    assert document["type"] == f"/problems/{error_class.code}"
    assert document["retryable"] is error_class.retryable


def test_only_faults_of_ours_keep_their_cause_to_themselves() -> None:
    fault = DriverUnavailable("10.1.2.3 hung up", fix="look at 10.1.2.3")
    assert is_fault(fault)
    assert "10.1.2.3" not in json.dumps(problem_document(fault, FACTS))
    told = NotImplementedYet("not built", fix="leave it out")
    assert not is_fault(told)
    assert problem_document(told, FACTS)["detail"] == "not built"


def test_facts_for_machines_are_passed_on_and_others_are_not() -> None:
    error = JobDuplicate("taken", fix="wait", existing_id=UUID(int=1), secret="x", http_headers={"Allow": "GET"})
    document = problem_document(error, FACTS)
    assert document["existing_id"] == str(UUID(int=1))
    assert "secret" not in document
    assert problem_document(JobStateConflict("x", fix="y", state="ready"), FACTS)["state"] == "ready"


def test_a_status_that_is_not_the_codes_is_said() -> None:
    error = RequestInvalid("x", fix="y", http_status=405, http_headers={"Allow": "GET"})
    response = problem_response(error, FACTS)
    assert (status_of(error), response.status_code, response.headers["allow"]) == (405, 405, "GET")


def test_one_place_becomes_a_list_of_errors() -> None:
    document = problem_document(RequestInvalid("too big", fix="less", pointer="/meta"), FACTS)
    assert document["errors"] == [{"in": "body", "pointer": "/meta", "detail": "too big"}]


@given(ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_no_text_keeps_a_problem_from_being_rendered(cause: str, fix: str, pointer: str) -> None:
    error = RequestInvalid(cause, fix=fix, errors=[{"in": "body", "pointer": pointer, "detail": cause}])
    document = json.loads(render(problem_document(error, FACTS)))
    assert "\x00" not in document["detail"]
    assert len(document["detail"]) <= 2_000
