"""The client against a server that speaks the contract and breaks on purpose: drops, restarts, refusals."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from stellwerk.api.client import Client
from stellwerk.api.errors import ApiError, NoController

TOKEN = "secret"
Answer = tuple[int, Any] | None  # None: the connection is dropped


class Server:
    """Answers with what `answer(method, path, body)` gives and remembers what it was asked."""

    def __init__(self, home: Path, answer: Callable[[str, str, Any], Answer]) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                outer.asked.append((self.command, self.path, body))
                allowed = self.headers["Authorization"] == f"Bearer {TOKEN}"
                told = answer(self.command, self.path, body) if allowed else (401, {"detail": "no"})
                if told is None:
                    self.close_connection = True
                    return
                text = json.dumps(told[1]).encode()
                self.send_response(told[0])
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PUT = handle_any

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()
        home.mkdir(exist_ok=True)
        (home / "token").write_text(f"{TOKEN}\n")
        url = f"http://127.0.0.1:{self.http.server_port}"
        (home / "controller.json").write_text(json.dumps({"url": url, "pid": 1}))

    def close(self) -> None:
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[[Callable[[str, str, Any], Answer]], Server]]:
    started: list[Server] = []

    def start(answer: Callable[[str, str, Any], Answer]) -> Server:
        started.append(Server(tmp_path, answer))
        return started[-1]

    yield start
    for server in started:
        server.close()


def dropping(times: int, answer: Any) -> Callable[[str, str, Any], Answer]:
    left = [times]

    def reply(method: str, path: str, body: Any) -> Answer:
        left[0] -= 1
        return None if left[0] >= 0 else (200, answer)

    return reply


def test_a_dropped_submission_is_sent_again_under_the_same_key(serve: Any, tmp_path: Path) -> None:
    server = serve(dropping(2, {"key": "k", "name": "n"}))
    answer = Client(tmp_path).submit({"kind": "job"}, submission="abc", name="n")
    assert answer == {"key": "k", "name": "n"}
    assert [body["submission"] for _, _, body in server.asked] == ["abc"] * 3


@pytest.mark.parametrize("ask", [
    lambda client: client.chaos("kill-host", "x"),
    lambda client: client.command("x", ["true"], {}, "/"),
    lambda client: client.shutdown(stop_workloads=False),
])  # fmt: skip
def test_what_must_not_happen_twice_is_not_asked_twice(serve: Any, tmp_path: Path, ask: Any) -> None:
    server = serve(dropping(1, {}))
    with pytest.raises(NoController, match="the connection broke"):
        ask(Client(tmp_path))
    assert len(server.asked) == 1


def test_a_starting_controller_is_waited_for(serve: Any, tmp_path: Path) -> None:
    answers = iter([(503, {"detail": "starting"}), (200, {"pid": 1})])
    serve(lambda *_: next(answers))
    assert Client.connect(tmp_path).status is not None


def test_a_restarted_controller_is_found_at_its_new_address(serve: Any, tmp_path: Path) -> None:
    first = serve(lambda *_: (200, {"pid": 1}))
    client = Client.connect(tmp_path)
    first.close()
    serve(lambda *_: (200, {"pid": 2}))
    assert client.status() == {"pid": 2}


def test_no_address_is_no_controller(tmp_path: Path) -> None:
    with pytest.raises(NoController):
        Client.connect(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"url": 1}', '{"url": "http://x"}', "\x00"])
def test_a_damaged_address_is_no_controller(tmp_path: Path, text: str) -> None:
    (tmp_path / "controller.json").write_text(text)
    (tmp_path / "token").write_text(TOKEN)
    with pytest.raises(NoController):
        Client.connect(tmp_path)


def test_a_wrong_token_is_told(serve: Any, tmp_path: Path) -> None:
    serve(lambda *_: (200, {}))
    (tmp_path / "token").write_text("other")
    with pytest.raises(ApiError, match="does not accept the token") as refused:
        Client.connect(tmp_path)
    assert refused.value.status == 401


def test_problems_of_a_declaration_come_through(serve: Any, tmp_path: Path) -> None:
    problem = {"file": "f", "line": 1, "column": 2, "severity": "error", "code": "c", "message": "m", "mend": None}
    serve(lambda *_: (422, {"problems": [problem]}))
    with pytest.raises(ApiError) as refused:
        Client(tmp_path).plan({})
    assert refused.value.problems == (problem,)


def test_names_are_quoted(serve: Any, tmp_path: Path) -> None:
    server = serve(lambda *_: (404, {"detail": "unknown"}))
    with pytest.raises(ApiError, match="unknown"):
        Client(tmp_path).why("a/b c")
    assert server.asked[0][1] == "/v1/workloads/a%2Fb%20c/why"


def test_queries_leave_out_what_is_not_said(serve: Any, tmp_path: Path) -> None:
    server = serve(lambda *_: (200, []))
    Client(tmp_path).workloads(ended=True)
    assert server.asked[0][1] == "/v1/workloads?ended=true"
