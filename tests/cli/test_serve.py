"""What `note-tta serve` refuses before it serves."""

import socket

import pytest


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--port", 99999), "port must be from 0 to 65535, got 99999"),
        (("--port", -1), "port must be from 0 to 65535, got -1"),
        (("--max-streams", 0), "max_streams must be at least 1, got 0"),
        (("--max-resident", 0), "max_resident must be at least 1, got 0"),
        (("--host", "no such host"), "cannot listen at no such host, port 8000: "),
    ],
)
def test_a_users_mistake_is_one_line(program, capsys, monkeypatch, arguments, reason):
    monkeypatch.setenv("NOTE_TTA_TOKEN", "a-token-of-many-letters")
    assert program("serve", "--demo", *arguments) == 2
    said = capsys.readouterr()
    assert said.err.startswith(f"error: {reason}") and said.err.count("\n") == 1
    assert said.out == ""


def test_a_port_in_use_is_refused_before_an_address_is_told(program, capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert program("serve", "--demo", "--port", port) == 2
    said = capsys.readouterr()
    assert said.err == f"error: cannot listen at 127.0.0.1, port {port}: Address already in use\n"
    assert said.out == ""
