import pytest
from starlette.routing import Route

import note_tta as tta
from note_tta.serve import create_app
from note_tta.serve.schema import openapi


def test_what_is_answered_is_in_the_schema_and_nothing_else(model):
    answered = {
        (route.path, verb.lower())
        for route in create_app(tta.Fleet(model)).routes
        if isinstance(route, Route) and route.path not in ("/", "/openapi.json")
        for verb in route.methods - {"HEAD"}
    }
    paths = openapi()["paths"]
    told = {(path, verb) for path, item in paths.items() for verb in item if verb != "parameters"}
    assert told == answered


@pytest.mark.parametrize("path", sorted(openapi()["paths"]))
def test_every_operation_says_what_it_does_and_how_it_refuses(path):
    for verb, operation in openapi()["paths"][path].items():
        if verb == "parameters":
            continue
        assert operation["summary"] and {"401", "403"} <= operation["responses"].keys()
