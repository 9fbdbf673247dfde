"""An API server for tests that knows EndpointSlices only: list and watch over TLS with a bearer token, and every way in which a real one fails."""

import http.server
import json
import pathlib
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
import urllib.parse

NAMESPACE = "baton"


class ApiServer:
    """with ApiServer() as kube: the router gets kube.router_args(). What is changed here is told to whoever watches."""

    def __init__(self, host="127.0.0.1"):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="baton-kube-"))
        self.host = host
        self.make_certificate(host)
        self.lock = threading.Condition()
        self.slices, self.version = {}, 100
        self.events = []  # (version, type, object)
        self.oldest = 0  # versions before are gone: 410
        self.watches = set()
        self.requests = []  # (status, is a watch, token)
        self.set_token("token-1")
        (self.dir / "namespace").write_text(NAMESPACE)
        self.server = None
        self.port = 0

    def make_certificate(self, host):
        def openssl(*argv):
            subprocess.run(["openssl", *argv], cwd=self.dir, check=True, capture_output=True)

        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                "-subj", f"/CN={self.dir.name}", "-keyout", "ca.key", "-out", "ca.crt")
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=api", "-keyout", "tls.key",
                "-out", "tls.csr")
        kind = "IP" if host[0].isdigit() else "DNS"
        (self.dir / "names").write_text(f"subjectAltName={kind}:{host}\n")
        openssl("x509", "-req", "-in", "tls.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2",
                "-extfile", "names", "-out", "tls.crt")

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()
        shutil.rmtree(self.dir, ignore_errors=True)

    def router_args(self, *services):
        entries = ",".join(f"kube:{service}:link" for service in services)
        return ["--workers", entries, "--kube.api-server", f"https://127.0.0.1:{self.port}", "--kube.ca-file", self.dir / "ca.crt",
                "--kube.token-file", self.dir / "token", "--kube.namespace-file", self.dir / "namespace", "--kube.retry-max-ms", 200]

    def start(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.dir / "tls.crt", self.dir / "tls.key")
        kube = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self):
                self.request.settimeout(60)
                self.request = context.wrap_socket(self.request, server_side=True)
                super().setup()

            def do_GET(self):
                kube.answer(self)

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads, block_on_close = True, False

            def handle_error(self, *_):  # a client that hangs up is no news
                pass

        self.server = Server(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def stop(self):
        """Takes no connection any more and hangs up on those that there are."""
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.server = None
        self.hang_up()

    # ---- what it knows

    def set_token(self, token, tell=True):
        """The only one that is accepted from now on; with `tell` the router's file has it too."""
        self.token = token
        if tell:
            (self.dir / "token.new").write_text(token)
            (self.dir / "token.new").rename(self.dir / "token")

    def set_slice(self, name, service, port, *endpoints):
        with self.lock:
            self.version += 1
            added = name not in self.slices
            self.slices[name] = {
                "metadata": {"name": name, "namespace": NAMESPACE, "resourceVersion": str(self.version),
                             "labels": {"kubernetes.io/service-name": service}},
                "addressType": "IPv4", "ports": [{"name": "link", "port": port, "protocol": "TCP"}],
                "endpoints": list(endpoints)}
            self.tell("ADDED" if added else "MODIFIED", self.slices[name])

    def delete_slice(self, name):
        with self.lock:
            self.version += 1
            gone = self.slices.pop(name)
            gone["metadata"]["resourceVersion"] = str(self.version)
            self.tell("DELETED", gone)

    def tell(self, kind, thing):
        self.events.append((self.version, kind, thing))
        self.lock.notify_all()

    # ---- what goes wrong

    def compact(self):
        """Forgets all versions so far: whoever watches gets an error, whoever wants to go on from one of them as well."""
        with self.lock:
            self.version += 1
            self.oldest = self.version
            self.lock.notify_all()

    def hang_up(self, in_chunk=False):
        with self.lock:
            for watch in self.watches:
                watch.end = "in chunk" if in_chunk else "now"
            self.lock.notify_all()

    def fall_silent(self):
        """Watches that are open now hear nothing more, but stay open, as behind a firewall that has forgotten them."""
        with self.lock:
            for watch in self.watches:
                watch.silent = True

    # ---- HTTP

    def answer(self, handler):
        url = urllib.parse.urlsplit(handler.path)
        query = {key: values[0] for key, values in urllib.parse.parse_qs(url.query).items()}
        token = handler.headers.get("Authorization", "").removeprefix("Bearer ")
        status = 200
        if token != self.token:
            status = 401
        elif url.path != f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices":
            status = 404
        watching = "watch" in query
        with self.lock:
            if status == 200 and watching and int(query["resourceVersion"]) < self.oldest:
                status = 410
            self.requests.append((status, watching, token))
        if status != 200:
            return self.reply(handler, status, {"kind": "Status", "code": status})
        wanted = query["labelSelector"].removeprefix("kubernetes.io/service-name in (").removesuffix(")").split(",")
        if watching:
            Watch(self, handler, wanted, int(query["resourceVersion"])).run(float(query["timeoutSeconds"]))
        else:
            with self.lock:
                items = [s for s in self.slices.values() if service_of(s) in wanted]
                version = self.version
            self.reply(handler, 200, {"kind": "EndpointSliceList", "metadata": {"resourceVersion": str(version)}, "items": items})

    @staticmethod
    def reply(handler, status, thing):
        body = json.dumps(thing).encode()
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)


def service_of(thing):
    return thing["metadata"]["labels"]["kubernetes.io/service-name"]


def endpoint(ip, ready=True, terminating=False, uid=None, zone=None):
    return {"addresses": [ip], "conditions": {"ready": ready and not terminating, "serving": ready, "terminating": terminating},
            "targetRef": {"kind": "Pod", "uid": uid or f"uid-{ip}"}, "zone": zone}


class Watch:
    def __init__(self, kube, handler, services, version):
        self.kube, self.handler, self.services, self.version = kube, handler, services, version
        self.end, self.silent = None, False

    def run(self, timeout_s):
        self.handler.close_connection = True
        self.handler.send_response(200)
        self.handler.send_header("Transfer-Encoding", "chunked")
        self.handler.end_headers()
        with self.kube.lock:
            self.kube.watches.add(self)
        try:
            self.serve(timeout_s)
        finally:
            with self.kube.lock:
                self.kube.watches.discard(self)

    def serve(self, timeout_s):
        """Events as they come, a bookmark when there are none for a second."""
        while True:
            with self.kube.lock:
                told = self.kube.lock.wait_for(self.news, min(timeout_s, 1))
                end, silent = self.end, self.silent
                gone = self.version < self.kube.oldest
                events = [event for event in self.kube.events if event[0] > self.version]
                self.version = max(self.version, self.kube.version)
            if end:
                return self.hang_up(in_chunk=end == "in chunk")
            if silent:
                continue
            if gone:
                return self.send({"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old resource version"}})
            for _, kind, thing in events:
                if service_of(thing) in self.services:
                    self.send({"type": kind, "object": thing})
            if not told:
                self.send({"type": "BOOKMARK", "object": {"kind": "EndpointSlice", "metadata": {"resourceVersion": str(self.version)}}})

    def news(self):
        return self.end or (not self.silent and (self.version < self.kube.oldest or self.version < self.kube.version))

    def send(self, event):
        data = json.dumps(event).encode() + b"\n"
        self.handler.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def hang_up(self, in_chunk):
        if in_chunk:
            self.handler.wfile.write(b'ff\r\n{"type":"MODIFIED","object":{"meta')
        self.handler.request.shutdown(socket.SHUT_RDWR)
