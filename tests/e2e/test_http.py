"""HTTP at the router's door with a real process: TLS and keys that change while it runs, huge headers, what is logged."""

import os
import pathlib
import socket
import ssl
import subprocess
import sys
import time

import httpx
import openai
import pytest

from cluster import BIN, GOLDEN, ROOT, Cluster, Process, free_port

sys.path.insert(0, str(ROOT / "tests/clients"))
from text_model import make_text_model  # noqa: E402


def wait_until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


class Router:
    """A router without workers: enough for everything but tokens."""

    def __init__(self, folder, *arguments, scheme="http", verify=None, model=GOLDEN / "llama"):
        self.port = free_port()
        self.url = f"{scheme}://127.0.0.1:{self.port}"
        self.verify = verify if verify is not None else False
        argv = [BIN / "baton-router", "--model", model, "--served-model-name", "m", "--port", self.port, *arguments]
        self.process = Process("router", argv, folder)

    def __enter__(self):
        self.process.start()
        assert wait_until(self.up), self.process.log.read_text()
        return self

    def __exit__(self, *_):
        self.process.stop()

    def up(self):
        assert self.process.running(), self.process.log.read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def get(self, path, **headers):
        return httpx.get(self.url + path, headers=headers, verify=self.verify, timeout=60)


class Certificates:
    """A self-signed certificate for 127.0.0.1 in two files; renew() puts another one in their place, as a mounted Secret changes."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.cert, self.key = self.folder / "tls.crt", self.folder / "tls.key"
        self.renew()

    def renew(self):
        new = [self.folder / "new.crt", self.folder / "new.key"]
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                        "-subj", "/CN=baton-test", "-addext", "subjectAltName=IP:127.0.0.1", "-out", new[0], "-keyout", new[1]],
                       check=True, capture_output=True)
        new[1].chmod(0o600)
        os.replace(new[0], self.cert)
        os.replace(new[1], self.key)

    def context(self):
        return ssl.create_default_context(cafile=self.cert)

    @property
    def flags(self):
        return ["--http.tls-cert-file", self.cert, "--http.tls-key-file", self.key]


@pytest.fixture
def certificates(tmp_path):
    return Certificates(tmp_path)


def shown_certificate(port):
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=60)


def test_https_with_keep_alive_and_large_bodies(tmp_path, certificates):
    with Router(tmp_path, *certificates.flags, scheme="https", verify=certificates.context()) as router:
        with httpx.Client(base_url=router.url, verify=certificates.context(), timeout=30) as client:
            assert client.get("/livez").status_code == 200
            ids = [i % 200 for i in range(200_000)]
            reply = client.post("/detokenize", json={"tokens": ids})
            assert reply.status_code == 200
            assert len(reply.json()["prompt"]) > len(ids)
            assert client.get("/version").status_code == 200


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_https_takes_tls_1_2_and_1_3_and_nothing_older(tmp_path, certificates):
    def version(lowest, highest):
        context = certificates.context()
        context.minimum_version, context.maximum_version = lowest, highest
        context.set_ciphers("ALL:@SECLEVEL=0")
        with socket.create_connection(("127.0.0.1", router.port), timeout=60) as raw:
            with context.wrap_socket(raw, server_hostname="127.0.0.1") as secure:
                return secure.version()

    with Router(tmp_path, *certificates.flags, scheme="https") as router:
        assert version(ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2) == "TLSv1.2"
        assert version(ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.TLSv1_3) == "TLSv1.3"
        with pytest.raises(ssl.SSLError):
            version(ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1)


def test_https_says_goodbye_when_it_closes(tmp_path, certificates):
    with Router(tmp_path, *certificates.flags, scheme="https") as router:
        with socket.create_connection(("127.0.0.1", router.port), timeout=60) as raw:
            with certificates.context().wrap_socket(raw, server_hostname="127.0.0.1", suppress_ragged_eofs=False) as secure:
                secure.sendall(b"GET /livez HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")
                answer = b""
                while piece := secure.recv(4096):  # raises when the end is not announced
                    answer += piece
        assert answer.startswith(b"HTTP/1.1 200")


def test_plain_http_on_the_https_port_is_closed_and_harms_nobody(tmp_path, certificates):
    with Router(tmp_path, *certificates.flags, scheme="https", verify=certificates.context()) as router:
        with socket.create_connection(("127.0.0.1", router.port), timeout=60) as raw:
            raw.sendall(b"GET /livez HTTP/1.1\r\nHost: t\r\n\r\n")
            while raw.recv(4096):
                pass
        assert router.get("/livez").status_code == 200


def test_a_renewed_certificate_is_shown_without_a_restart(tmp_path, certificates):
    with Router(tmp_path, *certificates.flags, scheme="https", verify=certificates.context()) as router:
        first = shown_certificate(router.port)
        with httpx.Client(base_url=router.url, verify=certificates.context(), timeout=60) as old_client:
            assert old_client.get("/livez").status_code == 200
            certificates.renew()
            assert wait_until(lambda: shown_certificate(router.port) != first)
            assert old_client.get("/livez").status_code == 200  # its connection goes on
        router.verify = certificates.context()
        assert router.get("/livez").status_code == 200


def test_a_certificate_that_does_not_work_leaves_the_old_one(tmp_path, certificates):
    with Router(tmp_path, *certificates.flags, scheme="https", verify=certificates.context()) as router:
        first = shown_certificate(router.port)
        certificates.cert.write_text("half a certi")
        assert wait_until(lambda: "http_certificate_kept" in router.process.log.read_text())
        assert shown_certificate(router.port) == first
        certificates.renew()
        assert wait_until(lambda: shown_certificate(router.port) != first)


def test_a_certificate_without_its_key_is_a_start_up_error(tmp_path, certificates):
    argv = [BIN / "baton-router", "--model", GOLDEN / "llama", "--port", free_port(), "--http.tls-cert-file", certificates.cert]
    done = subprocess.run([str(a) for a in argv], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "http.tls_key_file" in done.stderr


def test_keys_are_replaced_without_a_restart_and_never_logged(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-first\nsk-second\n")
    keys.chmod(0o600)
    with Router(tmp_path, "--http.api-keys-file", keys) as router:
        def models(key):
            client = openai.OpenAI(base_url=router.url + "/v1", api_key=key, max_retries=0)
            return [model.id for model in client.models.list()]

        assert models("sk-first") == models("sk-second") == ["m"]
        with pytest.raises(openai.AuthenticationError) as error:
            models("sk-third")
        assert error.value.code == "invalid_api_key"
        (tmp_path / "new").write_text("sk-third\n")
        os.replace(tmp_path / "new", keys)
        assert wait_until(lambda: router.get("/v1/models", authorization="Bearer sk-third").status_code == 200)
        with pytest.raises(openai.AuthenticationError):
            models("sk-first")
        assert "sk-" not in router.process.log.read_text()


def memory_kib(process):
    status = pathlib.Path(f"/proc/{process.popen.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def test_a_header_of_100_mb_is_refused_early_and_costs_no_memory(tmp_path):
    """CVE-2025-48956."""
    with Router(tmp_path) as router:
        assert router.get("/livez").status_code == 200
        before = memory_kib(router.process)
        answer = b""
        with socket.create_connection(("127.0.0.1", router.port), timeout=60) as raw:
            sent = 0
            try:
                raw.sendall(b"GET /livez HTTP/1.1\r\nHost: t\r\nX: ")
                for _ in range(1600):
                    raw.sendall(b"x" * 65536)
                    sent += 65536
                answer = raw.recv(4096)
            except OSError:  # cut off before we were done
                pass
        assert answer == b"" or answer.startswith(b"HTTP/1.1 431")
        assert memory_kib(router.process) - before < 16 * 1024
        assert router.get("/livez").status_code == 200


@pytest.fixture
def text_model(tmp_path):
    folder = tmp_path / "text"
    folder.mkdir()
    return make_text_model(GOLDEN / "llama", folder)


def test_chat_template_file_goes_before_the_models_own(tmp_path, text_model):
    template = tmp_path / "mine.jinja"
    template.write_text("{{ messages[0].content }}{{ '!' }}")
    with Router(tmp_path, "--chat-template-file", template, model=text_model) as router:
        assert router.get("/tokenizer_info").json()["chat_template"] == template.read_text()
        body = {"messages": [{"role": "user", "content": "abc"}]}
        assert httpx.post(router.url + "/v1/chat/completions/render", json=body, timeout=60).json()["prompt"] == "abc!"


def test_streams_over_https(tmp_path, certificates, text_model):
    with Cluster(text_model, prefill=0, decode=0, both=1, worker_args=["--kv.pool-mib", "32"]) as cluster:
        flags = [*certificates.flags, "--workers", ",".join(cluster.addresses.values()), "--link.token-file",
                 pathlib.Path(cluster.dir) / "token"]
        body = {"prompt": "abc", "max_tokens": 200, "temperature": 1, "seed": 3, "ignore_eos": True}
        with Router(tmp_path, *flags, scheme="https", verify=certificates.context(), model=text_model) as router:
            assert wait_until(lambda: router.get("/readyz").status_code == 200)
            whole = httpx.post(cluster.url + "/v1/completions", json=body, timeout=60).json()["choices"][0]["text"]
            client = openai.OpenAI(base_url=router.url + "/v1", api_key="unused", max_retries=0,
                                   http_client=httpx.Client(verify=certificates.context()))
            chunks = client.completions.create(model="m", stream=True, extra_body={"ignore_eos": True},
                                               **{key: value for key, value in body.items() if key != "ignore_eos"})
            assert "".join(choice.text for chunk in chunks for choice in chunk.choices) == whole


def test_the_traceparent_is_logged_with_its_request():
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with Cluster(GOLDEN / "llama", prefill=0, decode=0, both=1, worker_args=["--kv.pool-mib", "32"]) as cluster:
        reply = httpx.post(cluster.url + "/v1/completions", json={"prompt": [1, 2, 3], "max_tokens": 3, "ignore_eos": True},
                           headers={"traceparent": trace, "x-request-id": "traced-1"}, timeout=60)
        assert reply.status_code == 200
        log = cluster.routers[0].log
        assert wait_until(lambda: "request_id=traced-1" in log.read_text())
        line = next(line for line in log.read_text().splitlines() if "request_id=traced-1" in line)
        assert f"traceparent={trace}" in line
        assert "generated_tokens=3" in line


def test_a_refused_request_left_no_line_in_the_log():
    """An operator has to see why clients get errors: each refusal says its status and reason, under its request's id."""
    with Cluster(GOLDEN / "llama", prefill=0, decode=0, both=1, worker_args=["--kv.pool-mib", "32"],
                 router_args=["--route.queue-wait-ms", "100"]) as cluster:
        log = cluster.routers[0].log

        def line_of(request_id, status, body):
            reply = httpx.post(cluster.url + "/v1/completions", json=body, headers={"x-request-id": request_id}, timeout=60)
            assert reply.status_code == status
            assert wait_until(lambda: f"request_id={request_id} " in log.read_text())
            return next(line for line in log.read_text().splitlines() if f"request_id={request_id} " in line)

        line = line_of("wrong-field", 400, {"prompt": [1, 2], "n": 100})
        assert " info request_refused " in line and " status=400 " in line
        assert 'reason="n: got 100, want an integer from 1 to 16 (http.n_max)"' in line
        line = line_of("other-model", 404, {"prompt": [1, 2], "model": "other"})
        assert " info request_refused " in line and " status=404 " in line
        cluster.workers["both-0"].kill()
        cluster.workers["both-0"].popen.wait()
        assert wait_until(lambda: "worker_down" in log.read_text())
        line = line_of("no-worker", 503, {"prompt": [1, 2]})  # it was let in, and waited
        assert " info request " in line and "finished_reason=error" in line and 'reason="' in line and 'reason=""' not in line
        flood = 1000
        with socket.create_connection(("127.0.0.1", cluster.ports[0])) as connection:
            connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: t\r\nContent-Length: 2\r\n\r\n{}" * flood)
            answers = b""
            while answers.count(b"prompt: got nothing") < flood:
                answers += connection.recv(1 << 16)
        assert log.read_text().count(" request_refused ") < flood / 2
