"""The two shell scripts of the chart, run with the shell and curl of this machine against servers that stand in for Hugging
Face and for the routers."""

import http.server
import json
import os
import subprocess
import threading

import pytest

from chart import CHART

FILES = {
    "config.json": b"{}",
    "tokenizer.json": b"tokens",
    "model-00001.safetensors": bytes(range(256)) * 512,
    "sub/chat.jinja": b"{{ messages }}",
    "README.md": b"no",
}


class Server:
    """Answers by `answer(handler)`; `requests` keeps (path, headers, body) of each."""

    def __init__(self, answer):
        self.requests = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def handle_any(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                outer.requests.append((self.path, dict(self.headers), body))
                answer(self)

            do_GET = do_POST = handle_any

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        self.thread = threading.Thread(target=self.http.serve_forever)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


def send(handler, status, body):
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def hub(handler, names=tuple(FILES)):
    if handler.headers.get("Authorization") != "Bearer hf_secret":
        return send(handler, 401, b"who are you")
    if handler.path == "/api/models/org/model/revision/abc":
        answer = {"id": "org/model", "siblings": [{"rfilename": name} for name in names]}
        return send(handler, 200, json.dumps(answer).encode())
    name = handler.path.removeprefix("/org/model/resolve/abc/")
    if name not in FILES:
        return send(handler, 404, b"")
    if "Range" in handler.headers:
        return send(handler, 416, b"")
    return send(handler, 200, FILES[name])


def run(script, **variables):
    environment = {"PATH": os.environ["PATH"], "no_proxy": "*", **variables}
    return subprocess.run(
        ["sh", CHART / "scripts" / script], env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def fetch(server, target, **variables):
    asked = {"HF_FILES": "*.json *.jinja *.safetensors", "HF_SKIP": "", "HF_TOKEN": "hf_secret", **variables}
    return run(
        "fetch-model.sh", HF_ENDPOINT=server.url, HF_REPOSITORY="org/model", HF_REVISION="abc", TARGET=str(target), **asked
    )


def found(target):
    return {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()}


def test_fetches_what_is_asked_for(tmp_path):
    with Server(hub) as server:
        done = fetch(server, tmp_path)
    assert done.returncode == 0, done.stderr
    assert found(tmp_path) == {name: body for name, body in FILES.items() if name != "README.md"}


def test_routers_skip_the_weights(tmp_path):
    with Server(hub) as server:
        assert fetch(server, tmp_path, HF_SKIP="*.safetensors").returncode == 0
    assert set(found(tmp_path)) == {"config.json", "tokenizer.json", "sub/chat.jinja"}


def test_goes_on_after_a_crash(tmp_path):
    """Half a file of the pod's own was once taken for a whole one: curl was told to continue it, and the server had no ranges."""
    weights = FILES["model-00001.safetensors"]
    part = f"model-00001.safetensors.{os.uname().nodename}.part"
    (tmp_path / part).write_bytes(weights[:1000])
    (tmp_path / "config.json").write_bytes(b"was there")
    with Server(hub) as server:
        done = fetch(server, tmp_path)
    assert done.returncode == 0, done.stderr
    after = found(tmp_path)
    assert after["model-00001.safetensors"] == weights
    assert after["config.json"] == b"was there"
    assert part not in after


def test_a_wrong_token_is_an_error_and_leaves_nothing(tmp_path):
    with Server(hub) as server:
        done = fetch(server, tmp_path, HF_TOKEN="wrong")
    assert done.returncode != 0 and "401" in done.stderr
    assert found(tmp_path) == {}


def test_no_file_is_an_error(tmp_path):
    with Server(hub) as server:
        done = fetch(server, tmp_path, HF_FILES="*.gguf")
    assert done.returncode != 0
    assert "no file of org/model at abc matches *.gguf" in done.stderr


def test_a_file_outside_the_repository_is_refused(tmp_path):
    with Server(lambda handler: hub(handler, names=("../../evil.json",))) as server:
        done = fetch(server, tmp_path)
    assert done.returncode != 0 and "../../evil.json" in done.stderr


STREAM = b'data: {"choices": [{"text": " four"}]}\n\ndata: [DONE]\n\n'


def complete(server, keys_file="/nowhere"):
    return run("stream-completion.sh", URL=server.url, MODEL="org/model-1.5", KEYS_FILE=str(keys_file))


def test_a_streamed_completion_passes(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("\nsk-one\nsk-two\n")
    with Server(lambda handler: send(handler, 200, STREAM)) as server:
        done = complete(server, keys)
    assert done.returncode == 0, done.stderr
    path, headers, body = server.requests[0]
    assert path == "/v1/completions" and headers["Authorization"] == "Bearer sk-one"
    assert json.loads(body)["stream"] is True and json.loads(body)["model"] == "org/model-1.5"


def test_without_keys_none_is_sent():
    with Server(lambda handler: send(handler, 200, STREAM)) as server:
        assert complete(server).returncode == 0
    assert "Authorization" not in server.requests[0][1]


@pytest.mark.parametrize(
    ("status", "body"),
    [(401, b'{"error": {"message": "no key"}}'), (200, b"data: [DONE]\n\n"), (200, STREAM.replace(b"data: [DONE]\n\n", b""))],
    ids=["refused", "no text", "cut off"],
)
def test_a_completion_that_fails_fails(status, body):
    with Server(lambda handler: send(handler, status, body)) as server:
        assert complete(server).returncode != 0
